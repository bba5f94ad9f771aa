// SPDX-License-Identifier: Apache-2.0
//
// What a CUDA device decides and counts without a GPU.
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/address_map.h"
#include "lib/device/cuda_device.h"
#include "lib/device/deferred_release.h"
#include "lib/device/gpu_facts.h"
#include "lib/device/registry.h"
#include "tests/support/catch.h"

namespace {

using rocenante::AddressMap;
using rocenante::choose_host_access;
using rocenante::choose_receive_memory;
using rocenante::Code;
using rocenante::Deferred;
using rocenante::DeferredRelease;
using rocenante::describe_choice;
using rocenante::GpuFacts;
using rocenante::group_limits_on;
using rocenante::GroupBudget;
using rocenante::GroupLimits;
using rocenante::GroupShare;
using rocenante::HostAccess;

class Noted final : public Deferred {
 public:
  Noted(std::vector<int>& released, int number) : released_(released), number_(number) {}
  ~Noted() override { released_.push_back(number_); }

 private:
  std::vector<int>& released_;
  const int number_;
};

GpuFacts discrete() {
  GpuFacts gpu;
  gpu.name = "a discrete GPU";
  gpu.multiprocessors = 132;
  gpu.can_map_host_memory = true;
  gpu.host_register_supported = true;
  gpu.dma_buf_supported = true;
  gpu.gpu_direct_rdma_supported = true;
  gpu.rdma_writes_ordering = 200;
  return gpu;
}

GpuFacts integrated() {
  GpuFacts gpu;
  gpu.name = "an integrated GPU";
  gpu.major = 12;
  gpu.minor = 1;
  gpu.multiprocessors = 48;
  gpu.integrated = true;
  gpu.can_map_host_memory = true;
  gpu.host_register_supported = true;
  gpu.pageable_memory_access = true;
  gpu.uses_host_page_tables = true;
  return gpu;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Nothing is released while anything is held that a launch may use") {
  DeferredRelease releases;
  std::vector<int> released;
  releases.hold();
  releases.hold();
  releases.give(std::make_unique<Noted>(released, 1));
  releases.let_go();
  releases.collect();
  REQUIRE(released.empty());
  REQUIRE(releases.held() == 1);
  REQUIRE(releases.waiting() == 1);
  releases.give(std::make_unique<Noted>(released, 2));
  releases.let_go();
  REQUIRE(released.empty());  // neither releases anything: that may be where no call is allowed
  releases.collect();
  REQUIRE(released.size() == 2);
  REQUIRE(releases.waiting() == 0);
}

TEST_CASE("What was never held is released at once if nothing is") {
  DeferredRelease releases;
  std::vector<int> released;
  releases.give(std::make_unique<Noted>(released, 1));
  releases.collect();
  REQUIRE(released.size() == 1);
}

TEST_CASE("What is still waiting for its release goes with the list") {
  std::vector<int> released;
  {
    DeferredRelease releases;
    releases.hold();
    releases.give(std::make_unique<Noted>(released, 1));
  }
  REQUIRE(released.size() == 1);
}

TEST_CASE("Threads that hold, give and collect lose nothing") {
  constexpr int kThreads = 4, kEach = 2000;
  DeferredRelease releases;
  std::vector<int> released;  // written under the list's lock alone
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        releases.hold();
        releases.give(std::make_unique<Noted>(released, thread * kEach + i));
        releases.let_go();
        if (i % 3 == 0) releases.collect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  releases.collect();
  REQUIRE(releases.held() == 0);
  REQUIRE(released.size() == kThreads * kEach);
}

TEST_CASE("Addresses of a device are found by host address, and only those in reach") {
  AddressMap map;
  std::vector<unsigned char> host(64), device(64);
  map.add(host.data() + 8, 16, device.data());
  REQUIRE(map.translate(host.data() + 8).value() == device.data());
  REQUIRE(map.translate(host.data() + 23).value() == device.data() + 15);
  for (const std::size_t outside : {std::size_t{7}, std::size_t{24}}) {
    const auto refused = map.translate(host.data() + outside);
    REQUIRE(refused.status().code() == Code::kInvalidArgument);
    REQUIRE(contains(refused.status().text(), "not within the device's reach"));
  }
  map.add(host.data() + 8, 16, device.data());
  map.remove(host.data() + 8);
  REQUIRE(map.translate(host.data() + 8).ok());  // added twice
  map.remove(host.data() + 8);
  REQUIRE(!map.translate(host.data() + 8).ok());
  map.remove(host.data());  // never added
}

TEST_CASE("Regions are in registered host memory where that can be, whatever else the GPU offers") {
  REQUIRE(choose_host_access(discrete()).value() == HostAccess::kRegistered);
  REQUIRE(choose_host_access(integrated()).value() == HostAccess::kRegistered);
  GpuFacts gpu = integrated();
  gpu.host_register_supported = false;
  REQUIRE(choose_host_access(gpu).value() == HostAccess::kPageable);
  gpu.uses_host_page_tables = false;
  const auto refused = choose_host_access(gpu);
  REQUIRE(refused.status().code() == Code::kSystemError);
  REQUIRE(contains(refused.status().text(), "HOST_REGISTER_SUPPORTED 0"));
}

TEST_CASE("Verbs may write to a GPU's own memory where every attribute allows it, and only there") {
  for (const bool is_integrated : {false, true}) {
    for (const bool dma_buf : {false, true}) {
      for (const int ordering : {0, 99, 100, 200}) {
        GpuFacts gpu = discrete();
        gpu.integrated = is_integrated;
        gpu.dma_buf_supported = dma_buf;
        gpu.rdma_writes_ordering = ordering;
        // Says nothing about dma-bufs, and is not looked at.
        gpu.gpu_direct_rdma_supported = ordering == 99;
        const rocenante::Status chosen = choose_receive_memory(gpu);
        INFO(is_integrated << dma_buf << ordering << chosen.text());
        REQUIRE(chosen.ok() == (!is_integrated && dma_buf && ordering >= 100));
        if (is_integrated) {
          REQUIRE(contains(chosen.text(), "integrated GPU's own memory"));
        } else if (!dma_buf) {
          REQUIRE(chosen.text() == "DMA_BUF_SUPPORTED is 0");
        } else if (ordering < 100) {
          REQUIRE(contains(chosen.text(), "WRITES_ORDERING is " + std::to_string(ordering) + ","));
        }
        const std::string line = describe_choice(gpu, HostAccess::kRegistered);
        REQUIRE(contains(line, chosen.ok() ? "may write to the GPU's own" : chosen.text()));
      }
    }
  }
}

TEST_CASE("A device without memory of its own says so") {
  const auto refused = rocenante::host_device().allocate_receive(4096);
  REQUIRE(refused.status().code() == Code::kInvalidUsage);
  REQUIRE(contains(refused.status().text(), "the device host, which has no memory of its own"));
}

TEST_CASE("The line about a GPU says where regions are and what ends its kernels") {
  GpuFacts gpu = discrete();
  REQUIRE(contains(describe_choice(gpu, HostAccess::kRegistered), "regions in registered host memory"));
  REQUIRE(contains(describe_choice(gpu, HostAccess::kPageable), "regions in pageable host memory"));
  REQUIRE(!contains(describe_choice(gpu, HostAccess::kRegistered), "KERNEL_EXEC_TIMEOUT"));
  gpu.kernel_timeout = true;
  REQUIRE(contains(describe_choice(gpu, HostAccess::kPageable), "KERNEL_EXEC_TIMEOUT is 1"));
}

TEST_CASE("A launch has 1, 2, 4 or 8 groups, and all together no more than there are multiprocessors") {
  const auto limits = [](std::uint32_t multiprocessors) {
    GpuFacts gpu = integrated();
    gpu.multiprocessors = multiprocessors;
    const GroupLimits of = group_limits_on(gpu);
    return std::array{of.most, of.roomy, of.resident};
  };
  REQUIRE(limits(132) == std::array{8u, 66u, 132u});
  REQUIRE(limits(48) == std::array{8u, 24u, 48u});
  REQUIRE(limits(20) == std::array{2u, 10u, 20u});
  REQUIRE(limits(2) == std::array{1u, 1u, 2u});
  REQUIRE(limits(1) == std::array{1u, 1u, 1u});
}

TEST_CASE("Communicators share a device's groups; what one gives back another may have") {
  const auto budget = std::make_shared<GroupBudget>(GroupLimits{8, 24, 30});
  std::vector<GroupShare> shares;
  std::vector<std::uint32_t> groups;
  for (auto share = budget->take(); share.ok(); share = budget->take()) {
    shares.push_back(share.take());
    groups.push_back(shares.back().groups());
  }
  REQUIRE(groups == std::vector<std::uint32_t>{8, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1});
  REQUIRE(budget->taken() == 30);
  const std::string refused = budget->take().status().text();
  INFO(refused);
  REQUIRE(contains(refused, "all 30 groups"));
  REQUIRE(contains(refused, "12 communicators"));

  shares.erase(shares.begin());
  REQUIRE(budget->taken() == 22);
  REQUIRE(budget->take().value().groups() == 1);
  shares.erase(shares.begin());
  REQUIRE(budget->taken() == 14);
  GroupShare share = budget->take().take();
  REQUIRE(share.groups() == 4);
  share = GroupShare();  // of none
  REQUIRE(share.groups() == 1);
  shares.clear();
  REQUIRE(budget->taken() == 0);
}

TEST_CASE("A share outlives the device that it is of") {
  auto budget = std::make_shared<GroupBudget>(GroupLimits{2, 4, 4});
  const std::weak_ptr<GroupBudget> watched = budget;
  {
    const GroupShare share = budget->take().take();
    budget.reset();
    REQUIRE(share.groups() == 2);
    REQUIRE(!watched.expired());
  }
  REQUIRE(watched.expired());
}

TEST_CASE("A machine without a GPU says why CUDA cannot be used") {
  const auto available = rocenante::cuda_available();
  if (available.ok()) return;  // tests/gpu has the rest
  REQUIRE(rocenante::cuda_device(rocenante::kCurrentDevice).status().text() == available.text());
  REQUIRE(rocenante::describe_cuda() == available.text());
  const std::string& why = available.text();
  REQUIRE((contains(why, "no NVIDIA driver: ") || contains(why, "this build has no CUDA") ||
           contains(why, "the NVIDIA driver is too old") || contains(why, "offers no CUDA device")));
}
