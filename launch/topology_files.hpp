// Topologies as commands take them, by name of the catalogue or by file, and files that must not overwrite each other.
#pragma once

#include <string>
#include <vector>

#include "launch/session.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

/// A file, or standard input for "-". Throws UserError.
topology::Topology read_topology_named(const std::string& name, Session& session);

/// What `--topology NAME-or-FILE` means: a machine of the catalogue, else a file (./NAME is one in any case), or
/// standard input for "-". Throws UserError, with the nearest name where it is neither. option: that named it.
topology::Topology topology_named(const std::string& name, Session& session, const char* option = "--topology");

/// Throws UserError where both are the same file, or both standard output. Empty names are none.
void check_two_outputs(const std::string& one, const char* option, const std::string& other, const char* other_option);

/// Throws UserError where one of the outputs is the file that the option reads.
void check_not_read(const std::string& input, const char* option, const std::vector<std::string>& outputs);

}  // namespace shardscope::launch
