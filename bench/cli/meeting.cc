// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/cli/communicator.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x314e4352;  // "RCN1"
// Between attempts to reach a process that may not have started yet.
constexpr long kPauseNs = 20'000'000;

// What a process says, and what it gets: both ends are this host and, checked, this user.
struct Request {
  std::uint32_t magic;
  std::int32_t index;
  std::int32_t processes;
  std::int32_t ranks_each;
};
struct Reply {
  std::uint32_t magic;
  char refusal[256];  // empty: `id` is the answer
  rcnUniqueId id;
};

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// In the abstract namespace: it ends with its owner and leaves no file. Names there have a limit, jobs not.
sockaddr_un address_of(const std::string& job) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  const std::string name = text("rocenante-job-%u-%016llx", static_cast<unsigned>(geteuid()),
                                static_cast<unsigned long long>(hash));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return address;
}

Socket open_socket() {
  // One message is one datagram, whole or not at all.
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) throw RunError(text("cannot open a Unix socket: %s", std::strerror(errno)));
  return Socket(fd);
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// False at the deadline.
bool wait_readable(int fd, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) > 0) return true;
  }
}

template <class Message>
bool receive(int fd, Message* message, Clock::time_point deadline) {
  return wait_readable(fd, deadline) && recv(fd, message, sizeof *message, 0) == sizeof *message &&
         message->magic == kMagic;
}

template <class Message>
void send_message(int fd, const Message& message) {
  // One that has ended is missed by all, later, with its name.
  (void)send(fd, &message, sizeof message, MSG_NOSIGNAL);
}

// Process 0: hands the id to all others.
class Host {
 public:
  explicit Host(const MeetingPlan& plan)
      : plan_(plan), came_(static_cast<std::size_t>(plan.processes)), listener_(open_socket()) {
    const sockaddr_un address = address_of(plan.job);
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_.get(), SOMAXCONN) != 0) {
      throw RunError(text("cannot meet the other processes of job '%s' at a Unix socket: %s",
                          plan.job.c_str(), std::strerror(errno)));
    }
    came_[0] = true;
  }

  void serve(const rcnUniqueId& id, Clock::time_point deadline) {
    while (missing() != 0) {
      if (!wait_readable(listener_.get(), deadline)) throw RunError(too_late());
      const Socket guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest.get() < 0 || !is_same_user(guest.get())) continue;
      Request request{};
      if (!receive(guest.get(), &request, std::min(deadline, Clock::now() + std::chrono::seconds(5))))
        continue;
      Reply reply{kMagic, {}, id};
      const std::string refusal = judge(request);
      std::memcpy(reply.refusal, refusal.data(), std::min(refusal.size(), sizeof reply.refusal - 1));
      if (!refusal.empty()) std::memset(&reply.id, 0, sizeof reply.id);
      send_message(guest.get(), reply);
      if (!refusal.empty()) throw RunError(refusal);
      came_[static_cast<std::size_t>(request.index)] = true;
    }
  }

 private:
  std::ptrdiff_t missing() const { return std::count(came_.begin(), came_.end(), false); }

  std::string too_late() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < came_.size(); ++i) {
      if (!came_[i]) names.push_back(text("%zu", i));
    }
    return text(
        "of the %d processes of job '%s', these did not come to this host's Unix socket: %s. Where they "
        "are on other hosts, give --rendezvous HOST:PORT",
        plan_.processes, plan_.job.c_str(), join(names, ", ").c_str());
  }

  std::string judge(const Request& request) const {
    if (request.processes != plan_.processes || request.ranks_each != plan_.ranks_each) {
      return text(
          "process %d of the job says there are %d with %d ranks each, process 0 says %d with %d: give "
          "all the same --ranks",
          request.index, request.processes, request.ranks_each, plan_.processes, plan_.ranks_each);
    }
    if (request.index < 1 || request.index >= plan_.processes ||
        came_[static_cast<std::size_t>(request.index)]) {
      return text("two processes of job '%s' have number %d", plan_.job.c_str(), request.index);
    }
    return "";
  }

  const MeetingPlan& plan_;
  std::vector<bool> came_;
  Socket listener_;
};

// Comes to process 0, trying again while it is not there.
rcnUniqueId visit(const MeetingPlan& plan, Clock::time_point deadline) {
  const sockaddr_un address = address_of(plan.job);
  while (Clock::now() < deadline) {
    const Socket host = open_socket();
    if (connect(host.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      if (!is_same_user(host.get())) {
        throw RunError(
            text("the Unix socket of job '%s' belongs to another user: give --rendezvous HOST:PORT",
                 plan.job.c_str()));
      }
      send_message(host.get(), Request{kMagic, plan.index, plan.processes, plan.ranks_each});
      Reply reply{};
      if (receive(host.get(), &reply, deadline)) {
        if (reply.refusal[0] != '\0')
          throw RunError(std::string(reply.refusal, strnlen(reply.refusal, 255)));
        return reply.id;
      }
    }
    const timespec pause{0, kPauseNs};
    nanosleep(&pause, nullptr);
  }
  throw RunError(
      text("process 0 of job '%s' is not on this host, or has not started: where it is on another, "
           "give --rendezvous HOST:PORT",
           plan.job.c_str()));
}

}  // namespace

rcnUniqueId meet(const MeetingPlan& plan) {
  const Clock::time_point deadline = Clock::now() + plan.timeout;
  if (plan.index != 0) return visit(plan, deadline);
  Host host(plan);
  rcnUniqueId id;
  check_call(rcnGetUniqueId(&id), "cannot start the ranks' rendezvous");
  host.serve(id, deadline);
  return id;
}

}  // namespace rocenante::bench
