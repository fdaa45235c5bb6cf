// Names that a topology's JSON has and its value does not.
#pragma once

#include <array>
#include <utility>

#include "topology/topology.hpp"

namespace shardscope::topology {

inline constexpr const char* kTopologySchema = "shardscope.topology/1";

inline constexpr std::array<std::pair<NvLinkPort::Remote, const char*>, 4> kRemotes = {{
    {NvLinkPort::Remote::kUnknown, "unknown"},
    {NvLinkPort::Remote::kGpu, "gpu"},
    {NvLinkPort::Remote::kSwitch, "switch"},
    {NvLinkPort::Remote::kCpu, "cpu"},
}};

}  // namespace shardscope::topology
