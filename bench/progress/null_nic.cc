// SPDX-License-Identifier: Apache-2.0
#include "bench/progress/null_nic.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace rocenante::bench {
namespace {

constexpr std::uint32_t kEntryBytes = 64;
constexpr std::uint32_t kEntries = 256;
constexpr std::uint32_t kMostBlocks = 4;  // of one request
constexpr std::uint32_t kInlineFlag = 1u << 31;
constexpr std::uint32_t kDevices = 8;
constexpr std::uint32_t kMostInline = 128;
constexpr std::uint8_t kSignalled = 1;

// The three parts of an entry, each of 16 bytes; an inline payload stands in place of the last.
struct Control {
  std::uint32_t index_opcode;
  std::uint32_t pair_size;
  std::uint8_t reserved[3];
  std::uint8_t flags;
  std::uint32_t immediate;
};
struct Remote {
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t reserved;
};
struct Data {
  std::uint32_t bytes;
  std::uint32_t key;
  std::uint64_t address;
};

struct NullQueue : ibv_cq {
  std::vector<struct NullPair*> pairs;
};

struct NullPair : ibv_qp {
  alignas(kEntryBytes) std::array<unsigned char, kEntryBytes*(std::size_t{kEntries} + kMostBlocks)> ring{};
  std::array<std::uint64_t, kEntries> ids{};
  std::array<std::uint8_t, kEntries> blocks{};  // of the request that begins there
  std::uint32_t head = 0, tail = 0;             // in entries; `tail` is what polling has come to
  std::uint32_t next_number = 0;
  alignas(kEntryBytes) std::uint64_t doorbell = 0;
  std::uint32_t doorbell_record = 0;
};

struct Stamp {
  std::uint32_t left = 0;
  std::uint64_t at = 0;
};
Stamp stamp;

std::array<ibv_device, kDevices> devices;
std::uint32_t next_pair = 1;

// Writes one request and says how many entries it took; 0 if the ring is full.
std::uint32_t build(NullPair& pair, const ibv_send_wr& request) {
  const std::uint32_t at = pair.head % kEntries;
  if (pair.head - pair.tail > kEntries - kMostBlocks || request.num_sge > 1) return 0;
  unsigned char* const entry = pair.ring.data() + std::size_t{at} * kEntryBytes;
  auto* const control = reinterpret_cast<Control*>(entry);
  auto* const remote = reinterpret_cast<Remote*>(entry + sizeof(Control));
  unsigned char* const rest = entry + sizeof(Control) + sizeof(Remote);
  remote->address = htobe64(request.wr.rdma.remote_addr);
  remote->key = htobe32(request.wr.rdma.rkey);
  remote->reserved = 0;
  std::uint32_t size = sizeof(Control) + sizeof(Remote);
  if (request.num_sge == 1) {
    const ibv_sge& memory = *request.sg_list;
    if ((request.send_flags & IBV_SEND_INLINE) != 0) {
      const std::uint32_t length = htobe32(memory.length | kInlineFlag);
      std::memcpy(rest, &length, sizeof length);
      // Entries of one request follow each other; the ring has room for them behind its end.
      std::memcpy(rest + sizeof length, reinterpret_cast<const void*>(memory.addr), memory.length);
      size += (static_cast<std::uint32_t>(sizeof length) + memory.length + 15) & ~15u;
    } else {
      const Data data{htobe32(memory.length), htobe32(memory.lkey), htobe64(memory.addr)};
      std::memcpy(rest, &data, sizeof data);
      size += sizeof data;
    }
  }
  const std::uint32_t opcode = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 9 : 8;
  control->index_opcode = htobe32((pair.head & 0xffff) << 8 | opcode);
  control->pair_size = htobe32(pair.qp_num << 8 | size / 16);
  control->flags = (request.send_flags & IBV_SEND_SIGNALED) != 0 ? kSignalled : 0;
  control->immediate = opcode == 9 ? request.imm_data : 0;
  pair.ids[at] = request.wr_id;
  pair.blocks[at] = static_cast<std::uint8_t>((size + kEntryBytes - 1) / kEntryBytes);
  return pair.blocks[at];
}

int post_send(ibv_qp* raw, ibv_send_wr* request, ibv_send_wr** bad) {
  auto& pair = static_cast<NullPair&>(*raw);
  const std::uint32_t first = pair.head % kEntries;
  for (; request != nullptr; request = request->next) {
    const std::uint32_t taken = build(pair, *request);
    if (taken == 0) {
      *bad = request;
      return ENOMEM;
    }
    pair.head += taken;
  }
  __atomic_store_n(&pair.doorbell_record, htobe32(pair.head & 0xffff), __ATOMIC_RELEASE);
  std::uint64_t word;
  std::memcpy(&word, pair.ring.data() + std::size_t{first} * kEntryBytes, sizeof word);
  __atomic_store_n(&pair.doorbell, word, __ATOMIC_RELEASE);
  if (stamp.left != 0 && --stamp.left == 0) stamp.at = ticks();
  return 0;
}

int poll(ibv_cq* raw, int most, ibv_wc* completions) {
  int count = 0;
  for (NullPair* const pair : static_cast<NullQueue*>(raw)->pairs) {
    while (pair->tail != pair->head) {
      if (count == most) return count;
      const std::uint32_t at = pair->tail % kEntries;
      const auto* const control =
          reinterpret_cast<const Control*>(pair->ring.data() + std::size_t{at} * kEntryBytes);
      pair->tail += pair->blocks[at];
      if (control->flags != kSignalled) continue;
      completions[count] = {};
      completions[count].wr_id = pair->ids[at];
      completions[count].qp_num = pair->qp_num;
      completions[count++].status = IBV_WC_SUCCESS;
    }
  }
  return count;
}

ibv_device** list_devices(int* count) {
  auto** const list = new ibv_device* [kDevices + 1] {};
  for (std::uint32_t i = 0; i < kDevices; ++i) {
    std::snprintf(devices[i].name, sizeof devices[i].name, "null%u", i);
    list[i] = &devices[i];
  }
  *count = kDevices;
  return list;
}

int query_port(ibv_context*, std::uint8_t, ibv_port_attr* attributes) {
  attributes->state = IBV_PORT_ACTIVE;
  attributes->active_mtu = IBV_MTU_4096;
  return 0;
}

ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t bytes, int) {
  auto* const region = new ibv_mr{};
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->lkey = region->rkey = 7;
  return region;
}

