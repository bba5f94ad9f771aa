// SPDX-License-Identifier: Apache-2.0
//
// What a program does with a device, for tests that run on a GPU and on the simulated device alike:
// streams, copies in their order, captures and graphs. Errors are exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rocenante::test {

// A graph, ready to run.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;

 protected:
  GpuGraph() = default;
};

// A kernel of this process that waits for a peer may stand in the way of what waits for the whole device.
// So whatever is made here is made before the first call of a test and let go of after the last.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string name() const = 0;  // a value of ROCENANTE_DEVICE
  // How often a test that counts repeats itself: a GPU is quicker than what plays it.
  virtual int runs(int on_gpu) const = 0;
  // Whether calls may have buffers anywhere in the process.
  virtual bool reaches_all_memory() const = 0;
  // The calling thread works with this device from now on.
  virtual void attach() = 0;

  virtual std::shared_ptr<void> make_stream() = 0;
  virtual std::shared_ptr<std::uint8_t> buffer(std::size_t bytes) = 0;   // of the device, zero
  virtual std::shared_ptr<std::uint8_t> staging(std::size_t bytes) = 0;  // of the host, for copies

  // In the order of the stream, between any two of the above.
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  // What comes next on `later` comes after what is on `earlier` now.
  virtual void follow(void* later, void* earlier) = 0;
  virtual void synchronise(void* stream) = 0;

  virtual void begin_capture(void* stream) = 0;
  virtual std::shared_ptr<GpuGraph> end_capture(void* stream) = 0;
  virtual void replay(const std::shared_ptr<GpuGraph>& graph, void* stream) = 0;
};

// The device of this program, or null and why there is none.
Gpu* find_gpu(std::string* why_not);

}  // namespace rocenante::test
