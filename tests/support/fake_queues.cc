// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "tests/support/fake_verbs_state.h"

namespace rocenante::test {

ibv_comp_channel* make_channel(ibv_context* context) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (fd < 0) return nullptr;
  auto* const channel = new FakeChannel{};
  channel->context = context;
  channel->fd = fd;
  ++world->alive;
  return channel;
}

int destroy_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  return destroy<FakeChannel>(channel);
}

ibv_cq* make_queue(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  const Lock lock(world->mutex);
  if (world->fails()) return nullptr;
  auto* const queue = new FakeQueue{};
  queue->context = context;
  queue->events = static_cast<FakeChannel*>(channel);
  queue->capacity = static_cast<std::size_t>(entries);
  ++world->alive;
  return queue;
}

// The kernel waits for events to be acknowledged, for ever.
int destroy_queue(ibv_cq* queue) {
  {
    const Lock lock(world->mutex);
    if (static_cast<FakeQueue*>(queue)->unacknowledged != 0) ++world->overruns;
  }
  return destroy<FakeQueue>(queue);
}

// The next completion causes an event; those that are there do not. Packets here move when their sender
// looks, so one that has some to move is told to.
int arm_queue(ibv_cq* raw, int) {
  const Lock lock(world->mutex);
  auto& queue = static_cast<FakeQueue&>(*raw);
  if (world->fails()) return world->error;
  if (queue.events == nullptr) return EINVAL;
  queue.is_armed = true;
  ++world->arms;
  for (const auto& [number, pair] : world->pairs) {
    if (pair->completions == &queue && !pair->sends.empty()) world->notify(queue);
  }
  return 0;
}

int take_event(ibv_comp_channel* raw, ibv_cq** queue, void** cookie) {
  auto& channel = static_cast<FakeChannel&>(*raw);
  eventfd_t one = 0;
  if (::eventfd_read(channel.fd, &one) != 0) return -1;
  const Lock lock(world->mutex);
  *queue = channel.events.front();
  *cookie = nullptr;
  channel.events.pop_front();
  ++static_cast<FakeQueue*>(*queue)->unacknowledged;
  return 0;
}

void acknowledge_events(ibv_cq* queue, unsigned int events) {
  const Lock lock(world->mutex);
  static_cast<FakeQueue*>(queue)->unacknowledged -= events;
}

int poll_queue(ibv_cq* raw, int most, ibv_wc* completions) {
  const Lock lock(world->mutex);
  auto& queue = static_cast<FakeQueue&>(*raw);
  if (world->fails()) return -1;
  for (const auto& [number, pair] : world->pairs) {
    if (pair->completions != &queue || world->stalled.contains(pair->facts.gid)) continue;
    while (!pair->sends.empty() && world->random() % 100 >= world->delay_percent) {
      if (!world->move(*pair)) break;
    }
  }
  int count = 0;
  for (; count < most && !queue.entries.empty(); ++count) {
    completions[count] = queue.entries.front();
    queue.entries.pop_front();
  }
  return count;
}

}  // namespace rocenante::test