ibv_qp* make_pair(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  attributes->cap.max_inline_data = kMostInline;
  auto* const pair = new NullPair;
  pair->pd = domain;
  pair->qp_num = next_pair++;
  pair->send_cq = attributes->send_cq;
  static_cast<NullQueue*>(attributes->send_cq)->pairs.push_back(pair);
  return pair;
}

int destroy_pair(ibv_qp* raw) {
  auto* const pair = static_cast<NullPair*>(raw);
  std::erase(static_cast<NullQueue*>(pair->send_cq)->pairs, pair);
  delete pair;
  return 0;
}

template <class Made, class Base>
int destroy(Base* object) {
  delete static_cast<Made*>(object);
  return 0;
}

constexpr VerbsApi kApi{
    list_devices,
    [](ibv_device** list) { delete[] list; },
    [](ibv_device* device) { return static_cast<const char*>(device->name); },
    [](ibv_device*) { return new ibv_context{}; },
    destroy<ibv_context, ibv_context>,
    query_port,
    [](ibv_context*) { return new ibv_pd{}; },
    destroy<ibv_pd, ibv_pd>,
    register_memory,
    destroy<ibv_mr, ibv_mr>,
    nullptr,  // nobody sleeps here
    nullptr,
    [](ibv_context*, int, void*, ibv_comp_channel*, int) -> ibv_cq* { return new NullQueue; },
    destroy<NullQueue, ibv_cq>,
    nullptr,
    nullptr,
    nullptr,
    make_pair,
    [](ibv_qp*, ibv_qp_attr*, int) { return 0; },
    destroy_pair,
    post_send,
    [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; },
    poll,
    [](ibv_wc_status) { return "none"; },
};

}  // namespace

const VerbsApi& null_api() {
  return kApi;
}

void expect_posts(std::uint32_t posts) {
  stamp = {posts, 0};
}

std::uint64_t last_post() {
  return stamp.at;
}

}  // namespace rocenante::bench
