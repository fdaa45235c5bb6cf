#include "launch/rehearsal.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/topology_files.hpp"
#include "runtime/plan/constants.hpp"

namespace shardscope::launch {
namespace {

bool given(const po::variables_map& values, const char* name) {
  return values.count(name) > 0 && !values[name].defaulted();
}

/// The cores of each of the first `tp` ranks.
std::vector<std::vector<int>> cores_of_ranks(const Place& place, int tp) {
  std::vector<std::vector<int>> cores;
  for (int rank = 0; rank < tp; ++rank) {
    cores.push_back(topology::cores_for_rank(place.host, rank, place.ranks, place.threads));
  }
  return cores;
}

}  // namespace

void add_rehearsal_options(po::options_description& options) {
  options.add_options()  //
      ("rehearse", po::value<std::string>()->value_name("LIST"),
       "degrees, up to 8, for which this one rank stands on its one device: the shard of the heaviest rank runs for "
       "real (on a CPU beside the others'), collectives are modelled; instead of --tp")  //
      ("topology", po::value<std::string>()->value_name("NAME-or-FILE"),
       "with --rehearse: a machine whose all-reduce times are taken, of the catalogue (`plan --list`) or from whatever "
       "`topo --file` reads; without it those of this host's class, or none");
}

std::vector<int> rehearsed_degrees(const po::variables_map& values, int ranks) {
  if (!given(values, "rehearse")) {
    if (given(values, "topology")) {
      throw UserError("the all-reduces of another machine are for a rehearsal", "--topology",
                      "add --rehearse 1,2,4,8, or leave it out");
    }
    return {};
  }
  if (given(values, "tp")) {
    throw UserError("both name degrees", "--rehearse, --tp", "leave one of them out: one runs, the other rehearses");
  }
  if (given(values, "placement") && values["placement"].as<std::string>() != "linear") {
    throw UserError("a rehearsal has one device, and no groups to place", "--rehearse, --placement",
                    "leave one of them out");
  }
  if (given(values, "replicas") && values["replicas"].as<bool>()) {
    throw UserError("a rehearsal has one device, and no replicas", "--rehearse, --replicas", "leave one of them out");
  }
  if (given(values, "allreduce") && values["allreduce"].as<std::string>() != "auto") {
    throw UserError("a rehearsal sums nothing", "--rehearse, --allreduce",
                    "leave one of them out: --topology NAME-or-FILE says how long sums take");
  }
  if (given(values, "topology") && given(values, "prompt-file") && values["topology"].as<std::string>() == "-" &&
      values["prompt-file"].as<std::string>() == "-") {
    throw UserError("one standard input for two files", "--topology -, --prompt-file -", "name a file for one of them");
  }
  if (ranks > 1) {
    throw UserError(fmt::format("rehearsal needs one rank, and {} were started", ranks), "--rehearse",
                    "start it alone, or with mpirun -np 1");
  }
  std::vector<int> degrees;
  for (const int64_t degree : parse_list(values["rehearse"].as<std::string>(), "--rehearse", 1, kMostRehearsed)) {
    degrees.push_back(static_cast<int>(degree));
  }
  return degrees;
}

runtime::RehearsalOptions rehearsal_options(const po::variables_map& values, Session& session) {
  runtime::RehearsalOptions options;
  if (!given(values, "topology")) return options;
  const auto name = values["topology"].as<std::string>();
  if (name.empty()) throw UserError("an empty name", "--topology", "name a machine or a file, or leave the option out");
  options.times = topology::CollectiveTimes(topology_named(name, session),
                                            runtime::known_collective_times(runtime::plan_constants()));
  options.topology = name == "-" ? "standard input" : name;
  return options;
}

Place take_place_of_many(const Session& session, std::optional<int64_t> threads, const std::vector<int>& degrees) {
  return take_place(session, threads, {}, degrees.back());
}

void use_for_rehearsal(runtime::SweepOptions& sweep, const Engine& engine, const EngineRequest& request,
                       const Place& place, const std::optional<topology::Topology>& topology) {
  runtime::RehearsalOptions& rehearsal = *sweep.rehearsal;
  if (engine.on_devices()) {
    if (rehearsal.topology.empty() && topology) {
      rehearsal.times =
          topology::CollectiveTimes(*topology, runtime::known_collective_times(runtime::plan_constants()));
      rehearsal.topology = "this host";
    }
    const auto most = static_cast<size_t>(sweep.degrees.back());
    sweep.device_free_bytes.assign(most, engine.free_bytes().front());
    sweep.place_of_group = [cache_bytes = engine.devices.front().facts.l2_bytes](const topology::PlacedGroup& group) {
      return runtime::GroupPlace{.cache_bytes = cache_bytes * static_cast<int64_t>(group.places.size())};
    };
    return;
  }
  sweep.place_of_group = [&place](const topology::PlacedGroup& group) {
    return group_place(place, cores_of_ranks(place, static_cast<int>(group.places.size())));
  };
  rehearsal.backend_at = [&place, activations = request.activations](int rank) {
    return kernels::make_cpu_backend({.threads = place.threads,
                                      .cores = topology::cores_for_rank(place.host, rank, place.ranks, place.threads),
                                      .activations = activations});
  };
}

}  // namespace shardscope::launch
