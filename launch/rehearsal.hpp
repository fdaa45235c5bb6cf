// `scale --rehearse`: its options, and what one rank needs to stand for the ranks of a group. What is then measured:
// runtime/measure/rehearsal.hpp.
#pragma once

#include <optional>
#include <vector>

#include "launch/command_line.hpp"
#include "launch/engine.hpp"
#include "launch/session.hpp"
#include "runtime/measure/sweep.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

inline constexpr int kMostRehearsed = 8;  // ranks that one stands for

/// --rehearse and --topology.
void add_rehearsal_options(po::options_description& options);

/// The degrees of --rehearse, ascending; empty: it was not given. ranks: that were started. Throws UserError where
/// something else was asked for that cannot be rehearsed, and for --topology alone.
std::vector<int> rehearsed_degrees(const po::variables_map& values, int ranks);

/// What --topology knows; a file is read. Throws UserError.
runtime::RehearsalOptions rehearsal_options(const po::variables_map& values, Session& session);

/// As take_place of session.hpp, on the CPU, for the first of as many ranks as the highest degree has.
Place take_place_of_many(const Session& session, std::optional<int64_t> threads, const std::vector<int>& degrees);

/// Gives the sweep, which has a rehearsal, the places of the ranks that it stands for: on the CPU a backend for each,
/// on a device its memory for all. topology: of this host; its class tells of all-reduces where --topology did not. All
/// of it outlives the sweep.
void use_for_rehearsal(runtime::SweepOptions& sweep, const Engine& engine, const EngineRequest& request,
                       const Place& place, const std::optional<topology::Topology>& topology);

}  // namespace shardscope::launch
