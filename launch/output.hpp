// The only way to standard output: checked, so that a full disk or a closed reader is not taken for success. And what
// is known of standard error, where everything else goes.
#pragma once

#include <string_view>

namespace shardscope::launch {

/// Writes and flushes. Throws SystemError.
void write_out(std::string_view bytes);

/// Unbuffered. Where standard error takes nothing, there is nobody to tell.
void write_error(std::string_view bytes);

bool errors_on_terminal();

/// Columns of the terminal on standard error, at most 100; 80 where it is none.
int error_columns();

}  // namespace shardscope::launch
