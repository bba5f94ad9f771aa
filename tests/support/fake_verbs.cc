// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_verbs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "tests/support/dma_buf.h"
#include "tests/support/fake_verbs_state.h"

namespace rocenante::test {

FakeVerbs::State* world = nullptr;

namespace {

thread_local std::uint32_t this_host = 0;

std::string text_of(const ibv_qp_attr& attributes) {
  switch (attributes.qp_state) {
    case IBV_QPS_INIT:
      return fmt::format("INIT port {} pkey {} access {}", attributes.port_num, attributes.pkey_index,
                         attributes.qp_access_flags);
    case IBV_QPS_RTR:
      return fmt::format("RTR mtu {} gid {} hops {} tc {} sl {} port {} global {}",
                         static_cast<int>(attributes.path_mtu), attributes.ah_attr.grh.sgid_index,
                         attributes.ah_attr.grh.hop_limit, attributes.ah_attr.grh.traffic_class,
                         attributes.ah_attr.sl, attributes.ah_attr.port_num, attributes.ah_attr.is_global);
    case IBV_QPS_RTS:
      return fmt::format("RTS timeout {} retry {} rnr {}", attributes.timeout, attributes.retry_cnt,
                         attributes.rnr_retry);
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "other";
  }
}

// Which attributes verbs demand for a transition of a reliable connection; nothing else may be set.
bool is_allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_ERR) return mask == IBV_QP_STATE;
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
    return mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
    return mask == (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
    return mask == (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC);
  return false;
}

void take_over(FakePair& pair, const ibv_qp_attr& wanted) {
  ibv_qp_attr& mine = pair.attributes;
  if (wanted.qp_state == IBV_QPS_INIT) mine.qp_access_flags = wanted.qp_access_flags;
  if (wanted.qp_state == IBV_QPS_RTR) {
    mine.path_mtu = wanted.path_mtu;
    mine.dest_qp_num = wanted.dest_qp_num;
    mine.rq_psn = wanted.rq_psn;
    mine.ah_attr = wanted.ah_attr;
  }
  if (wanted.qp_state == IBV_QPS_RTS) mine.sq_psn = wanted.sq_psn;
}

int modify_pair(ibv_qp* raw, ibv_qp_attr* wanted, int mask) {
  const Lock lock(world->mutex);
  auto& pair = static_cast<FakePair&>(*raw);
  if (world->fails()) return world->error;
  if (!is_allowed(pair.state, wanted->qp_state, mask)) return EINVAL;
  if (wanted->qp_state == IBV_QPS_RTR &&
      (wanted->ah_attr.grh.sgid_index != pair.facts.gid_index || wanted->path_mtu > pair.facts.mtu)) {
    return EINVAL;
  }
  pair.log->push_back(text_of(*wanted));
  pair.state = wanted->qp_state;
  take_over(pair, *wanted);
  if (pair.state == IBV_QPS_ERR) world->break_pair(pair);
  return 0;
}

ibv_qp* create_pair(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  auto* const pair = new FakePair{};
  pair->context = domain->context;
  pair->pd = domain;
  pair->facts = static_cast<FakeContext*>(domain->context)->facts;
  pair->completions = static_cast<FakeQueue*>(attributes->send_cq);
  pair->limits = attributes->cap;
  pair->qp_num = world->next_number++;
  pair->state = IBV_QPS_RESET;
  pair->log = &world->logs.emplace_back();
  world->pairs[pair->qp_num] = pair;
  ++world->alive;
  return pair;
}

int post_send(ibv_qp* raw, ibv_send_wr* request, ibv_send_wr** bad) {
  const Lock lock(world->mutex);
  auto& pair = static_cast<FakePair&>(*raw);
  if (world->fails()) return world->error;
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    if (pair.held >= pair.limits.max_send_wr) {
      ++world->overruns;
      return ENOMEM;
    }
    Packet packet{*request, {}, {}};
    if (request->num_sge == 1) packet.memory = *request->sg_list;
    if ((request->send_flags & IBV_SEND_INLINE) != 0) {
      if (packet.memory.length > pair.limits.max_inline_data) return EINVAL;
      const auto* const data = reinterpret_cast<const unsigned char*>(packet.memory.addr);
      packet.data.assign(data, data + packet.memory.length);
    }
    ++pair.held;
    world->most_queued = std::max(world->most_queued, pair.held);
    if (pair.error) {
      world->complete(pair, request->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RDMA_WRITE, 0);
    } else {
      pair.sends.push_back(std::move(packet));
    }
  }
  return 0;
}

