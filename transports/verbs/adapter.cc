// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/adapter.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <string_view>

namespace rocenante {
namespace {

Result<DeviceContext> open_context(const VerbsApi& api, const std::string& name) {
  int count = 0;
  ibv_device** const raw = api.get_device_list(&count);
  if (raw == nullptr) return errno_error("verbs: ibv_get_device_list");
  const DeviceList list({&api, raw});
  for (int i = 0; i < count; ++i) {
    if (name != api.get_device_name(raw[i])) continue;
    ibv_context* const context = api.open_device(raw[i]);
    if (context != nullptr) return DeviceContext({&api, context});
    return errno_error(
        "verbs: {} cannot be opened; may this user read and write /dev/infiniband/{}? (in a container: "
        "--device=/dev/infiniband)",
        name, raw[i]->dev_name);
  }
  return make_error(Code::kInvalidUsage,
                    "verbs: the system has {}, but libibverbs does not offer it: is its provider installed "
                    "(ibverbs-providers, rdma-core) and /dev/infiniband there? (in a container: "
                    "--device=/dev/infiniband)",
                    name);
}

std::string memlock_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} bytes", limit.rlim_cur);
}

Result<MemoryRegion> register_region(const VerbsApi& api, const std::string& device, ibv_pd* domain,
                                     const Region& region, int access) {
  ibv_mr* const memory = api.reg_mr(domain, region.address(), region.bytes(), access);
  if (memory != nullptr) return MemoryRegion({&api, memory});
  const int error = errno;
  std::string advice;
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    advice = fmt::format(
        "; locked memory is limited to {} (RLIMIT_MEMLOCK): raise it with 'ulimit -l unlimited', in "
        "limits.conf, "
        "LimitMEMLOCK= of the service or --ulimit memlock=-1 of the container, or use a smaller "
        "ROCENANTE_SLOT_BYTES",
        memlock_text());
  }
  return system_error(error,
                      fmt::format("verbs: {} cannot register {} bytes{}", device, region.bytes(), advice));
}

// What peers may do with an inbox. No relaxed ordering: a signal may not overtake its payload (protocol
// rule 4).
constexpr int kInboxAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::open(const VerbsApi& api, const std::string& device,
                                               const Region& inbox, const Region& outbox,
                                               std::uint32_t entries, bool sleeps) {
  std::unique_ptr<Adapter> made(new Adapter(api, device));
  RCN_ASSIGN(made->context_, open_context(api, device));
  ibv_context* const context = made->context_.get().object;
  made->domain_ = ProtectionDomain({&api, api.alloc_pd(context)});
  if (!made->domain_) return errno_error("verbs: {} has no protection domain", device);
  if (sleeps) {
    made->channel_ = CompletionChannel({&api, api.create_comp_channel(context)});
    if (!made->channel_) return errno_error("verbs: {} has no completion channel", device);
    const int fd = made->channel_.get()->fd;
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
      return errno_error("verbs: the completion channel of {}", device);
  }
  made->completions_ = CompletionQueue(
      {&api, api.create_cq(context, static_cast<int>(entries), nullptr, made->channel_.get().object, 0)});
  if (!made->completions_)
    return errno_error("verbs: {} has no completion queue of {} entries", device, entries);
  // Peers write the inbox; the outbox is only read by this adapter.
  RCN_ASSIGN(made->inbox_, register_region(api, device, made->domain(), inbox, kInboxAccess));
  RCN_ASSIGN(made->outbox_, register_region(api, device, made->domain(), outbox, 0));
  made->outbox_lkey_ = made->outbox_.get()->lkey;
  return made;
}

// There is no query of it, but a descriptor that is none is told as that only by who would have taken one.
Status Adapter::can_register_dma_bufs() const {
  if (api_.reg_dmabuf_mr == nullptr)
    return Status(Code::kSystemError, "verbs: libibverbs lacks ibv_reg_dmabuf_mr (rdma-core 34 has it)");
  errno = 0;
  const MemoryRegion none({&api_, api_.reg_dmabuf_mr(domain(), 0, 0, 0, -1, 0)});
  const int error = errno;
  if (!none && error == EBADF) return {};
  return system_error(none || error == 0 ? EPROTO : error,
                      fmt::format("verbs: {} or its driver cannot register dma-bufs", device_));
}

Status Adapter::register_device_inbox(const DeviceInbox& inbox) {
  const auto address = reinterpret_cast<std::uintptr_t>(inbox.device);
  device_inbox_ = MemoryRegion(
      {&api_, api_.reg_dmabuf_mr(domain(), 0, inbox.bytes, address, inbox.dma_buf.get(), kInboxAccess)});
  if (device_inbox_) return {};
  return errno_error("verbs: {} cannot register a dma-buf of {} bytes", device_, inbox.bytes);
}

Result<ibv_mtu> Adapter::port_mtu(std::uint32_t port) const {
  ibv_port_attr attributes{};
  const int error = api_.query_port(context_.get().object, static_cast<std::uint8_t>(port), &attributes);
  if (error != 0) return system_error(error, fmt::format("verbs: {}:{} cannot be queried", device_, port));
  if (attributes.state != IBV_PORT_ACTIVE) {
    return make_error(Code::kSystemError, "verbs: {}:{} is not active any more (state {})", device_, port,
                      static_cast<int>(attributes.state));
  }
  return attributes.active_mtu;
}

Status Adapter::arm() {
  ibv_cq* queue = nullptr;
  void* cookie = nullptr;
  while (api_.get_cq_event(channel_.get().object, &queue, &cookie) == 0) api_.ack_cq_events(queue, 1);
  const int error = api_.req_notify_cq(completions(), 0);
  if (error == 0) return {};
  return system_error(error, fmt::format("verbs: the completion queue of {} gives no events", device_));
}

void Adapter::forget() {
  device_inbox_.take();
  outbox_.take();
  inbox_.take();
  completions_.take();
  channel_.take();
  domain_.take();
  context_.take();
}

}  // namespace rocenante
