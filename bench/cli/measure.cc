// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/measure.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

using Clock = std::chrono::steady_clock;

// A rank explains at most this many measurements with wrong elements; the table counts them all.
constexpr int kMaxExplained = 3;
constexpr std::size_t kPageBytes = 4096;

double elapsed_ns(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// An operator for one type, if it is one that has to be made.
class Operator {
 public:
  Operator(Communicator& comm, const TypeInfo& type, const OpInfo& op) : comm_(comm) {
    if (op.kind != OpKind::kMulSum) {
      value_ = static_cast<rcnRedOp_t>(op.kind);
      return;
    }
    Scalar scalar = premul_scalar(type.value, comm.rank());
    check_call(
        rcnRedOpCreatePreMulSum(&value_, scalar.bytes, type.value, rcnScalarHostImmediate, comm.get()),
        "rcnRedOpCreatePreMulSum", comm.get());
    made_ = true;
  }
  ~Operator() {
    if (made_) rcnRedOpDestroy(value_, comm_.get());
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  rcnRedOp_t get() const { return value_; }

 private:
  Communicator& comm_;
  rcnRedOp_t value_ = rcnSum;
  bool made_ = false;
};

std::string grown_paths(const std::map<std::string, std::uint64_t>& before,
                        const std::map<std::string, std::uint64_t>& after) {
  std::vector<std::string> names;
  for (const auto& [name, calls] : after) {
    const auto old = before.find(name);
    if (calls > (old == before.end() ? 0 : old->second)) names.push_back(name);
  }
  return names.empty() ? "none" : join(names, "+");
}

}  // namespace

double clock_cost_ns() {
  constexpr int kReadings = 1000;
  const Clock::time_point start = Clock::now();
  Clock::time_point last = start;
  for (int i = 0; i < kReadings; ++i) last = Clock::now();
  return elapsed_ns(start, last) / kReadings;
}

void Meter::Free::operator()(void* memory) const {
  std::free(memory);
}

Meter::Buffer Meter::allocate(std::uint64_t bytes) {
  const std::size_t size = (static_cast<std::size_t>(bytes) / kPageBytes + 1) * kPageBytes;
  Buffer buffer(static_cast<unsigned char*>(std::aligned_alloc(kPageBytes, size)));
  if (buffer == nullptr) {
    throw RunError(text("cannot allocate a buffer of %s (--maxbytes)", size_name(bytes).c_str()));
  }
  std::memset(buffer.get(), 0, size);
  return buffer;
}

Meter::Meter(Communicator& comm, const PerfOptions& options)
    : comm_(comm),
      options_(options),
      collective_(*options.collective),
      send_(allocate(options.max_bytes)),
      recv_(allocate(options.max_bytes)) {}

Row Meter::measure(const TypeInfo& type, const OpInfo& op, std::uint64_t bytes) {
  Row row;
  const std::size_t blocks = collective_.blocks(comm_.ranks());
  row.count = bytes / type.size / blocks;
  row.bytes = row.count * type.size * blocks;
  row.has_in_place = collective_.has_in_place;
  if (collective_.has_root) row.root = options_.root;
  row.type = &type;
  row.op = &op;
  const Operator native(comm_, type, op);
  row.out_of_place = measure_half(type, op, native.get(), row.count, false);
  if (row.has_in_place) row.in_place = measure_half(type, op, native.get(), row.count, true);
  return row;
}

CallArguments Meter::buffers(const Pattern& pattern, bool in_place) const {
  const std::size_t count =
      collective_.sends_blocks ? pattern.count / static_cast<std::size_t>(comm_.ranks()) : pattern.count;
  const std::size_t own = count * element_size(pattern.type) * static_cast<std::size_t>(comm_.rank());
  unsigned char* send = in_place ? recv_.get() : send_.get();
  unsigned char* recv = recv_.get();
  if (in_place && collective_.receives_blocks) send += own;
  if (in_place && collective_.sends_blocks) recv += own;
  return {send, recv, count, pattern.type, rcnSum, options_.root};
}

// Whether every element that the call had to write is right.
Mismatch Meter::check(const Pattern& pattern, const void* result) const {
  const auto rank = static_cast<std::size_t>(comm_.rank());
  const std::size_t block =
      pattern.count / (collective_.sends_blocks ? static_cast<std::size_t>(comm_.ranks()) : 1);
  switch (collective_.value) {
    case rcnCollBroadcast:
      return check_copy(pattern, options_.root, 0, pattern.count, result);
    case rcnCollReduce:
      return comm_.rank() == options_.root ? check_result(pattern, 0, pattern.count, result) : Mismatch{};
    case rcnCollReduceScatter:
      return check_result(pattern, rank * block, block, result);
    case rcnCollAllGather:
    case rcnCollAlltoAll:
      break;
    default:
      return check_result(pattern, 0, pattern.count, result);
  }
  Mismatch all;
  const auto* bytes = static_cast<const unsigned char*>(result);
  for (int from = 0; from < comm_.ranks(); ++from) {
    const std::size_t first = collective_.sends_blocks ? rank * block : 0;
    Mismatch one = check_copy(pattern, from, first, block, bytes);
    one.index += static_cast<std::size_t>(from) * block - first;
    const std::uint64_t wrong = all.wrong + one.wrong;
    if (all.wrong == 0) all = one;
    all.wrong = wrong;
    bytes += block * element_size(pattern.type);
  }
  return all;
}

std::uint64_t Meter::call(Pattern& pattern, rcnRedOp_t native, bool in_place, bool fill) {
  CallArguments arguments = buffers(pattern, in_place);
  arguments.op = native;
  pattern.call = ++calls_;
  if (fill) fill_input(pattern, comm_.rank(), const_cast<void*>(arguments.send));
  const Clock::time_point start = Clock::now();
  const rcnResult_t result = call_collective(collective_.value, arguments, comm_.get());
  const Clock::time_point end = Clock::now();
  if (result != rcnSuccess) {
    throw RunError(text("%s of %zu elements failed: %s", collective_.name, arguments.count,
                        library_error(result, comm_.get()).c_str()));
  }
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count());
}

