// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/histogram.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/support/catch.h"

using rocenante::bench::Histogram;

namespace {

double relative_error(std::uint64_t reported, std::uint64_t exact) {
  const auto a = static_cast<double>(reported);
  const auto b = static_cast<double>(exact);
  return b == 0 ? a : std::abs(a - b) / b;
}

}  // namespace

TEST_CASE("an empty histogram reports zeros") {
  const Histogram histogram;
  CHECK(histogram.count() == 0);
  CHECK(histogram.min() == 0);
  CHECK(histogram.max() == 0);
  CHECK(histogram.percentile(50) == 0);
}

TEST_CASE("a single value is reported within the error bound, whatever its magnitude") {
  std::vector<std::uint64_t> values = {0, 1, 127, 128, 255, 256, 257, 511, 512, 513, ~std::uint64_t{0}};
  for (unsigned shift = 1; shift < 64; ++shift) {
    const std::uint64_t power = std::uint64_t{1} << shift;
    values.insert(values.end(), {power - 1, power, power + 1, power + power / 3});
  }
  for (const std::uint64_t value : values) {
    // Two neighbours, so that the exact extremes do not hide the bucket's error.
    Histogram histogram;
    histogram.record(0);
    histogram.record(value);
    histogram.record(~std::uint64_t{0});
    INFO("value " << value);
    CHECK(relative_error(histogram.percentile(50), value) <= 0.004);
  }
}

TEST_CASE("percentiles of a wide distribution are within the error bound") {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> samples(100001);
  Histogram histogram;
  for (std::uint64_t& sample : samples) {
    sample = random() >> (random() % 60);
    histogram.record(sample);
  }
  std::sort(samples.begin(), samples.end());
  CHECK(histogram.count() == samples.size());
  CHECK(histogram.min() == samples.front());
  CHECK(histogram.max() == samples.back());
  for (const double percent : {0.0, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const double wanted = std::max(1.0, std::ceil(percent / 100.0 * static_cast<double>(samples.size())));
    const std::uint64_t exact = samples[static_cast<std::size_t>(wanted) - 1];
    INFO("percentile " << percent);
    CHECK(relative_error(histogram.percentile(percent), exact) < 0.01);
  }
}

TEST_CASE("percentiles count samples, not buckets") {
  Histogram histogram;
  for (int i = 0; i < 99; ++i) histogram.record(10);
  histogram.record(200);
  CHECK(histogram.percentile(50) == 10);
  CHECK(histogram.percentile(99) == 10);
  CHECK(histogram.percentile(99.5) == 200);
  CHECK(histogram.percentile(100) == 200);
}

TEST_CASE("merging is recording into one") {
  std::mt19937_64 random(2);
  Histogram one;
  Histogram two;
  Histogram all;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t sample = random() >> (random() % 50);
    (i % 3 == 0 ? one : two).record(sample);
    all.record(sample);
  }
  one.merge(two);
  CHECK(one.count() == all.count());
  CHECK(one.min() == all.min());
  CHECK(one.max() == all.max());
  for (double percent = 0; percent <= 100; percent += 0.5) {
    CHECK(one.percentile(percent) == all.percentile(percent));
  }
  two.clear();
  one.merge(two);
  CHECK(one.min() == all.min());
  CHECK(one.count() == all.count());
}

TEST_CASE("a hundred million samples need no more memory than none") {
  // All state is inside the object, whose size is a constant.
  static_assert(std::is_trivially_copyable_v<Histogram>);
  static_assert(sizeof(Histogram) < 64 * 1024);
  auto histogram = std::make_unique<Histogram>();
  std::uint64_t state = 1;
  constexpr std::uint64_t kSamples = 100'000'000;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    histogram->record(1000 + (state >> 44));  // 1000 .. 1049575
  }
  CHECK(histogram->count() == kSamples);
  CHECK(relative_error(histogram->percentile(50), 1000 + (1u << 19)) < 0.01);
}
