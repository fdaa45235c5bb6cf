// Rows of all-reduce figures, checked against each other: size, time, algorithm and bus bandwidth are redundant, so
// that a damaged figure shows, and the number of GPUs follows from busbw = algbw x 2(n-1)/n
// (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/read/text_table.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

struct CollectiveRow {
  int line = 0;
  std::string kind;  // type and operation: sizes ascend within one
  std::optional<int64_t> bytes;
  std::optional<double> time_us, gb_per_s, busbw_gb_per_s;
};

/// What a run tells about itself; nullopt: it does not.
struct CollectiveRun {
  int line = 0;
  std::string collective;  // "all_reduce", …; empty: not told
  std::string algorithm = "NCCL";
  std::optional<bool> p2p;
  std::optional<size_t> told_gpus;                 // by options
  std::vector<Gpu> ranks;                          // by list of ranks
  std::vector<std::string> processes;              // of each rank: its host and process; empty texts: not told
  std::optional<int64_t> threads, gpus_of_thread;  // of one process
  std::optional<bool> one_process;                 // as in Measurement
  std::optional<bool> graph;
  bool several_hosts = false;
  bool ended = false;  // the lines below the table are there
  std::optional<int64_t> least_bytes, most_bytes, factor, step_bytes;
  std::vector<CollectiveRow> rows;
};

/// Threads, GPUs and graphs by what follows the program's name on its command line. Options that are left out have the
/// program's defaults, where the command stands there whole.
void read_launch_options(std::string_view command, CollectiveRun& run);

/// As in Measurement: by the processes of the ranks, else by threads and GPUs of one process.
std::optional<bool> one_process_of(const CollectiveRun& run, std::optional<size_t> gpus);

/// "128M" of nccl-tests' -b and -e; nullopt: no size.
std::optional<int64_t> size_of_option(std::string_view word);

/// Bytes of an element by nccl-tests' name of its type; 0: not known.
int64_t bytes_of_type(std::string_view type);

/// 2(n-1)/n: bus bandwidth per algorithm bandwidth of an all-reduce.
double allreduce_factor(size_t gpus);

/// Whether bandwidths agree with that many GPUs, within the rounding of two decimals.
bool agrees(const CollectiveRow& row, size_t gpus);

/// The number of GPUs with which most rows agree: the first of those told, else that which the bandwidths give. Says
/// where it is not told, or contradicts what is told. nullopt: unknown.
std::optional<size_t> gpus_of_run(const CollectiveRun& run, Faults& faults);

/// Drops rows that contradict themselves, or the number of GPUs, with a fault each.
void drop_damaged_rows(CollectiveRun& run, std::optional<size_t> gpus, Faults& faults);

/// Faults for rows that the run's range of sizes tells to be missing; a note where nothing tells the end.
void find_missing_rows(const CollectiveRun& run, Faults& faults);

/// Throws UserError for more measurements than any run gives.
void append_rows(const CollectiveRun& run, std::optional<size_t> gpus, Topology& topology);

}  // namespace shardscope::topology
