// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rocenante::protocol {

// Deliberate faults, each breaking one rule; an Env names its own in `kMutation`. Always kNone outside the
// negative controls.
enum class Mutation : std::uint8_t {
  kNone,
  kOneParity,         // every epoch uses slot 0
  kEquality,          // waits for == instead of >= on one signal line for both parities
  kOneSignalLine,     // one signal line for both parities
  kNoClosingRound,    // a user buffer is given back while peers may read it
  kNoGoodbye,         // memory is freed without waiting for the peers' goodbyes
  kNoRecheck,         // a sleeper does not look again after setting its flag
  kRelaxedSignal,     // the signal is read without acquire
  kSignalFirst,       // the signal is stored before the payload
  kAdvanceOnAbort,    // an aborted round advances the epoch
  kSharedCounter,     // staging and finishing share one arrival counter
  kEarlyPublish,      // the first arriver publishes instead of the last
  kOneStageCounter,   // one counter of stagings for both parities
  kNoFence,           // no fence between a flag and the look at the other side's word
  kOneDoorbell,       // a doorbell ring of one entry
  kDeafDrain,         // an abort does not end the wait for the own puts
  kOneSentTag,        // a carrier that leaves out tags remembers one for both of a peer's slots
  kSameSlot,          // a slice to gather goes into the slot that members read
  kStateAfterSignal,  // whether a peer is gone is looked at after its signals
  kDeafEntry,         // a launch begins whatever the host's abort word says
  kRecordLast,        // what a device saw is stored after its abort word
  kDoorbellAtLeast,   // of a ring of one entry a later epoch is taken for the one that is due
  kNoAdoption,        // no fault: a launch that refuses to begin leaves the host's abort to those that wait
  kEqualityTwoLines   // no fault: with a line for each parity == does as well as >= (docs/protocol.md)
};

}  // namespace rocenante::protocol
