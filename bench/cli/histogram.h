// SPDX-License-Identifier: Apache-2.0
//
// A histogram of durations that takes any number of samples in a fixed 58 KiB. Buckets are as wide as 1/128
// of the power of two below them, so that a reported value is within 0.4 % of the true one; values below
// 256, and the extremes, are exact.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace rocenante::bench {

class Histogram {
 public:
  void record(std::uint64_t value) {
    ++buckets_[index_of(value)];
    ++count_;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }

  void merge(const Histogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
  }

  void clear() { *this = Histogram(); }

  std::uint64_t count() const { return count_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  std::uint64_t max() const { return max_; }

  // The smallest recorded value that at least `percent` of all samples do not exceed; 0 without samples.
  std::uint64_t percentile(double percent) const {
    if (count_ == 0) return 0;
    const double wanted = std::ceil(percent / 100.0 * static_cast<double>(count_));
    const std::uint64_t rank = wanted < 1.0 ? 1 : std::min(count_, static_cast<std::uint64_t>(wanted));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= rank) return std::clamp(middle_of(i), min_, max_);
    }
    return max_;
  }

 private:
  static constexpr unsigned kSubBits = 7;
  static constexpr std::size_t kSub = std::size_t{1} << kSubBits;
  static constexpr std::size_t kBuckets = (64 - kSubBits - 1) * kSub + 2 * kSub;

  static std::size_t index_of(std::uint64_t value) {
    const unsigned width = static_cast<unsigned>(std::bit_width(value));
    const unsigned exponent = width > kSubBits + 1 ? width - kSubBits - 1 : 0;
    return exponent * kSub + static_cast<std::size_t>(value >> exponent);
  }

  static std::uint64_t middle_of(std::size_t index) {
    if (index < 2 * kSub) return index;
    const unsigned exponent = static_cast<unsigned>(index / kSub - 1);
    const std::uint64_t lowest = static_cast<std::uint64_t>(index % kSub + kSub) << exponent;
    return lowest + ((std::uint64_t{1} << exponent) - 1) / 2;
  }

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t min_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ = 0;
};

}  // namespace rocenante::bench
