// The topology of the hosts that a job runs on, asked once a host, and each rank's place near its GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/engine.hpp"
#include "launch/session.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

/// This rank's host. Where ranks work on devices each host is asked once, by its first rank, which tells the others;
/// else rank 0 alone asks, and other ranks get nothing. Collective.
std::optional<topology::Topology> host_topology(const BackendChoice& choice, Session& session);

/// As take_place of session.hpp, near the devices of `choice`. Collective: what masks keep a rank from its GPU's node
/// is told to all.
Place take_place(Session& session, std::optional<int64_t> threads, const BackendChoice& choice,
                 const std::optional<topology::Topology>& topology);

/// With a topology that nobody else needs.
Place take_place(Session& session, std::optional<int64_t> threads, const BackendChoice& choice);

/// A rank that may use no core near its GPU.
struct FarRank {
  int rank = 0;
  std::string host;
  std::vector<int> allowed;  // cores that it may use
  topology::NearGpu gpu;
};
/// What that costs and what to do, in one warning for all of them; none: none.
std::vector<std::string> far_warnings(const std::vector<FarRank>& far, int ranks);

}  // namespace shardscope::launch
