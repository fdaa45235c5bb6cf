#include "tests/emulation/emulation.hpp"

#include <dlfcn.h>

#include <map>
#include <string>

#include "kernels/base/error.hpp"
#include "tests/emulation/device/emulated_launch.hpp"
#include "tests/emulation/fakes/cudart/runtime.hpp"
#include "tests/emulation/fakes/lock.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation {

void restart(const Options& options) {
  Machine& machine = Machine::get();
  const Locked locked;
  end_worker();
  forget_runtime();
  forget_calls();
  machine.restart(options);
}

std::string_view name(Fault fault) {
  switch (fault) {
    case Fault::kOutOfBounds:
      return "out of bounds";
    case Fault::kUseAfterFree:
      return "use after free";
    case Fault::kHostMemory:
      return "host memory";
    case Fault::kForeignLocal:
      return "another thread's local memory";
    case Fault::kMisaligned:
      return "misaligned";
    case Fault::kUninitialised:
      return "uninitialised";
    case Fault::kSharedRace:
      return "race on shared memory";
    case Fault::kGlobalRace:
      return "race on global memory";
    case Fault::kDivergentBarrier:
      return "divergent barrier";
    case Fault::kDivergentWarp:
      return "divergent warp";
    case Fault::kPendingCopy:
      return "pending copy";
    case Fault::kNoProgress:
      return "no progress";
    case Fault::kPeerAccess:
      return "no peer access";
    case Fault::kTrap:
      return "trap";
    case Fault::kHostRace:
      return "race with the host";
    case Fault::kLifetime:
      return "destroyed too early";
    case Fault::kRankMismatch:
      return "ranks that do not do the same";
  }
  return "";
}

std::vector<Report> take_reports() {
  const Locked locked;
  return Machine::get().take_reports();
}

void label(const void* allocation, std::string_view allocation_class) {
  const Locked locked;
  DeviceMemory& memory = Machine::get().memory();
  Allocation* const found = memory.covers(allocation) ? memory.find(allocation) : nullptr;
  require(found != nullptr, "emulation: label is for an allocation");
  found->allocation_class = Machine::get().counters().number_of(allocation_class);
  found->label = allocation_class;
}

std::vector<KernelCounters> counters() {
  const Locked locked;
  return Machine::get().counters().named();
}

void clear_counters() {
  const Locked locked;
  Machine::get().counters().clear();
}

bool checked() {
  // Checked kernels bring this symbol along (emulated_launch.hpp).
  static const bool found = dlsym(RTLD_DEFAULT, "shardscope_kernels_are_checked") != nullptr;
  return found;
}

}  // namespace shardscope::emulation
