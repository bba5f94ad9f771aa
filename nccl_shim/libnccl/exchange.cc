// SPDX-License-Identifier: Apache-2.0
//
// Every exchange is an all-reduce over the parent of bytes that are zero but for one's own: all ranks take
// part by definition, and the parent's connections need no second way to gather. Only offers of ids go over
// them, which are no secrets.
#include "nccl_shim/libnccl/exchange.h"

#include <algorithm>
#include <cstring>

#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/abi.h"

namespace rocenante::nccl {
namespace {

struct Choice {
  std::int32_t color;
  std::int32_t key;
};

// One communicator's exchange.
struct Table {
  Participant who;
  std::vector<unsigned char> mine;
  std::vector<unsigned char> gathered;
};

template <class T>
void bring(Table& table, const T& value) {
  table.mine.assign(sizeof(T) * static_cast<std::size_t>(table.who.ranks), 0);
  table.gathered.assign(table.mine.size(), 0);
  std::memcpy(table.mine.data() + sizeof(T) * static_cast<std::size_t>(table.who.rank), &value,
              sizeof value);
}

template <class T>
T value_at(const Table& table, int rank) {
  T value;
  std::memcpy(&value, table.gathered.data() + sizeof value * static_cast<std::size_t>(rank), sizeof value);
  return value;
}

// Every rank learns what the others have brought. By a group, in which the calling thread may be anybody's.
Status gather(Table& table) {
  {
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(table.who.core));
    if (use->on_streams()) {
      return make_error(Code::kInvalidUsage,
                        "communicators on a device with streams are neither split nor grown yet");
    }
  }
  CallGroup together;
  together.start();
  together.add(table.who.core, CollectiveCall{table.mine.data(), table.gathered.data(), table.mine.size(),
                                              reduce::DataType::kUint8, rcnSum});
  return together.end();
}

Result<net::SecretKey> key_of(void* core) {
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(core));
  return use->key();
}

struct Part {
  std::vector<int> members;  // ranks of the parent, in the order of their new ranks
  int new_rank = 0;
};

// Who is in the new communicator of this rank, by key and then by old rank.
Part choose_members(const Table& choices, int color) {
  Part part;
  if (color == kSplitNoColor) return part;
  for (int rank = 0; rank < choices.who.ranks; ++rank) {
    if (value_at<Choice>(choices, rank).color == color) part.members.push_back(rank);
  }
  std::stable_sort(part.members.begin(), part.members.end(), [&](int a, int b) {
    return value_at<Choice>(choices, a).key < value_at<Choice>(choices, b).key;
  });
  const auto self = std::find(part.members.begin(), part.members.end(), choices.who.rank);
  part.new_rank = static_cast<int>(self - part.members.begin());
  return part;
}

// The first of a new communicator makes its id; the others bring zeros.
Result<ChildOffer> make_offer(const Participant& who, const Part& part) {
  if (part.members.empty() || part.new_rank != 0) return ChildOffer{};
  RCN_ASSIGN(const net::SecretKey key, key_of(who.core));
  RCN_ASSIGN(const UniqueId id, create_child_id(*who.config, key));
  return offer_of(id);
}

struct GrowBytes {
  ChildOffer offer;
  std::uint32_t has_offer;
  std::int32_t new_ranks;
};

Result<std::optional<UniqueId>> one_offer(const Table& table) {
  std::optional<ChildOffer> found;
  int from = 0;
  const int new_ranks = value_at<GrowBytes>(table, 0).new_ranks;
  for (int rank = 0; rank < table.who.ranks; ++rank) {
    const auto bytes = value_at<GrowBytes>(table, rank);
    if (bytes.new_ranks != new_ranks) {
      return make_error(Code::kInvalidUsage, "nRanks differs: rank 0 has {}, rank {} has {}", new_ranks,
                        rank, bytes.new_ranks);
    }
    if (bytes.has_offer == 0) continue;
    if (found) return make_error(Code::kInvalidUsage, "ranks {} and {} both gave a uniqueId", from, rank);
    found = bytes.offer;
    from = rank;
  }
  if (!found) return std::optional<UniqueId>();
  RCN_ASSIGN(const net::SecretKey key, key_of(table.who.core));
  return std::optional<UniqueId>(accept_offer(*found, key));
}

}  // namespace

Result<SplitResult> exchange_split(const SplitAsk& ask) {
  Table choices{ask.who, {}, {}};
  bring(choices, Choice{ask.color, ask.key});
  RCN_TRY(gather(choices));
  const Part part = choose_members(choices, ask.color);
  // Who has no id to offer tells the others so by an empty one, rather than leave them in the exchange.
  const Result<ChildOffer> offer = make_offer(ask.who, part);
  Table offers{ask.who, {}, {}};
  bring(offers, offer.ok() ? offer.value() : ChildOffer{});
  RCN_TRY(gather(offers));
  RCN_TRY(offer.status());
  if (part.members.empty()) return SplitResult{};
  RCN_ASSIGN(const net::SecretKey key, key_of(ask.who.core));
  return SplitResult{accept_offer(value_at<ChildOffer>(offers, part.members.front()), key), part.new_rank,
                     static_cast<int>(part.members.size())};
}

Result<std::optional<UniqueId>> exchange_grow(const GrowAsk& ask) {
  GrowBytes bytes{{}, ask.id ? 1U : 0U, ask.new_ranks};
  if (ask.id) {
    RCN_ASSIGN(bytes.offer, offer_of(*ask.id));
  }
  Table table{ask.who, {}, {}};
  bring(table, bytes);
  RCN_TRY(gather(table));
  return one_offer(table);
}

}  // namespace rocenante::nccl
