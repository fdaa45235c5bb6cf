// Reading what other tools print about a machine's GPUs. Every reader takes whole texts, recognises its own by content,
// and keeps what is intact of a damaged one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// A file's text and its name for messages.
struct SourceText {
  std::string_view text;
  std::string file;
};

// Each gives nullopt if the text is not of its kind at all; throws UserError for one that is, but has nothing that can
// be used (a table without rows), or is of a related kind that is no topology (an NCCL graph, rocm-smi), named for what
// it is. What is damaged becomes `complete` = false, unknown cells, and a warning with the line (from 1) and the cell.
// None calls understand().
std::optional<Topology> read_shardscope_json(const SourceText& source);
std::optional<Topology> read_xml(const SourceText& source);              // NCCL and hwloc
std::optional<Topology> read_nvidia_smi_topo(const SourceText& source);  // topo -m
std::optional<Topology> read_nvidia_smi_p2p(const SourceText& source);   // topo -p2p r|w|n|a|p
std::optional<Topology> read_nvlink_status(const SourceText& source);    // nvlink -s
std::optional<Topology> read_nvbandwidth(const SourceText& source);
std::optional<Topology> read_p2p_bandwidth_test(const SourceText& source);  // p2pBandwidthLatencyTest
std::optional<Topology> read_p2pmark(const SourceText& source);
std::optional<Topology> read_nccl_tests(const SourceText& source);
std::optional<Topology> read_collective_table(const SourceText& source);  // Markdown tables of all-reduce figures

/// Tries all readers, then understand(). Throws UserError for a text of no known kind, saying what was expected.
Topology read_topology(const SourceText& source);

}  // namespace shardscope::topology