int post_receive(ibv_qp* raw, ibv_recv_wr* request, ibv_recv_wr** bad) {
  const Lock lock(world->mutex);
  auto& pair = static_cast<FakePair&>(*raw);
  *bad = request;
  if (world->fails()) return world->error;
  if (pair.state == IBV_QPS_RESET || pair.receives.size() >= pair.limits.max_recv_wr) return EINVAL;
  pair.receives.push_back(request->wr_id);
  return 0;
}

ibv_device** list_devices(int* count) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  const auto& devices = world->devices[this_host];
  auto* const list = new ibv_device* [devices.size() + 1] {};
  std::transform(devices.begin(), devices.end(), list, [](const auto& one) { return one.get(); });
  *count = static_cast<int>(devices.size());
  ++world->alive;
  return list;
}

void free_list(ibv_device** list) {
  const Lock lock(world->mutex);
  --world->alive;
  delete[] list;
}

ibv_context* open_device(ibv_device* device) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  auto* const context = new FakeContext{};
  context->facts = world->facts.at(device);
  ++world->alive;
  return context;
}

int query_port(ibv_context* context, std::uint8_t, ibv_port_attr* attributes) {
  const Lock lock(world->mutex);
  if (world->fails()) return world->error;
  attributes->state = IBV_PORT_ACTIVE;
  attributes->active_mtu = static_cast<FakeContext*>(context)->facts.mtu;
  return 0;
}

ibv_pd* make_domain(ibv_context* context) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  auto* const domain = new FakeDomain{};
  domain->context = context;
  ++world->alive;
  return domain;
}

ibv_mr* add_region(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  auto* const region = new FakeRegion{};
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->access = access;
  region->memory = static_cast<unsigned char*>(address);
  region->lkey = world->next_number++;
  region->rkey = world->next_number++;
  world->regions.insert(region);
  ++world->alive;
  return region;
}

ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  const Lock lock(world->mutex);
  return world->fails() ? nullptr : add_region(domain, address, bytes, access);
}

ibv_mr* register_dma_buf(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
                         int fd, int access) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  const std::optional<DmaBuf> found = find_dma_buf(fd);
  if (world->without_dma_bufs.contains(static_cast<FakeContext*>(domain->context)->facts.gid)) {
    errno = EOPNOTSUPP;
  } else if (!found.has_value()) {
    errno = EBADF;
  } else if (offset + bytes > found->bytes || bytes == 0 || (offset - address) % 4096 != 0) {
    errno = EINVAL;
  } else {
    ibv_mr* const made = add_region(domain, reinterpret_cast<void*>(address), bytes, access);
    static_cast<FakeRegion*>(made)->memory = found->memory + offset;
    static_cast<FakeRegion*>(made)->is_dma_buf = true;
    return made;
  }
  return nullptr;
}

// What has been taken arrives before the memory may go.
int deregister(ibv_mr* region) {
  const Lock lock(world->mutex);
  while (world->let_arrive([&](const LateWrite& one) { return one.region == region; })) {
  }
  world->regions.erase(static_cast<FakeRegion*>(region));
  return destroy<FakeRegion>(region);
}

int destroy_pair(ibv_qp* pair) {
  const Lock lock(world->mutex);
  world->pairs.erase(pair->qp_num);
  return destroy<FakePair>(pair);
}

const char* status_text(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "some error";
}

constexpr VerbsApi kApi{
    list_devices,
    free_list,
    [](ibv_device* device) { return static_cast<const char*>(device->name); },
    open_device,
    destroy<FakeContext, ibv_context>,
    query_port,
    make_domain,
    destroy<FakeDomain, ibv_pd>,
    register_memory,
    deregister,
    make_channel,
    destroy_channel,
    make_queue,
    destroy_queue,
    arm_queue,
    take_event,
    acknowledge_events,
    create_pair,
    modify_pair,
    destroy_pair,
    post_send,
    post_receive,
    poll_queue,
    status_text,
    register_dma_buf,
};

constexpr VerbsApi kOldApi = [] {
  VerbsApi api = kApi;
  api.reg_dmabuf_mr = nullptr;
  return api;
}();

}  // namespace

FakeVerbs::FakeVerbs() : state_(std::make_unique<State>()) {
  world = state_.get();
}
FakeVerbs::~FakeVerbs() {
  {
    const Lock lock(state_->mutex);
    state_->has_ended = true;
  }
  if (bridge_.joinable()) bridge_.join();
  world = nullptr;
}

