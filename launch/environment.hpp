// What a report says about where it was made. Reading (this process, its host, the other ranks) and putting together
// are two steps, so that a test can put together what it likes.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "launch/build_facts.hpp"
#include "launch/engine.hpp"
#include "launch/session.hpp"
#include "runtime/report/environment.hpp"
#include "topology/system.hpp"

namespace shardscope::launch {

/// All that an Environment is made of.
struct EnvironmentProbes {
  std::chrono::system_clock::time_point now;
  topology::SystemFacts system;
  Place place;
  std::string host;
  std::string launcher;
  std::string mpi;  // empty: started without
  std::string backend;
  std::vector<runtime::DeviceEntry> devices;
  std::map<std::string, std::string> versions;  // of the libraries that devices need
  runtime::BuildFacts build;
  std::vector<runtime::RankPlace> ranks;
  std::vector<std::string> variables;  // all of the process, "NAME=value"
};

runtime::Environment environment_of(const EnvironmentProbes& probes);

/// Those variables that change how a run behaves, by a fixed list of names and prefixes: never one that may hold a
/// secret, nor what mpirun sets anew for each job. Of a name that stands twice the first counts, as in getenv.
std::map<std::string, std::string> reported_variables(const std::vector<std::string>& variables);

/// "2025-01-31T23:59:07Z".
std::string utc_text(std::chrono::system_clock::time_point time);

/// Collective: gathers every rank's host and masks. Meaningful on rank 0.
runtime::Environment capture_environment(Session& session, const Place& place, const Engine& engine);

}  // namespace shardscope::launch
