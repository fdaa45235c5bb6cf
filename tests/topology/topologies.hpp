// For tests: topologies made by hand, and recorded ones.
#pragma once

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "topology/read/reading.hpp"
#include "topology/topology.hpp"
#include "topology/understanding.hpp"

namespace shardscope::test {

/// So many GPUs, each pair joined by `path`; not understood yet.
inline topology::Topology joined(int gpus, std::string_view path) {
  topology::Topology topology;
  topology.source = topology::SourceKind::kNvidiaSmiTopo;
  topology.gpu_count = gpus;
  topology.links.emplace(static_cast<size_t>(gpus));
  for (int i = 0; i < gpus; ++i) {
    topology.gpus.push_back({.index = i});
    for (int j = 0; j < gpus; ++j) {
      (*topology.links)[static_cast<size_t>(i)].push_back(topology::path_of(i == j ? "X" : path));
    }
  }
  return topology;
}

/// Both directions of a pair; "" is unknown.
inline void join(topology::Topology& topology, int a, int b, std::string_view path) {
  topology::PathMatrix& links = *topology.links;
  links[static_cast<size_t>(a)][static_cast<size_t>(b)] = topology::path_of(path);
  links[static_cast<size_t>(b)][static_cast<size_t>(a)] = topology::path_of(path);
}

inline topology::Topology understood(topology::Topology topology) {
  topology::understand(topology);
  return topology;
}

inline const std::string kRecorded = SHARDSCOPE_TEST_DATA "/topologies/";

inline std::string recorded_text(const std::string& name) {
  std::ifstream file(kRecorded + name, std::ios::binary);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline topology::Topology recorded(const std::string& name) {
  const std::string text = recorded_text(name);
  return topology::read_topology({.text = text, .file = name});
}

/// Visits every recorded machine that its reader takes; those that are refused are its reader's test's matter.
template <class Visit>
void for_recorded(const Visit& visit) {
  constexpr int kLeast = 55;
  int visited = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRecorded)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), kRecorded).string();
    INFO(name);
    std::optional<topology::Topology> machine;
    try {
      machine = recorded(name);
    } catch (const UserError&) {
      continue;
    }
    ++visited;
    visit(*machine);
  }
  CHECK(visited >= kLeast);
}

/// What a reader makes of a text that is its own.
inline topology::Topology taken(std::optional<topology::Topology> (*reader)(const topology::SourceText&),
                                const std::string& text, const std::string& file = "given.txt") {
  const std::optional<topology::Topology> topology = reader({.text = text, .file = file});
  REQUIRE(topology);
  return *topology;
}

inline std::string narrowest(const std::optional<topology::Path>& path) {
  return path ? text_of(*path) : "unknown";
}

/// Whether one of the warnings holds all of the words.
inline bool warned(const topology::Topology& topology, std::initializer_list<std::string_view> words) {
  for (const std::string& warning : topology.warnings) {
    bool all = true;
    for (const std::string_view word : words) all = all && warning.find(word) != std::string::npos;
    if (all) return true;
  }
  return false;
}

}  // namespace shardscope::test
