// SPDX-License-Identifier: Apache-2.0
//
// The stream half of a CUDA device: captures, events, launches. Nothing here synchronises.
#include <algorithm>

#include "lib/device/cuda_call.h"
#include "lib/device/cuda_driver.h"
#include "lib/device/cuda_stream_device.h"
#include "reduce_kernels/cuda/launch.h"

namespace rocenante {
namespace {

cudaStream_t handle_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

class CudaEvent final : public StreamEvent {
 public:
  explicit CudaEvent(std::unique_ptr<EventBlock> block)
      : event_(block->get()), owner_(lend(std::move(block))) {}
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
  std::shared_ptr<void> owner_;
};

cudaEvent_t handle_of(StreamEvent& event) {
  return static_cast<CudaEvent&>(event).get();
}

cudaGraphNode_t handle_of(GraphNode* node) {
  return reinterpret_cast<cudaGraphNode_t>(node);
}
GraphNode* opaque(cudaGraphNode_t node) {
  return reinterpret_cast<GraphNode*>(node);
}

struct CaptureState {
  bool active = false;
  std::uint64_t id = 0;
  cudaGraph_t graph = nullptr;
  // What the stream's next node will depend on; valid until the stream's next call.
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
};

Result<CaptureState> capture_state(void* stream) {
  CaptureState state;
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  const cudaGraphEdgeData* edges =
      nullptr;  // without it the query would fail where a user's edges have data
  RCN_TRY(cuda_status(kStreamGetCaptureInfo(handle_of(stream), &status, &id, &state.graph, &state.nodes,
                                            &edges, &state.count),
                      "cudaStreamGetCaptureInfo of stream {}", stream));
  if (status == cudaStreamCaptureStatusInvalidated) {
    return make_error(Code::kInvalidUsage, "the capture of stream {} has been invalidated", stream);
  }
  state.active = status == cudaStreamCaptureStatusActive;
  state.id = id;
  return state;
}

// What a graph holds, and how it lets go: on a thread of CUDA's, where no call of CUDA is allowed.
struct Kept {
  std::shared_ptr<void> reference;
};
void CUDART_CB let_go(void* kept) {
  const GraphDestructor here;
  delete static_cast<Kept*>(kept);
}

}  // namespace

Status CudaDevice::check_stream(const void* stream) const {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return {};
  RCN_ASSIGN(const DeviceContext own, primary_context(gpu_.ordinal));
  RCN_ASSIGN(const int device, device_of_stream(stream, own));
  if (device == own.device) return {};
  return make_error(Code::kInvalidArgument,
                    "stream {} is one of CUDA device {}: expected one of device {}, the communicator's",
                    stream, device, gpu_.ordinal);
}

Result<StreamCapture> CudaDevice::capture_of(void* stream) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  return StreamCapture{state.active, state.id};
}

Result<std::unique_ptr<StreamEvent>> CudaDevice::make_event() {
  collect_released();
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  auto block = std::make_unique<EventBlock>(gpu_.ordinal);
  RCN_TRY(block->create());
  return std::unique_ptr<StreamEvent>(std::make_unique<CudaEvent>(std::move(block)));
}

// Inside a capture an ordinary wait would join the capture in which the event was recorded; an external one
// is a node that looks at the event when the graph runs.
Status CudaDevice::wait(void* stream, StreamEvent& event) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  const unsigned flags = state.active ? cudaEventWaitExternal : cudaEventWaitDefault;
  return cuda_status(cudaStreamWaitEvent(handle_of(stream), handle_of(event), flags),
                     "cudaStreamWaitEvent on stream {}", stream);
}

Status CudaDevice::record(void* stream, StreamEvent& event) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  return cuda_status(cudaEventRecord(handle_of(event), handle_of(stream)), "cudaEventRecord on stream {}",
                     stream);
}

Result<bool> CudaDevice::has_passed(StreamEvent& event) {
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  const cudaError_t error = cudaEventQuery(handle_of(event));
  if (error != cudaErrorNotReady) {
    RCN_TRY(cuda_status(error, "cudaEventQuery"));
    return true;
  }
  (void)cudaGetLastError();
  return false;
}

Result<GraphNode*> CudaDevice::launch(void* stream, const CallLaunch& call) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_TRY(reduce::launch_all_reduce(call, stream));
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  if (!state.active) return static_cast<GraphNode*>(nullptr);
  // What the stream's next node depends on is what was captured last.
  if (state.count == 1) return opaque(state.nodes[0]);
  return make_error(Code::kInternalError, "stream {} depends on {} nodes after a launch, expected 1",
                    stream, state.count);
}

Status CudaDevice::join(GraphNode* earlier, void* stream) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  cudaGraphNode_t node = handle_of(earlier);
  if (std::find(state.nodes, state.nodes + state.count, node) != state.nodes + state.count) return {};
  return cuda_status(kStreamUpdateCaptureDependencies(handle_of(stream), &node, nullptr, 1,
                                                      cudaStreamAddCaptureDependencies),
                     "cudaStreamUpdateCaptureDependencies of stream {}", stream);
}

Result<GraphNode*> CudaDevice::record_in_graph(void* stream, StreamEvent& event, GraphNode* last,
                                               GraphNode* record) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  cudaGraphNode_t node = handle_of(record);
  const cudaGraphNode_t before = handle_of(last);
  if (record == nullptr) {
    RCN_TRY(cuda_status(cudaGraphAddEventRecordNode(&node, state.graph, &before, 1, handle_of(event)),
                        "cudaGraphAddEventRecordNode in the capture of stream {}", stream));
  } else {
    RCN_TRY(cuda_status(kGraphAddDependencies(state.graph, &before, &node, nullptr, 1),
                        "cudaGraphAddDependencies in the capture of stream {}", stream));
  }
  return opaque(node);
}

Status CudaDevice::keep(void* stream, std::shared_ptr<void> reference) {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(const CaptureState state, capture_state(stream));
  if (!state.active) return make_error(Code::kInternalError, "stream {} is not being captured", stream);
  auto kept = std::make_unique<Kept>(Kept{std::move(reference)});
  cudaUserObject_t object = nullptr;
  RCN_TRY(cuda_status(cudaUserObjectCreate(&object, kept.get(), let_go, 1, cudaUserObjectNoDestructorSync),
                      "cudaUserObjectCreate"));
  (void)kept.release();  // the object's now
  Status moved = cuda_status(cudaGraphRetainUserObject(state.graph, object, 1, cudaGraphUserObjectMove),
                             "cudaGraphRetainUserObject");
  if (!moved.ok()) (void)cudaUserObjectRelease(object, 1);
  return moved;
}

}  // namespace rocenante
