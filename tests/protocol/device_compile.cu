// SPDX-License-Identifier: Apache-2.0
//
// The protocol text compiled for a GPU: a device Env and a CTA as Group around the very headers the host
// uses. Nobody runs it; check_device.py reads what the compiler made of it.
#include <cstdint>

#include "lib/protocol/abort_word.h"
#include "lib/protocol/doorbell.h"
#include "lib/protocol/one_shot.h"

namespace rocenante {
namespace {

using protocol::Verdict;

// System scope: the other side is a CPU, a NIC or another GPU.
struct DeviceEnv {
  static constexpr protocol::Mutation kMutation = protocol::Mutation::kNone;

  __device__ std::uint64_t load_acquire(const std::uint64_t* word) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ std::uint64_t load_relaxed(const std::uint64_t* word) const {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ std::uint32_t load_relaxed(const std::uint32_t* word) const {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ void store_release(std::uint64_t* word, std::uint64_t value) const {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ void store_relaxed(std::uint64_t* word, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ std::uint64_t fetch_add(std::uint64_t* word, std::uint64_t value) const {
    std::uint64_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(word), "l"(value)
                 : "memory");
    return before;
  }
  __device__ std::uint32_t fetch_add(std::uint32_t* word, std::uint32_t value) const {
    std::uint32_t before;
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(value)
                 : "memory");
    return before;
  }
  __device__ void copy(void* to, const void* from, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; ++i) {
      static_cast<unsigned char*>(to)[i] = static_cast<const unsigned char*>(from)[i];
    }
  }
  __device__ void fence() const { asm volatile("fence.sc.sys;" ::: "memory"); }
  __device__ void acquire_from_nic() const {}            // ld.acquire.sys covers the whole system
  __device__ void notify(const std::uint32_t*) const {}  // a device wakes nobody
};

// The threads of a CTA.
class BlockGroup {
 public:
  __device__ explicit BlockGroup(std::uint64_t* box) : box_(box) {}
  __device__ std::uint32_t id() const { return threadIdx.x; }
  __device__ std::uint32_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  template <class T>
  __device__ T broadcast(T value) {
    if (threadIdx.x == 0) *box_ = static_cast<std::uint64_t>(value);
    __syncthreads();
    const T got = static_cast<T>(*box_);
    __syncthreads();
    return got;
  }
  __device__ Verdict worst(Verdict value) {
    if (__syncthreads_or(value != Verdict::kReady) == 0) return Verdict::kReady;
    if (__syncthreads_or(value == Verdict::kMismatch) != 0) return Verdict::kMismatch;
    return __syncthreads_or(value == Verdict::kAborted) != 0 ? Verdict::kAborted : Verdict::kPending;
  }

 private:
  std::uint64_t* box_;  // shared memory
};

struct DoorbellPort {
  DeviceEnv& env;
  protocol::DoorbellRing& ring;
  __device__ void post(const protocol::Lane&, std::uint64_t epoch, const protocol::Piece& piece) {
    protocol::ring_doorbell(env, ring, epoch, {piece.bytes, piece.tag});
  }
  __device__ bool drained() const { return true; }
};

struct FloatSum {
  static constexpr bool reads_slot(const protocol::Piece&) { return false; }
  std::uint32_t ranks;

  __device__ void stage(DeviceEnv&, const BlockGroup& group, unsigned char* to, const unsigned char* from,
                        std::uint64_t bytes) {
    for (std::uint64_t i = group.id(); i < bytes; i += group.size()) to[i] = from[i];
  }
  // Volatile: region memory is never read through the non-coherent path.
  template <class Group, class Source>
  __device__ void combine(Group& group, const protocol::Piece& piece, std::uint64_t begin,
                          std::uint64_t end, Source&& source) {
    float* const output = static_cast<float*>(piece.output);
    for (std::uint64_t i = begin / 4 + group.id(); i < end / 4; i += group.size()) {
      float sum = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        sum += reinterpret_cast<const volatile float*>(source(rank))[i];
      }
      output[i] = sum;
    }
  }
};

using DeviceOneShot = protocol::OneShot<DeviceEnv, BlockGroup, DoorbellPort, FloatSum>;

}  // namespace

__global__ void one_shot(const protocol::Lane* lane, protocol::DoorbellRing* ring,
                         const protocol::Exchange* exchange, std::uint64_t* verdicts) {
  __shared__ std::uint64_t box;
  DeviceEnv env;
  BlockGroup group(&box);
  DoorbellPort port{env, *ring};
  FloatSum combiner{lane->ranks};
  DeviceOneShot shot(env, group, *lane, port, combiner, protocol::part_of(blockIdx.x, gridDim.x), *exchange);
  Verdict verdict;
  while ((verdict = shot.step()) == Verdict::kPending) {
  }
  if (threadIdx.x == 0) verdicts[blockIdx.x] = static_cast<std::uint64_t>(verdict);
}

__global__ void take_one(protocol::DoorbellRing* ring, std::uint64_t next, protocol::PutDescriptor* put,
                         std::uint64_t* taken) {
  DeviceEnv env;
  *taken = static_cast<std::uint64_t>(protocol::take_doorbell(env, *ring, next, *put));
}

__global__ void explain(std::uint64_t word, std::uint64_t* parts) {
  const protocol::AbortCause cause = protocol::unpack_abort(word);
  parts[0] = static_cast<std::uint64_t>(cause.reason);
  parts[1] = cause.peer;
  parts[2] = cause.epoch;
  parts[3] = protocol::pack_abort(cause);
}

}  // namespace rocenante
