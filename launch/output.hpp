// The only way to standard output: checked, so that a full disk or a closed reader is not taken for success.
#pragma once

#include <string_view>

namespace shardscope::launch {

/// Writes and flushes. Throws SystemError.
void write_out(std::string_view bytes);

}  // namespace shardscope::launch
