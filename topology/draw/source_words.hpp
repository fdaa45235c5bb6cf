// Names for people: what a topology is of, where it comes from, what its class is called.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// "nvidia-smi topo -m", "NCCL topology XML", …
std::string source_in_words(SourceKind kind);

/// "8 x NVIDIA A100-SXM4-80GB", of several models "2 x …, 1 x …", without names "8 GPUs".
std::string gpus_in_words(const Topology& topology);

/// "all-to-all NVLink through NVSwitches", …
std::string class_in_words(TopologyClass topology_class);

/// Host, file, source and platform, as far as they are known, on one line.
std::string origin_in_words(const Topology& topology);

}  // namespace shardscope::topology
