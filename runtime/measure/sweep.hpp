// The main measurement: one launch visits tensor-parallel degrees, up and then down; at each the group loads its
// shards, warms up and measures every workload, while the other ranks sleep; of one degree there may be groups at
// different places, one after another. Collective over the whole world; figures
// end up on rank 0. Leaves printing and files to the caller, rules to protocol.hpp, definitions to figures.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/world.hpp"
#include "runtime/decoder.hpp"
#include "runtime/measure/figures.hpp"
#include "runtime/measure/point.hpp"
#include "runtime/measure/protocol.hpp"
#include "runtime/measure/rehearsal_model.hpp"
#include "runtime/measure/residents.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/text/tokenizer.hpp"
#include "topology/activity.hpp"
#include "topology/placement.hpp"

namespace shardscope::runtime {

/// What a rank works with at its place.
struct Workplace {
  kernels::Backend* backend = nullptr;
  parallel::OnDevice on_device;                       // of a backend on devices
  const topology::ActivityProbe* activity = nullptr;  // of its cores; null: nothing is known
};

struct SweepOptions {
  std::vector<int> degrees;  // ascending, each at most the number of ranks, unless they are rehearsed
  /// Of each degree, in the order in which they are measured; empty: one of each, all ranks at their own places.
  std::vector<std::vector<topology::PlacedGroup>> groups;
  /// Where a degree leaves room for several groups on so many ranks: all of them at once, after the lone one; each rank
  /// at its own place. 0: lone groups alone.
  int replica_ranks = 0;
  /// Before each visit: brings all ranks to the places where they are while that group works. Collective. Empty: they
  /// stay where they are.
  std::function<Workplace(const topology::PlacedGroup& group)> take;
  std::vector<Workload> workloads;  // distinct
  Protocol protocol;
  std::vector<int32_t> prompt_ids;  // a real prompt, cut or repeated to length; empty: random ids
  int64_t valid_vocab = 0;          // ids below it may be drawn
  int64_t max_step_tokens = 512;
  kernels::Precision precision;  // of the backend
  parallel::CommunicatorKind communicator = parallel::CommunicatorKind::kAuto;
  kernels::ActivationMode activations = kernels::ActivationMode::kAuto;    // of the backend, for the report
  std::function<GroupPlace(const topology::PlacedGroup&)> place_of_group;  // empty: nothing is known
  const topology::ActivityProbe* activity = nullptr;  // of this rank's cores; null: nothing is known
  int threads = 1;                                    // of this rank
  int64_t free_memory_bytes = 0;                      // on this host, for all its ranks; 0: unknown
  parallel::OnDevice on_device;                       // of a backend on devices
  std::vector<int64_t> device_free_bytes;             // of each place's device; empty: no devices
  int64_t device_reserved_bytes = 0;                  // of them, what the backend takes for itself
  bool emulated = false;                              // the devices are stand-ins
  std::optional<RehearsalOptions> rehearsal;          // this rank, the only one, stands for groups of any degree
  FigureKind kind() const;
  bool graphs = true;  // on devices, for the report
  Peaks peaks;
  const Tokenizer* tokenizer = nullptr;  // on rank 0, to time text; null: the model has none
  /// Of an earlier, interrupted run, on rank 0: not measured again; `incomplete` ones lack their second visit alone.
  std::vector<PointResult> done;

  std::vector<topology::PlacedGroup> all_groups() const;  // by degree, then in their order
  size_t point_count() const { return all_groups().size() * workloads.size(); }
};

struct SweepProgress {
  std::function<void(const std::string& line)> say;  // called on rank 0
  /// Called on rank 0 after each visit: all points so far, in the order of degrees and workloads, and which of them
  /// are new or have changed.
  std::function<void(const std::vector<PointResult>& points, const std::vector<size_t>& changed)> points;
  /// Called on rank 0 before each step. fraction: of the whole sweep done, estimated.
  std::function<void(double fraction, const std::string& doing)> tick;
};

std::vector<PointResult> run_sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model,
                                   const SweepOptions& options, const SweepProgress& progress);

/// Prompt ids of exactly `length`: `real` cut or repeated, or random ids below valid_vocab from (seed, sequence).
std::vector<int32_t> prompt_of_length(int64_t length, const std::vector<int32_t>& real, int64_t valid_vocab,
                                      uint64_t seed, int64_t sequence);

}  // namespace shardscope::runtime
