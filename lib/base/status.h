// SPDX-License-Identifier: Apache-2.0
//
// The one error type. Functions that can fail return Status or Result<T>; exceptions do not cross a
// function of ours except std::bad_alloc and the like, which the C boundary catches.
#pragma once

#include <fmt/core.h>

#include <cassert>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rocenante {

// Numbers of the public API (rcnResult_t).
enum class Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
};

// Name of a code, as in "InvalidArgument".
std::string_view code_name(Code code);

// One pointer, null for success, so that the calls that succeed pay next to nothing for it.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text);
  Status(const Status& other);
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status(Status&&) = default;
  Status& operator=(Status&&) = default;
  ~Status() = default;

  static Status success() { return {}; }
  bool ok() const { return error_ == nullptr; }
  Code code() const { return ok() ? Code::kSuccess : error_->code; }
  // Empty for success.
  const std::string& text() const;

 private:
  struct Error {
    Code code;
    std::string text;
  };
  // Not inline, as little of what only errors do should be: where calls succeed, code that does not run
  // still costs when it lies between what does.
  struct Drop {
    void operator()(const Error* error) const;
  };
  std::unique_ptr<const Error, Drop> error_;
};

template <class... Args>
[[gnu::cold]] Status make_error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}

// "TEXT: strerror (errno N)" with the errno given.
[[gnu::cold]] Status system_error(int error, std::string_view what);

template <class... Args>
[[gnu::cold]] Status errno_error(fmt::format_string<Args...> format, Args&&... args) {
  const int error = errno;
  return system_error(error, fmt::format(format, std::forward<Args>(args)...));
}

// Either a value or an error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() {
    assert(ok());
    return *value_;
  }
  const T& value() const {
    assert(ok());
    return *value_;
  }
  T take() {
    assert(ok());
    return std::move(*value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

// What `function`, which returns Status, returns; what it throws, as a Status.
template <class Function>
Status caught(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Status(Code::kSystemError, "out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kInternalError, error.what());
  } catch (...) {
    return Status(Code::kInternalError, "unknown exception");
  }
}

}  // namespace rocenante

// Returns the error of EXPRESSION (a Status) from the enclosing function.
#define RCN_TRY(expression)                                                             \
  do {                                                                                  \
    if (::rocenante::Status rcn_status_ = (expression); !rcn_status_.ok()) [[unlikely]] \
      return rcn_status_;                                                               \
  } while (false)

#define RCN_CONCAT_INNER(a, b) a##b
#define RCN_CONCAT(a, b) RCN_CONCAT_INNER(a, b)

// Assigns the value of EXPRESSION (a Result) to TARGET or returns its error.
#define RCN_ASSIGN(target, expression) \
  RCN_ASSIGN_NAMED(RCN_CONCAT(rcn_result_, __LINE__), target, expression)
#define RCN_ASSIGN_NAMED(name, target, expression) \
  auto name = (expression);                        \
  if (!name.ok()) [[unlikely]]                     \
    return name.status();                          \
  target = name.take()
