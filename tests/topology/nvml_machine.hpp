// A machine that the stand-in for NVML presents, and what the probe makes of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/nvml/use.hpp"
#include "tests/topology/fake_root.hpp"
#include "topology/probe.hpp"
#include "topology/probe/probe_parts.hpp"

namespace shardscope::test {

using Cells = std::vector<std::vector<std::string>>;

inline emulation::MachineTable table_of(const std::string& name) {
  return emulation::read_table(SHARDSCOPE_TEST_DATA "/emulation/" + name);
}

/// The machine of the stand-in, as long as this lives.
class Machine {
 public:
  explicit Machine(const emulation::MachineTable& table) { shardscope_fake_nvml_use(&table); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { shardscope_fake_nvml_use(nullptr); }
};

inline topology::NvmlAnswers answers_for(const emulation::MachineTable& table) {
  const Machine machine(table);
  constexpr std::chrono::seconds kLimit{60};
  topology::NvmlOutcome outcome = topology::ask_nvml(kLimit);
  INFO(outcome.why_not);
  REQUIRE(outcome.answers);
  return *outcome.answers;
}

/// Without /sys: all is from NVML.
inline topology::Topology probe(const emulation::MachineTable& table) {
  const Machine machine(table);
  const FakeRoot nothing;
  return topology::probe_topology(nothing.path());
}

inline Cells cells_of(const topology::Topology& of) {
  REQUIRE(of.links);
  Cells cells;
  for (const auto& row : *of.links) {
    auto& texts = cells.emplace_back();
    for (const std::optional<topology::Path>& path : row) texts.push_back(path ? topology::text_of(*path) : "?");
  }
  return cells;
}

inline std::string all_warnings(const topology::Topology& of) {
  std::string text;
  for (const std::string& warning : of.warnings) text += warning + "\n";
  return text;
}

}  // namespace shardscope::test
