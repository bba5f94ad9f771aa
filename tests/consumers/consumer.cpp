// SPDX-License-Identifier: Apache-2.0
//
// The same from C++: ranks as threads.
#include <rocenante/rocenante.h>

#include <iostream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

void check(rcnResult_t result) {
  if (result != rcnSuccess) throw std::runtime_error(rcnGetLastError(nullptr));
}

int sum_of(int rank, int ranks, const rcnUniqueId& id) {
  rcnComm_t comm = nullptr;
  check(rcnCommInitRank(&comm, ranks, id, rank));
  int value = rank + 1;
  check(rcnAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr));
  check(rcnCommDestroy(comm));
  return value;
}

}  // namespace

int main() {
  constexpr int kRanks = 3;
  rcnUniqueId id;
  check(rcnGetUniqueId(&id));
  std::vector<int> sums(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back(
        [&sums, &id, rank] { sums[static_cast<std::size_t>(rank)] = sum_of(rank, kRanks, id); });
  }
  for (std::thread& thread : threads) thread.join();
  std::cout << "sums " << sums[0] << ' ' << sums[1] << ' ' << sums[2] << '\n';
  return sums == std::vector<int>{6, 6, 6} ? 0 : 1;
}
