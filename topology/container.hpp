// What kind of container this process runs in, by the marks that each kind leaves in its file system.
#pragma once

#include <string>

namespace shardscope::topology {

/// "apptainer", "kubernetes", "docker", "podman", "lxc", or what /run/systemd/container says; empty: no mark seen,
/// which is no proof. Of two marks the inner container's counts. `root` stands before every path that is read.
std::string container_kind(const std::string& root = "");

}  // namespace shardscope::topology