Measurement Meter::measure_half(const TypeInfo& type, const OpInfo& op, rcnRedOp_t native,
                                std::size_t count, bool in_place) {
  const std::size_t blocks = collective_.blocks(comm_.ranks());
  Pattern pattern{type.value, op.kind, comm_.ranks(), collective_.sends_blocks ? count * blocks : count, 0};
  const std::size_t bytes = count * type.size * blocks;  // of the larger buffer
  const auto before = comm_.calls_by_path(collective_.value);

  for (std::uint64_t i = 0; i < options_.warmup_iters; ++i) {
    call(pattern, native, in_place, options_.fresh || i == 0);
  }
  histogram_.clear();
  for (std::uint64_t i = 0; i < options_.iters; ++i) {
    // Without warm-up the first timed call is the one that needs an input.
    const bool fill = options_.fresh || (i == 0 && options_.warmup_iters == 0);
    histogram_.record(call(pattern, native, in_place, fill));
  }
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < options_.checks; ++i) {
    // What the call fails to write must not pass for its result.
    if (!in_place) std::memset(recv_.get(), 0xa5, bytes);
    call(pattern, native, in_place, true);
    const Mismatch mismatch = check(pattern, buffers(pattern, in_place).recv);
    if (mismatch.wrong != 0) report_mismatch(pattern, type, op, in_place, mismatch);
    wrong += mismatch.wrong;
  }

  Measurement measured;
  measured.algorithm = grown_paths(before, comm_.calls_by_path(collective_.value));
  std::uint64_t slowest[] = {histogram_.min(), histogram_.percentile(50), histogram_.percentile(90),
                             histogram_.percentile(99), histogram_.max()};
  comm_.all_max(slowest, std::size(slowest));
  comm_.all_sum(&wrong, 1);

  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000.0; };
  measured.iterations = options_.iters;
  measured.min_us = us(slowest[0]);
  measured.p50_us = us(slowest[1]);
  measured.p90_us = us(slowest[2]);
  measured.p99_us = us(slowest[3]);
  measured.max_us = us(slowest[4]);
  // Bytes per nanosecond are 10^9 bytes per second.
  if (slowest[1] != 0) {
    measured.algbw_gbps = static_cast<double>(bytes) / static_cast<double>(slowest[1]);
  }
  measured.busbw_gbps = measured.algbw_gbps * collective_.bus_factor(comm_.ranks());
  if (options_.checks != 0) measured.wrong = wrong;
  return measured;
}

void Meter::report_mismatch(const Pattern& pattern, const TypeInfo& type, const OpInfo& op, bool in_place,
                            const Mismatch& mismatch) {
  if (reported_++ >= kMaxExplained) return;
  const int digits = static_cast<int>(2 * type.size);
  std::fprintf(stderr,
               "rocenante: rank %d: %s %s %s of %zu elements: %llu wrong, first at index %zu: "
               "expected 0x%0*llx, found 0x%0*llx\n",
               comm_.rank(), in_place ? "in-place" : "out-of-place", type.name, op.name, pattern.count,
               static_cast<unsigned long long>(mismatch.wrong), mismatch.index, digits,
               static_cast<unsigned long long>(mismatch.expected), digits,
               static_cast<unsigned long long>(mismatch.found));
}

}  // namespace rocenante::bench