const VerbsApi& FakeVerbs::old_api() {
  return kOldApi;
}

void FakeVerbs::forbid_dma_bufs(const fabric::Gid& gid) {
  const Lock lock(state_->mutex);
  state_->without_dma_bufs.insert(gid);
}

void FakeVerbs::stall(const fabric::Gid& gid, bool stalls) {
  const Lock lock(state_->mutex);
  if (stalls) {
    state_->stalled.insert(gid);
  } else {
    state_->stalled.erase(gid);
  }
}

void FakeVerbs::hold_dma_bufs(std::uint32_t host, bool holds) {
  const Lock lock(state_->mutex);
  if (holds) {
    state_->held_hosts.insert(host);
  } else {
    state_->held_hosts.erase(host);
  }
}

void FakeVerbs::delay_dma_bufs() {
  state_->is_late = true;
  bridge_ = std::thread([this] {
    for (;;) {
      {
        const Lock lock(state_->mutex);
        if (state_->has_ended) return;
        const auto may = [&](const LateWrite& one) { return !state_->held_hosts.contains(one.host); };
        while (state_->random() % 4 != 0 && state_->let_arrive(may)) {
        }
      }
      std::this_thread::yield();
    }
  });
}

const VerbsApi& FakeVerbs::api() {
  return kApi;
}

void FakeVerbs::set_host(std::uint32_t host) {
  this_host = host;
}

void FakeVerbs::add_host(std::uint32_t host, const std::vector<fabric::Port>& ports) {
  for (const fabric::Port& port : ports) {
    auto device = std::make_unique<ibv_device>();
    std::snprintf(device->name, sizeof device->name, "%s", port.device.c_str());
    std::snprintf(device->dev_name, sizeof device->dev_name, "uverbs%zu", state_->devices[host].size());
    state_->facts[device.get()] = {port.device, port.gid, port.gid_index,
                                   port.mtu == 1024 ? IBV_MTU_1024 : IBV_MTU_4096, host};
    state_->devices[host].push_back(std::move(device));
  }
}

void FakeVerbs::fail_call(std::uint64_t call, int error) {
  const Lock lock(state_->mutex);
  state_->failing_call = call;
  state_->error = error;
}
std::uint64_t FakeVerbs::calls() const {
  const Lock lock(state_->mutex);
  return state_->calls;
}
std::int64_t FakeVerbs::alive() const {
  const Lock lock(state_->mutex);
  return state_->alive;
}
void FakeVerbs::cut(const fabric::Gid& gid) {
  const Lock lock(state_->mutex);
  state_->cut.insert(gid);
}
void FakeVerbs::reset(const fabric::Gid& gid) {
  const Lock lock(state_->mutex);
  for (const auto& [number, pair] : state_->pairs) {
    if (pair->facts.gid == gid) state_->break_pair(*pair);
  }
}
void FakeVerbs::set_delay(std::uint32_t percent) {
  const Lock lock(state_->mutex);
  state_->delay_percent = percent;
}
std::vector<std::vector<std::string>> FakeVerbs::transitions() const {
  const Lock lock(state_->mutex);
  return {state_->logs.begin(), state_->logs.end()};
}
std::uint64_t FakeVerbs::most_queued() const {
  const Lock lock(state_->mutex);
  return state_->most_queued;
}
std::uint64_t FakeVerbs::overruns() const {
  const Lock lock(state_->mutex);
  return state_->overruns;
}
std::uint64_t FakeVerbs::arms() const {
  const Lock lock(state_->mutex);
  return state_->arms;
}
std::uint64_t FakeVerbs::events() const {
  const Lock lock(state_->mutex);
  return state_->events;
}
std::uint64_t FakeVerbs::immediates() const {
  const Lock lock(state_->mutex);
  return state_->immediates;
}
std::uint64_t FakeVerbs::writes_over(const fabric::Gid& gid) const {
  const Lock lock(state_->mutex);
  const auto found = state_->writes.find(gid);
  return found == state_->writes.end() ? 0 : found->second;
}
std::uint64_t FakeVerbs::dma_buf_writes() const {
  const Lock lock(state_->mutex);
  return state_->dma_buf_writes;
}
std::uint64_t FakeVerbs::long_host_writes() const {
  const Lock lock(state_->mutex);
  return state_->long_host_writes;
}

}  // namespace rocenante::test
