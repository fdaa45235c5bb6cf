// topo --measure: what the links carry, measured by copies between this node's GPUs.
#pragma once

#include "launch/session.hpp"
#include "parallel/peer_copies.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

/// Copies between all GPUs that this process sees; their figures, what they contradict, and the PCIe links under load
/// become part of the topology, which is understood anew. Throws UserError where there are no two GPUs that CUDA can
/// use, SystemError where copies fail.
void measure_topology(topology::Topology& topology, Session& session);

/// The figures of copies as those of the topology's GPUs, which PCI bus ids tell; emulated: times say nothing.
void add_copies(topology::Topology& topology, const parallel::PeerCopies& copies, bool emulated);

}  // namespace shardscope::launch
