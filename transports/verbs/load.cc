// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string>

#include "transports/verbs/api.h"
#include "transports/verbs/verbs.h"

namespace rocenante {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";
constexpr const char* kVersion = "IBVERBS_1.1";     // 1.0 had other structures
constexpr const char* kOldVersion = "IBVERBS_1.0";  // of what has not changed since
constexpr const char* kDmaBufVersion = "IBVERBS_1.12";

struct Loaded {
  VerbsApi api{};
  std::string error;
};

template <class Function>
void find(void* library, const char* name, Function* function, std::string* error,
          const char* version = kVersion) {
  void* const symbol = ::dlvsym(library, name, version);
  if (symbol == nullptr && error->empty()) {
    *error = fmt::format("verbs: {} lacks {}@{}: is it from an rdma-core older than 1.0?", kLibrary, name,
                         version);
  }
  *function = reinterpret_cast<Function>(symbol);
}

Loaded load() {
  Loaded loaded;
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    loaded.error = fmt::format(
        "verbs: {} cannot be loaded ({}): install libibverbs1 and ibverbs-providers, or rdma-core",
        kLibrary, reason == nullptr ? "no reason given" : reason);
    return loaded;
  }
  VerbsApi& api = loaded.api;
  std::string* const error = &loaded.error;
  find(library, "ibv_get_device_list", &api.get_device_list, error);
  find(library, "ibv_free_device_list", &api.free_device_list, error);
  find(library, "ibv_get_device_name", &api.get_device_name, error);
  find(library, "ibv_open_device", &api.open_device, error);
  find(library, "ibv_close_device", &api.close_device, error);
  find(library, "ibv_query_port", &api.query_port, error);
  find(library, "ibv_alloc_pd", &api.alloc_pd, error);
  find(library, "ibv_dealloc_pd", &api.dealloc_pd, error);
  find(library, "ibv_reg_mr", &api.reg_mr, error);
  find(library, "ibv_dereg_mr", &api.dereg_mr, error);
  find(library, "ibv_create_comp_channel", &api.create_comp_channel, error, kOldVersion);
  find(library, "ibv_destroy_comp_channel", &api.destroy_comp_channel, error, kOldVersion);
  find(library, "ibv_create_cq", &api.create_cq, error);
  find(library, "ibv_destroy_cq", &api.destroy_cq, error);
  find(library, "ibv_get_cq_event", &api.get_cq_event, error);
  find(library, "ibv_ack_cq_events", &api.ack_cq_events, error);
  find(library, "ibv_create_qp", &api.create_qp, error);
  find(library, "ibv_modify_qp", &api.modify_qp, error);
  find(library, "ibv_destroy_qp", &api.destroy_qp, error);
  find(library, "ibv_wc_status_str", &api.wc_status_str, error);
  api.reg_dmabuf_mr =
      reinterpret_cast<decltype(api.reg_dmabuf_mr)>(::dlvsym(library, "ibv_reg_dmabuf_mr", kDmaBufVersion));
  // Inline in the header: they go through the device's own table.
  api.post_send = [](ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad) {
    return pair->context->ops.post_send(pair, first, bad);
  };
  api.post_recv = [](ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad) {
    return pair->context->ops.post_recv(pair, first, bad);
  };
  api.poll_cq = [](ibv_cq* queue, int most, ibv_wc* completions) {
    return queue->context->ops.poll_cq(queue, most, completions);
  };
  api.req_notify_cq = [](ibv_cq* queue, int solicited_only) {
    return queue->context->ops.req_notify_cq(queue, solicited_only);
  };
  return loaded;
}

}  // namespace

Result<const VerbsApi*> load_verbs() {
  // Never destroyed: threads may use adapters while static objects go.
  static const auto* const loaded = new Loaded(load());
  if (!loaded->error.empty()) return Status(Code::kInvalidUsage, loaded->error);
  return &loaded->api;
}

Status verbs_usable() {
  return load_verbs().status();
}

}  // namespace rocenante
