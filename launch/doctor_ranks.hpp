// What `doctor` finds out by doing: facts of each rank, its device taken, and what ranks write to each other. All of it
// is collective over all ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/doctor_checks.hpp"
#include "launch/engine.hpp"
#include "launch/session.hpp"

namespace shardscope::launch {

/// Every rank's facts, on all ranks. CUDA is not asked with the backend cpu.
std::vector<RankFacts> gather_ranks(Session& session, const Place& place, BackendKind backend);

/// What every rank's device is, before anything is put on one; what is wrong is no error, but told in `use`.
struct ChosenDevices {
  DeviceUse use;
  BackendChoice choice;
};
ChosenDevices choose_devices(Session& session, BackendKind backend);

/// On devices where every rank could take its own, else on the cpu. What is wrong with devices is told in chosen.use.
Engine make_any_engine(Session& session, const Place& place, ChosenDevices& chosen);

/// Near the chosen devices, as the other commands take it. host: of the first rank of each host.
Place take_place_near(Session& session, const BackendChoice& choice, const std::optional<HostFacts>& host);

/// Writes between the ranks' devices and reads back, and sums by NCCL. Throws PeerFailure, and SystemError where a rank
/// does not answer within the world's timeout.
PeerProof prove_peers(Session& session, const Engine& engine, const Place& place);

}  // namespace shardscope::launch
