// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

namespace rocenante::net {

namespace detail {

struct Kept {
  virtual ~Kept() = default;
  Kept* next = nullptr;
};
inline std::atomic<Kept*> kept{nullptr};

}  // namespace detail

// Takes over what may be neither used nor destroyed: what a child of fork() inherited in the middle of a
// change by a thread that it does not have. Stays reachable, so that leak checkers do not take it for a
// leak. Any thread; allocates.
template <class T>
void keep_forever(T&& object) {
  struct Holder final : detail::Kept {
    explicit Holder(T&& value) : object(std::forward<T>(value)) {}
    std::decay_t<T> object;
  };
  detail::Kept* const holder = new Holder(std::forward<T>(object));
  holder->next = detail::kept.load(std::memory_order_relaxed);
  // Release: whoever walks the list finds whole nodes. Nobody but leak checkers does.
  while (!detail::kept.compare_exchange_weak(holder->next, holder, std::memory_order_release,
                                             std::memory_order_relaxed)) {
  }
}

}  // namespace rocenante::net
