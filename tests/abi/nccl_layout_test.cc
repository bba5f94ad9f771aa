// SPDX-License-Identifier: Apache-2.0
//
// NCCL's numbers and layouts as nccl_shim knows them, against a real nccl.h. What is wrong does not
// compile.
#include "nccl_shim/libnccl/abi.h"

#include <nccl.h>

#include <cstddef>

namespace {

using rocenante::nccl::ConfigHead;
namespace shim = rocenante::nccl;

static_assert(sizeof(ncclUniqueId) == sizeof(rcnUniqueId));
static_assert(offsetof(ncclConfig_t, size) == offsetof(ConfigHead, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(ConfigHead, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(ConfigHead, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(ConfigHead, blocking));
static_assert(sizeof(ncclConfig_t) >= sizeof(ConfigHead));
static_assert(sizeof(ncclSimInfo_t) == sizeof(shim::SimInfo));
static_assert(offsetof(ncclSimInfo_t, estimatedTime) == offsetof(shim::SimInfo, estimated_time));
static_assert(NCCL_CONFIG_UNDEF_INT == shim::kUndefinedInt && NCCL_SPLIT_NOCOLOR == shim::kSplitNoColor);

constexpr ncclConfig_t kConfig = NCCL_CONFIG_INITIALIZER;
static_assert(kConfig.magic == shim::kConfigMagic);
constexpr ncclSimInfo_t kSimInfo = NCCL_SIM_INFO_INITIALIZER;
static_assert(kSimInfo.magic == shim::kSimInfoMagic);
#ifdef NCCL_COLLCONFIG_INITIALIZER
static_assert(offsetof(ncclCollConfig_t, ext) == offsetof(shim::CollConfigHead, extensions));
static_assert(NCCL_VERSION_CODE < 23200 ||
              offsetof(ncclCollConfig_t, launchCompletionEvent) == shim::kCollConfigEventOffset);
#endif

template <class A, class B>
constexpr bool same(A a, B b) {
  return sizeof(A) == sizeof(B) && static_cast<int>(a) == static_cast<int>(b);
}
static_assert(same(ncclSuccess, rcnSuccess) && same(ncclUnhandledCudaError, rcnUnhandledCudaError));
static_assert(same(ncclSystemError, rcnSystemError) && same(ncclInternalError, rcnInternalError));
static_assert(same(ncclInvalidArgument, rcnInvalidArgument) && same(ncclInvalidUsage, rcnInvalidUsage));
static_assert(same(ncclRemoteError, rcnRemoteError) && same(ncclInProgress, rcnInProgress));
static_assert(static_cast<int>(ncclNumResults) == (NCCL_VERSION_CODE >= shim::kFirstWithTimeout ? 9 : 8));
static_assert(same(ncclInt8, rcnInt8) && same(ncclUint8, rcnUint8) && same(ncclInt32, rcnInt32));
static_assert(same(ncclUint32, rcnUint32) && same(ncclInt64, rcnInt64) && same(ncclUint64, rcnUint64));
static_assert(same(ncclFloat16, rcnFloat16) && same(ncclFloat32, rcnFloat32) &&
              same(ncclFloat64, rcnFloat64));
static_assert(same(ncclBfloat16, rcnBfloat16) && same(ncclFloat8e4m3, rcnFloat8e4m3));
static_assert(same(ncclFloat8e5m2, rcnFloat8e5m2) && same(ncclNumTypes, rcnNumTypes));
static_assert(same(ncclSum, rcnSum) && same(ncclProd, rcnProd) && same(ncclMax, rcnMax) &&
              same(ncclMin, rcnMin));
static_assert(same(ncclAvg, rcnAvg) && same(ncclNumOps, rcnNumOps) && same(ncclMaxRedOp, rcnMaxRedOp));
static_assert(same(ncclScalarDevice, rcnScalarDevice) &&
              same(ncclScalarHostImmediate, rcnScalarHostImmediate));

}  // namespace

int main() {
  return 0;
}
