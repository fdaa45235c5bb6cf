// Memory of other devices: without peer access, with it in the wrong direction, with one that loses what is written.
#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;
using emulation::MachineTable;
using emulation::PeerAccess;

constexpr int64_t kCount = HostStand::kCount;

/// Device 0 sums numbers of device 1; `enable` says who gets access to whom.
template <class Enable>
bool run_peer_read(HostStand& stand, const Enable& enable) {
  stand.select(1);
  const float* const theirs = stand.filled(2);
  stand.select(0);
  const float* const ours = stand.filled(1);
  float* const sum = stand.filled(0);
  enable();
  stand.combine(theirs, 1, ours, sum, nullptr);
  return stand.holds(sum, 3);
}

bool run_no_peer_access(HostStand& stand) {
  return run_peer_read(stand, [&] {
    if (!stand.planted()) stand.note(cudaDeviceEnablePeerAccess(1, 0));
  });
}

bool run_peer_access_the_wrong_way(HostStand& stand) {
  return run_peer_read(stand, [&] {
    if (stand.planted()) stand.select(1);
    stand.note(cudaDeviceEnablePeerAccess(stand.planted() ? 0 : 1, 0));
    stand.select(0);
  });
}

bool run_peer_access_enabled_twice(HostStand& stand) {
  stand.note(cudaDeviceEnablePeerAccess(1, 0));
  if (stand.planted()) stand.note(cudaDeviceEnablePeerAccess(1, 0));
  return true;
}

bool run_peer_access_to_itself(HostStand& stand) {
  stand.note(cudaDeviceEnablePeerAccess(stand.planted() ? 0 : 1, 0));
  return true;
}

bool run_peer_access_that_is_not_there(HostStand& stand) {
  int can = -1;
  stand.note(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (can != (stand.planted() ? 0 : 1)) return false;
  stand.note(cudaDeviceEnablePeerAccess(1, 0));
  return true;
}

void lose_first_to_second(emulation::Options& options, bool planted) {
  options.table = emulation::make_table("h100", 2);
  if (planted) options.table->peers[0][1] = PeerAccess::kLosesWrites;
}

/// The proof that a peer's writes arrive: device 0 writes to memory of device 1, which its owner reads.
bool run_loses_writes(HostStand& stand) {
  stand.select(1);
  float* const theirs = stand.filled(9);
  stand.select(0);
  const float* const ours = stand.filled(1);
  int can = 0;
  stand.note(cudaDeviceCanAccessPeer(&can, 0, 1));
  stand.note(cudaDeviceEnablePeerAccess(1, 0));
  stand.combine(ours, 1, ours, theirs, nullptr);
  stand.finish();
  stand.select(1);
  const bool arrived = stand.holds(theirs, 2);
  stand.select(0);
  return arrived && can == 1;
}

}  // namespace

std::vector<HostBug> peer_bugs() {
  const auto fault = [](std::string_view name, bool (*scenario)(HostStand&)) {
    return HostBug{.name = name,
                   .scenario = scenario,
                   .error = cudaErrorIllegalAddress,
                   .fault = Fault::kPeerAccess,
                   .message = "combine_kernel",
                   .plain = Plain::kNothing,
                   .devices = 2};
  };
  const auto refused = [](std::string_view name, bool (*scenario)(HostStand&), cudaError_t error,
                          std::string_view refusal) {
    return HostBug{.name = name, .scenario = scenario, .error = error, .refusal = refusal, .devices = 2};
  };
  return {
      fault("no_peer_access", run_no_peer_access),
      fault("peer_access_the_wrong_way", run_peer_access_the_wrong_way),
      refused("peer_access_enabled_twice", run_peer_access_enabled_twice, cudaErrorPeerAccessAlreadyEnabled,
              "enabled before"),
      refused("peer_access_to_itself", run_peer_access_to_itself, cudaErrorInvalidDevice, "no peer of its own"),
      {.name = "peer_access_that_is_not_there",
       .scenario = run_peer_access_that_is_not_there,
       .error = cudaErrorPeerAccessUnsupported,
       .refusal = "has no peer access to",
       .devices = 2,
       .prepare =
           [](emulation::Options& options, bool planted) {
             options.table = emulation::make_table("h100", 2);
             if (planted) options.table->peers[0][1] = PeerAccess::kNone;
           }},
      {.name = "loses_writes", .scenario = run_loses_writes, .devices = 2, .prepare = lose_first_to_second},
  };
}

}  // namespace shardscope::planted_host
