// What a report says about where it was made, read from this process and its host.
#pragma once

#include <string>

#include "launch/session.hpp"
#include "runtime/report/environment.hpp"

namespace shardscope::launch {

/// "0.1.0 (commit abc)".
std::string version_text();

/// Collective: gathers every rank's host and masks. Meaningful on rank 0.
runtime::Environment capture_environment(Session& session, const Place& place, const std::string& backend);

}  // namespace shardscope::launch
