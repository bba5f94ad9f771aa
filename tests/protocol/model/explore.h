// SPDX-License-Identifier: Apache-2.0
//
// A scenario's agents, put together and explored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/protocol/model/agents.h"
#include "tests/protocol/model/device.h"

namespace rocenante::model {

template <protocol::Mutation kMutant>
void add_ranks(Machine& machine, World& world, std::uint32_t progress) {
  const Scenario& scenario = world.scenario();
  for (std::uint32_t rank = 0; rank < scenario.ranks; ++rank) {
    for (std::uint32_t part = 0; part < world.parts_of(rank); ++part) {
      for (std::uint32_t thread = 0; thread < world.threads_of(rank, part); ++thread) {
        const std::string name =
            "rank" + std::to_string(rank) + "." + std::to_string(part) + "." + std::to_string(thread);
        std::unique_ptr<Program> program;
        if (scenario.device && rank == 0) {
          program = std::make_unique<DeviceThread<kMutant>>(world, part, thread, progress);
        } else {
          program =
              std::make_unique<RankThread<kMutant>>(world, rank, part, thread, rank == 0 ? progress : 0);
        }
        machine.add_agent(name, std::move(program), false);
      }
    }
  }
}

template <protocol::Mutation kMutant>
void add_others(Machine& machine, World& world) {
  const Scenario& scenario = world.scenario();
  if (scenario.doorbell)
    machine.add_agent("progress0", std::make_unique<Progress<kMutant>>(world, 0), true);
  if (scenario.device) add_host<kMutant>(machine, world);
  for (std::uint32_t from = 0; from < scenario.ranks; ++from) {
    for (std::uint32_t to = 0; to < scenario.ranks; ++to) {
      if (from == to || world.mapped(from, to)) continue;
      for (std::uint32_t rail = 0; rail < scenario.rails; ++rail) {
        machine.add_agent("nic" + std::to_string(from) + "to" + std::to_string(to),
                          std::make_unique<Nic<kMutant>>(world, from, to, rail), true);
      }
    }
    if (scenario.aborts) {
      machine.add_agent("abort" + std::to_string(from), std::make_unique<Aborter<kMutant>>(world, from),
                        false);
    }
  }
}

template <protocol::Mutation kMutant>
Result explore(const Scenario& scenario, std::uint64_t most_states) {
  World world(scenario);
  Machine machine(world.memory());
  const std::uint32_t rank_agents = world.agents_of(0) + scenario.ranks - 1;
  add_ranks<kMutant>(machine, world, scenario.doorbell ? rank_agents : 0);
  add_others<kMutant>(machine, world);
  return machine.explore([&] { return world.judge(); }, most_states);
}

}  // namespace rocenante::model
