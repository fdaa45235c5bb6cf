// Why the ranks of a group cannot share their devices' memory, in one line for the user. Pure: every rank calculates
// the same from the same gathered facts. How facts are gathered, and memory is shared, is peer_memory.hpp's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardscope::parallel {

/// The device of a rank.
struct PeerDevice {
  std::string host;
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // tells devices apart; "" where the driver does not tell
  std::string pci_bus_id;
  bool mig = false;  // an instance of a GPU that is cut into several

  bool operator==(const PeerDevice&) const = default;
};

/// Of a rank, for an exchange among ranks, and back. The host is not part of it. Throws BugError for other text.
std::string encode(const PeerDevice& device);
PeerDevice decode_peer_device(std::string_view text, const std::string& host);

/// Whether a rank's process can reach the device of another rank.
enum class PeerReach : uint8_t {
  kOffered,  // the driver says so
  kSame,     // it is this rank's own device
  kRefused,  // the driver says no
  kHidden,   // the process does not see that device, and cannot ask
};

bool same_device(const PeerDevice& a, const PeerDevice& b);

// Each: "" if nothing stands in the way, or what is wrong, between which ranks and devices, and what to do. Matrices
// are [rank][peer], row by row: what that rank found of that peer.

/// shared_devices: ranks may have one device in common.
std::string why_not_together(std::span<const PeerDevice> devices, bool shared_devices);

std::string why_not_reached(std::span<const PeerDevice> devices, std::span<const PeerReach> reach);

/// errors: of cudaIpcOpenMemHandle; on the diagonal of cudaIpcGetMemHandle. 0: none.
std::string why_not_opened(std::span<const PeerDevice> devices, std::span<const PeerReach> reach,
                           std::span<const int> errors);

/// What a round of the proof has shown. Words that are right, of `words`.
struct PeerWords {
  uint32_t received = 0;   // of the peer, here
  uint32_t read_back = 0;  // of this rank, from the peer's memory
};
std::string why_not_proved(std::span<const PeerDevice> devices, std::span<const PeerWords> proof, int64_t words);

}  // namespace shardscope::parallel
