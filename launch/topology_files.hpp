// Files of topologies as commands take them, and files that must not overwrite each other.
#pragma once

#include <string>
#include <vector>

#include "launch/session.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

/// A file, or standard input for "-". Throws UserError.
topology::Topology read_topology_named(const std::string& name, Session& session);

/// Throws UserError where both are the same file, or both standard output. Empty names are none.
void check_two_outputs(const std::string& one, const char* option, const std::string& other, const char* other_option);

/// Throws UserError where one of the outputs is the file that the option reads.
void check_not_read(const std::string& input, const char* option, const std::vector<std::string>& outputs);

}  // namespace shardscope::launch
