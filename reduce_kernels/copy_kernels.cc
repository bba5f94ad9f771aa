// SPDX-License-Identifier: Apache-2.0
//
// Copies of the size of a slot. The C library hands them to `rep movsb` where a processor claims to be good
// at it, and what that costs is the microcode's secret: some are several times slower at some alignments,
// and emulated ones go byte by byte.
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/copy_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include <cstring>

#include "reduce_kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

// Below this the C library copies by vector instructions (glibc's least threshold for `rep movsb` is some
// bytes above it), and is quicker to start.
constexpr std::size_t kLeastCopy = 2048;

class ByteCodec {
 public:
  using D = hn::ScalableTag<std::uint8_t>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES;
  static HWY_INLINE Vec load(const std::uint8_t* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE Vec finish(Vec v) { return v; }
  static HWY_INLINE void store(Vec v, std::uint8_t* to) { hn::StoreU(v, D(), to); }
};

// A step first and one last, which may overlap others; between them every store is within a cache line.
void copy_entry(void* out, const void* in, std::size_t bytes) {
  if (bytes < kLeastCopy) {
    std::memcpy(out, in, bytes);
    return;
  }
  using Step = Pack<ByteCodec, 4>;
  constexpr ByteCodec codec;
  auto* const to = static_cast<std::uint8_t*>(out);
  const auto* const from = static_cast<const std::uint8_t*>(in);
  const std::size_t last = bytes - Step::kBytes;
  Step::load(codec, from).store(codec, to);
  for (std::size_t at = Step::kBytes - reinterpret_cast<std::uintptr_t>(to) % Step::kBytes; at < last;
       at += Step::kBytes) {
    Step::load(codec, from + at).store(codec, to + at);
  }
  Step::load(codec, from + last).store(codec, to + last);
}

}  // namespace

void add_copy_kernel(Kernels& kernels) {
  kernels.copy = copy_entry;
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
