// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/reunion.h"

#include <fcntl.h>

#include <algorithm>

#include "lib/comm/control_join.h"
#include "lib/comm/rendezvous.h"
#include "lib/net/wire.h"

namespace rocenante {

Reunion::Reunion(const UniqueId& id, std::uint32_t rank, const Config& config)
    : rank_(rank), init_timeout_ns_(config.nanoseconds(Key::kInitTimeoutS)) {
  const Status status = [&]() -> Status {
    UniqueIdContents contents;
    RCN_ASSIGN(contents, decode_unique_id(id));
    is_local_only_ = contents.is_local_only;
    RCN_ASSIGN(listener_, listen_for_ranks(contents, config));
    return {};
  }();
  why_not_ = status.text();
}

std::string Reunion::address_bytes() const {
  const Result<net::SocketAddress> own =
      listener_ ? net::local_address(listener_.get()) : Result<net::SocketAddress>(net::SocketAddress());
  net::WireWriter out;
  net::append_address(own.ok() ? own.value() : net::SocketAddress(), &out);
  return out.take();
}

bool Reunion::complete(const std::vector<std::string>& gathered, const net::SecretKey& key) {
  key_ = key;
  for (const std::string& bytes : gathered) {
    net::WireReader in(std::string_view(bytes).substr(0, kAddressBytes));
    addresses_.push_back(net::read_address(&in));
    if (bytes.size() < kAddressBytes) return false;
  }
  return true;
}

Result<UniqueId> Reunion::id_without(const std::vector<bool>& left_out) const {
  std::string who(addresses_.size(), '\0');
  std::copy(left_out.begin(), left_out.end(), who.begin());
  const auto first = static_cast<std::uint32_t>(std::find(who.begin(), who.end(), '\0') - who.begin());
  if (who.size() != left_out.size() || rank_ >= who.size() || who[rank_] != '\0') {
    return make_error(Code::kInvalidUsage, "rank {} is not among those that go on", rank_);
  }
  UniqueIdContents contents;
  contents.rendezvous = addresses_[first];
  if (contents.rendezvous.port() == 0) {
    return make_error(Code::kInvalidUsage, "rank {}, the first that goes on, does not listen{}{}", first,
                      first == rank_ ? ": " : "", first == rank_ ? why_not_ : "");
  }
  contents.secret = net::derive_key(key_, {net::bytes_of("rocenante.reunion"), net::bytes_of(who)});
  contents.is_listening = true;
  contents.is_local_only = is_local_only_;
  if (first == rank_) {
    stop_rendezvous(contents.rendezvous);
    net::SocketFd served = net::open_socket([&] { return ::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0); });
    if (!served) return errno_error("copy of the descriptor that rank {} listens on", rank_);
    RCN_TRY(start_rendezvous(std::move(served), contents, init_timeout_ns_));
  }
  return encode_unique_id(contents);
}

}  // namespace rocenante
