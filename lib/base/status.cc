// SPDX-License-Identifier: Apache-2.0
#include "lib/base/status.h"

#include <system_error>

namespace rocenante {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "Success";
    case Code::kUnhandledCudaError:
      return "UnhandledCudaError";
    case Code::kSystemError:
      return "SystemError";
    case Code::kInternalError:
      return "InternalError";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kInvalidUsage:
      return "InvalidUsage";
    case Code::kRemoteError:
      return "RemoteError";
    case Code::kInProgress:
      return "InProgress";
    case Code::kTimeout:
      return "Timeout";
  }
  return "unknown code";
}

[[gnu::cold]] void Status::Drop::operator()(const Error* error) const {
  delete error;
}

Status::Status(Code code, std::string text)
    : error_(code == Code::kSuccess ? nullptr : new Error{code, std::move(text)}) {}

Status::Status(const Status& other)
    : error_(other.error_ == nullptr ? nullptr : new Error(*other.error_)) {}

const std::string& Status::text() const {
  // Never destroyed, as all that threads may use while static objects go.
  static const auto* const none = new std::string;
  return ok() ? *none : error_->text;
}

Status system_error(int error, std::string_view what) {
  return make_error(Code::kSystemError, "{}: {} (errno {})", what, std::generic_category().message(error),
                    error);
}

}  // namespace rocenante
