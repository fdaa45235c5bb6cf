// Topologies as JSON documents, "shardscope.topology/1": out, and in again.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "topology/topology.hpp"

namespace shardscope::topology {

nlohmann::ordered_json topology_json(const Topology& topology);

/// What topology_json wrote, or a report of ours that holds one under "topology"; the same value again, conclusions
/// drawn anew by understand(). Throws UserError, which names `file` and the key, for anything of another type or range.
Topology topology_of_json(const nlohmann::json& document, const std::string& file);

}  // namespace shardscope::topology
