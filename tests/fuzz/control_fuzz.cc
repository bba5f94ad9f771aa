// SPDX-License-Identifier: Apache-2.0
//
// The control star's framing and messages. What decodes must be the same after encoding it again.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lib/comm/control_messages.h"
#include "lib/net/socket.h"

using namespace rocenante;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::uint32_t kRanks = 20;

void require(bool holds) {
  if (!holds) std::abort();
}

void decode(std::string_view body) {
  if (const auto part = decode_blob(body)) require(encode_blob(*part) == body);
  if (const auto notice = decode_abort(body)) {
    const auto again = decode_abort(encode_abort(*notice));
    require(again && again->from == notice->from && again->word == notice->word &&
            again->text == notice->text);
  }
  if (const auto notice = decode_gone(body)) {
    const auto again = decode_gone(encode_gone(*notice));
    require(again && again->rank == notice->rank && again->how == notice->how);
  }
  if (const auto rank = decode_left(body)) require(encode_left(*rank) == body);
  if (const auto heard = decode_heard(body, kRanks)) {
    require(heard->size() == kRanks);
    require(decode_heard(encode_heard(*heard), kRanks) == heard);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  decode(bytes);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return 0;
  const bool sent = ::write(ends[0], data, size) == static_cast<ssize_t>(size);
  net::FrameReader reader(kLongestNotice);
  if (sent && size != 0 && reader.fill(ends[1], "fuzzer").ok()) {
    for (;;) {
      const auto frame = reader.next("fuzzer");
      if (!frame.ok() || !frame.value()) break;
      require(frame.value()->body.size() <= kLongestNotice);
      decode(frame.value()->body);
    }
  }
  ::close(ends[0]);
  ::close(ends[1]);
  return 0;
}
