// What a test says to the stand-in for NVML, which otherwise takes its machine from SHARDSCOPE_EMULATION.
#pragma once

#include "tests/emulation/fakes/machine_table.hpp"

extern "C" {

/// From the next nvmlInit_v2 of a library that is shut down, it presents a copy of this machine; nullptr: that of the
/// environment again.
void shardscope_fake_nvml_use(const shardscope::emulation::MachineTable* table);
}
