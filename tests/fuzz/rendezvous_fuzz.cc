// SPDX-License-Identifier: Apache-2.0
//
// What ranks and the rendezvous say to each other, and ids. What decodes must be the same after encoding it
// again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "lib/comm/rendezvous_messages.h"
#include "lib/comm/unique_id.h"

using namespace rocenante;  // NOLINT(google-build-using-namespace)

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  if (const auto join = decode_join(body)) {
    const auto again = decode_join(encode_join(*join));
    require(again && again->who() == join->who() && again->agreed_settings == join->agreed_settings);
    (void)first_difference(join->agreed_settings, join->host);
  }
  if (const auto welcome = decode_welcome(body)) {
    const auto again = decode_welcome(encode_welcome(*welcome));
    require(again && again->nonce == welcome->nonce && again->control == welcome->control);
  }
  if (const auto status = decode_status(body)) require(!status->ok());
  const std::string_view front = body.substr(0, size / 2);
  (void)first_difference(front, body.substr(front.size()));
  UniqueId id;
  std::memcpy(id.bytes.data(), data, std::min(size, id.bytes.size()));
  (void)decode_unique_id(id);
  return 0;
}
