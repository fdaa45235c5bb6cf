// How this program was built, as CMake and git found it then: nothing here is read from the host that it runs on.
#pragma once

#include <string>

#include "runtime/report/environment.hpp"

namespace shardscope::launch {

/// Versions of libraries are those of the headers compiled against; a shared library may since have been updated.
runtime::BuildFacts build_facts();

/// "0.1.0 (commit abc)".
std::string version_text();

}  // namespace shardscope::launch
