// Measures copies between the devices that this process sees.
#pragma once

#include <optional>
#include <string>

#include "parallel/peer_copies.hpp"

namespace shardscope::parallel {

/// First without peer access, then with it wherever the driver offers it (it stays enabled), one direction, both, and
/// all devices at once; and the time of tiny copies. visible_devices: as probe_devices. No devices, or one: no figures.
/// Throws SystemError where CUDA fails, and for copies that do not end within a minute, named.
PeerCopies measure_peer_copies(const std::optional<std::string>& visible_devices, const PeerCopiesWanted& wanted);

}  // namespace shardscope::parallel
