// SPDX-License-Identifier: Apache-2.0
//
// The verbs this library uses, as a table: filled from libibverbs when that is loaded, or by a test.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "lib/base/handle.h"
#include "lib/base/status.h"

namespace rocenante {

// Each as the manual page of the same name says, except that query_port takes a zeroed struct and may leave
// what is newer than libibverbs 1.0 zero.
struct VerbsApi {
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* domain);
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, std::size_t bytes, int access);
  int (*dereg_mr)(ibv_mr* region);
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel,
                       int vector);
  int (*destroy_cq)(ibv_cq* queue);
  int (*req_notify_cq)(ibv_cq* queue, int solicited_only);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** cookie);
  void (*ack_cq_events)(ibv_cq* queue, unsigned int events);
  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  int (*destroy_qp)(ibv_qp* pair);
  int (*post_send)(ibv_qp* pair, ibv_send_wr* first, ibv_send_wr** bad);
  int (*post_recv)(ibv_qp* pair, ibv_recv_wr* first, ibv_recv_wr** bad);
  int (*poll_cq)(ibv_cq* queue, int most, ibv_wc* completions);
  const char* (*wc_status_str)(ibv_wc_status status);
  // Null where libibverbs is older than dma-bufs.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
                           int fd, int access) = nullptr;
};

// libibverbs' own, loaded at the first call and kept: its providers do not expect to be unloaded. Any
// thread. The error says what is missing.
Result<const VerbsApi*> load_verbs();

// Objects of verbs, owned. The table outlives them.
template <class Object, auto kDestroy>
struct VerbsTraits {
  struct Value {
    const VerbsApi* api = nullptr;
    Object* object = nullptr;
    bool operator==(const Value& other) const { return object == other.object; }
    Object* operator->() const { return object; }
  };
  static Value empty() { return {}; }
  static void release(Value value) { (value.api->*kDestroy)(value.object); }
};
using DeviceList = Owned<VerbsTraits<ibv_device*, &VerbsApi::free_device_list>>;
using DeviceContext = Owned<VerbsTraits<ibv_context, &VerbsApi::close_device>>;
using ProtectionDomain = Owned<VerbsTraits<ibv_pd, &VerbsApi::dealloc_pd>>;
using MemoryRegion = Owned<VerbsTraits<ibv_mr, &VerbsApi::dereg_mr>>;
using CompletionChannel = Owned<VerbsTraits<ibv_comp_channel, &VerbsApi::destroy_comp_channel>>;
using CompletionQueue = Owned<VerbsTraits<ibv_cq, &VerbsApi::destroy_cq>>;
using QueuePair = Owned<VerbsTraits<ibv_qp, &VerbsApi::destroy_qp>>;

}  // namespace rocenante
