// Launches of the stand-in runtime.
#pragma once

namespace shardscope::emulation {

/// Forgets how much shared memory kernels were allowed.
void forget_launches();

}  // namespace shardscope::emulation
