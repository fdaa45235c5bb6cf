// Addresses of code as a person reads them: function and file:line, by addr2line (binutils) over the debug information
// of the program and its libraries. Slow (tens of milliseconds); answers are kept.
#pragma once

#include <string>

namespace shardscope::emulation {

/// `file:line` of the instruction before `return_address`: the innermost frame, inlined ones included, that does not
/// lie in the seam (portable.cuh, ptx.cuh, emulated_*.hpp). Files of the project are shown relative to it.
std::string place_of(const void* return_address);

/// The demangled name of a kernel, without namespaces, return type and parameters: rms_norm_kernel<float>.
std::string kernel_name(const void* kernel);

}  // namespace shardscope::emulation
