// What a program that knows nothing of the emulation is told through its environment: SHARDSCOPE_EMULATION for the
// emulation's options, and CUDA's own variables for which devices it sees. Host code, without CUDA's headers.
#pragma once

#include <string_view>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/machine_table.hpp"

namespace shardscope::emulation {

/// SHARDSCOPE_EMULATION: "key=value,key=value", e.g.
///   devices=4,model=a100,seed=3,policy=worker,fail=cudaMalloc:3:2:from-then-on,peer=0>1:loses-writes
/// with one key for each member of Options, "fail" (function:nth, then if wanted error and from-then-on) and "peer"
/// (also "none" and "works") as often as wanted. Unset or empty: the defaults. Throws UserError, which names the
/// variable, the key and what is allowed, for anything unknown, out of range or said twice.
Options options_from_environment();

/// The same of a text.
Options parse_options(std::string_view text);

/// The machine that these options describe.
MachineTable table_of(const Options& options);

/// Which of the table's GPUs a process sees, as its devices 0, 1, …. `visible` is CUDA_VISIBLE_DEVICES and `order`
/// CUDA_DEVICE_ORDER, nullptr where they are not set: then all GPUs, and the fastest first (by compute capability, then
/// multiprocessors x clock; equal ones by PCI bus id), not by PCI bus id as NVML has them.
///
/// CUDA C++ Programming Guide, "CUDA Environment Variables": a list, separated by commas, of indices in that order, or
/// of UUIDs, which may be cut short as long as they fit one GPU; it ends before its first invalid entry. Not
/// documented, and so as the driver was seen to do: "" is no device; a GPU that is named twice makes the list empty.
/// Stricter than the driver may be: indices and UUIDs in one list do not mix, and a blank is no part of an index. MIG-…
/// is invalid: no instance can be seen in a table.
std::vector<int> visible_devices(const MachineTable& table, const char* visible, const char* order = nullptr);

}  // namespace shardscope::emulation
