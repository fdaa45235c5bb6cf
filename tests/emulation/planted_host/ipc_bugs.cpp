// Device memory that is shared between processes: handles that are none, memory that is used when one side has let it
// go, in the wrong process, by the wrong device.
#include "tests/emulation/planted_host/process_bugs.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;
using emulation::PeerAccess;
using test::Rank;

constexpr size_t kBytes = HostStand::kBytes;

/// Rank 0's memory as both ranks have it: filled by its owner, opened by rank 1.
struct Shared {
  float* memory = nullptr;
  cudaIpcMemHandle_t handle{};
};

Shared share(HostStand& stand, const Rank& rank) {
  Shared shared;
  if (rank.rank() == 0) {
    shared.memory = stand.filled(3);
    stand.note(cudaIpcGetMemHandle(&shared.handle, shared.memory));
  }
  shared.handle = rank.exchange(shared.handle)[0];
  if (rank.rank() == 1) {
    void* opened = nullptr;
    stand.note(cudaIpcOpenMemHandle(&opened, shared.handle, cudaIpcMemLazyEnablePeerAccess));
    shared.memory = static_cast<float*>(opened);
  }
  return shared;
}

// ---- handles ----

bool run_handle_of_the_middle(HostStand& stand, const Rank& rank) {
  if (rank.rank() != 0) return true;
  float* const numbers = stand.filled(1);
  cudaIpcMemHandle_t handle{};
  stand.note(cudaIpcGetMemHandle(&handle, numbers + (stand.planted() ? 8 : 0)));
  return true;
}

bool run_handle_of_pinned(HostStand& stand, const Rank& rank) {
  if (rank.rank() != 0) return true;
  float* const numbers = stand.filled(1);
  auto* const pinned = stand.pinned<float>(8, 1);
  cudaIpcMemHandle_t handle{};
  stand.note(cudaIpcGetMemHandle(&handle, stand.planted() ? pinned : numbers));
  return true;
}

bool run_opened_in_the_same_process(HostStand& stand, const Rank& rank) {
  const float* const own = stand.filled(1);
  cudaIpcMemHandle_t handle{};
  stand.note(cudaIpcGetMemHandle(&handle, const_cast<float*>(own)));
  const std::vector<cudaIpcMemHandle_t> handles = rank.exchange(handle);
  void* opened = nullptr;
  const bool other = !stand.planted() || rank.rank() == 0;
  const int whose = other ? 1 - rank.rank() : rank.rank();
  const bool good =
      stand.note(cudaIpcOpenMemHandle(&opened, handles[static_cast<size_t>(whose)], cudaIpcMemLazyEnablePeerAccess));
  if (good) stand.note(cudaIpcCloseMemHandle(opened));
  rank.barrier();
  return good == (opened != nullptr);
}

bool run_no_handle(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  if (rank.rank() == 1) {
    cudaIpcMemHandle_t handle = shared.handle;
    if (stand.planted()) handle = {};
    void* opened = nullptr;
    stand.note(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  }
  rank.barrier();
  return true;
}

bool run_opened_without_the_flag(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  if (rank.rank() == 1) {
    void* opened = nullptr;
    stand.note(cudaIpcOpenMemHandle(&opened, shared.handle, stand.planted() ? 0 : cudaIpcMemLazyEnablePeerAccess));
  }
  rank.barrier();
  return true;
}

bool run_opened_after_free(HostStand& stand, const Rank& rank) {
  float* memory = nullptr;
  cudaIpcMemHandle_t handle{};
  if (rank.rank() == 0) {
    memory = stand.filled(3);
    stand.note(cudaIpcGetMemHandle(&handle, memory));
    if (stand.planted()) stand.note(cudaFree(memory));
  }
  handle = rank.exchange(handle)[0];
  if (rank.rank() == 1) {
    void* opened = nullptr;
    stand.note(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  }
  rank.barrier();
  return true;
}

bool run_opened_after_the_exporter_ended(HostStand& stand, const Rank& rank) {
  cudaIpcMemHandle_t handle{};
  if (rank.rank() == 0) stand.note(cudaIpcGetMemHandle(&handle, stand.filled(3)));
  handle = rank.exchange(handle)[0];
  if (stand.planted() && rank.rank() == 0) rank.die();
  if (rank.rank() == 1) {
    if (stand.planted()) rank.kill_rank(0);  // which also waits for its end
    void* opened = nullptr;
    stand.note(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  }
  if (!stand.planted()) rank.barrier();
  return true;
}

// ---- life time ----

bool run_freed_while_open(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  rank.barrier();
  if (rank.rank() == 1 && !stand.planted()) stand.note(cudaIpcCloseMemHandle(shared.memory));
  rank.barrier();
  if (rank.rank() == 0) {
    stand.note(cudaFree(shared.memory));
    stand.finish();
  }
  rank.barrier();
  return true;
}

template <bool kByCopy>
bool run_used_after_free(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  rank.barrier();
  if (rank.rank() == 0 && stand.planted()) stand.note(cudaFree(shared.memory));
  rank.barrier();
  bool right = true;
  if (rank.rank() == 1) {
    const float* const ones = stand.filled(1);
    float* const sum = stand.filled(0);
    if constexpr (kByCopy) {
      stand.note(cudaMemcpyAsync(sum, shared.memory, kBytes, cudaMemcpyDeviceToDevice, nullptr));
      right = stand.holds(sum, 3);
    } else {
      stand.combine(shared.memory, 1, ones, sum, nullptr);
      right = stand.holds(sum, 4);
    }
  }
  rank.barrier();
  return right;
}

bool run_closed_while_used(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  bool right = true;
  if (rank.rank() == 1) {
    const float* const ones = stand.filled(1);
    float* const sum = stand.filled(0);
    stand.combine(shared.memory, 1, ones, sum, nullptr);
    if (!stand.planted()) stand.finish();
    stand.note(cudaIpcCloseMemHandle(shared.memory));
    right = stand.holds(sum, 4);
  }
  rank.barrier();
  return right;
}

/// Opened twice it has one address, and is there until it has been closed twice.
bool run_closed_too_often(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  bool right = true;
  if (rank.rank() == 1) {
    void* again = nullptr;
    stand.note(cudaIpcOpenMemHandle(&again, shared.handle, cudaIpcMemLazyEnablePeerAccess));
    right = again == shared.memory;
    stand.note(cudaIpcCloseMemHandle(again));
    const float* const ones = stand.filled(1);
    float* const sum = stand.filled(0);
    stand.combine(shared.memory, 1, ones, sum, nullptr);
    right = stand.holds(sum, 4) && right;
    stand.note(cudaIpcCloseMemHandle(shared.memory));
    if (stand.planted()) stand.note(cudaIpcCloseMemHandle(shared.memory));
  }
  rank.barrier();
  return right;
}

bool run_freed_by_the_importer(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  if (rank.rank() == 1) {
    stand.note(stand.planted() ? cudaFree(shared.memory) : cudaIpcCloseMemHandle(shared.memory));
  }
  rank.barrier();
  return true;
}

// ---- devices ----

/// Opened by device 1, used by device 0 of the same process, whose access is another matter.
bool run_used_by_another_device(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  bool right = true;
  if (rank.rank() == 1) {
    if (stand.planted()) stand.select(0);
    const float* const ones = stand.filled(1);
    float* const sum = stand.filled(0);
    stand.combine(shared.memory, 1, ones, sum, nullptr);
    right = stand.holds(sum, 4);
  }
  rank.barrier();
  return right;
}

bool run_no_access_between_gpus(HostStand& stand, const Rank& rank) {
  share(stand, rank);
  rank.barrier();
  return true;
}

/// Rank 1 writes; the proof that it arrives is rank 0's to make.
bool run_loses_writes(HostStand& stand, const Rank& rank) {
  const Shared shared = share(stand, rank);
  if (rank.rank() == 1) {
    const float* const ones = stand.filled(1);
    stand.combine(ones, 1, ones, shared.memory, nullptr);
    stand.finish();
  }
  rank.barrier();
  return rank.rank() == 1 || stand.holds(shared.memory, 2);
}

void at_synchronisation(emulation::Options& options, bool /*planted*/) {
  options.policy = emulation::Policy::kAtSynchronisation;
}

template <PeerAccess kAccess>
void second_to_first(emulation::Options& options, bool planted) {
  options.table = emulation::make_table("h100", 2);
  if (planted) options.table->peers[1][0] = kAccess;
}

}  // namespace

std::vector<ProcessBug> ipc_bugs() {
  const auto refused = [](std::string_view name, bool (*scenario)(HostStand&, const Rank&), int who, cudaError_t error,
                          std::string_view refusal) {
    return ProcessBug{.name = name, .scenario = scenario, .who = who, .error = error, .refusal = refusal};
  };
  constexpr cudaError_t kNoHandle = cudaErrorInvalidResourceHandle;
  return {
      refused("handle_of_the_middle", run_handle_of_the_middle, 0, cudaErrorInvalidValue, "not the begin"),
      refused("handle_of_pinned", run_handle_of_pinned, 0, cudaErrorInvalidValue, "by cudaMalloc"),
      refused("opened_in_the_same_process", run_opened_in_the_same_process, 1, kNoHandle, "of this process"),
      refused("no_handle", run_no_handle, 1, kNoHandle, "no handle"),
      refused("opened_without_the_flag", run_opened_without_the_flag, 1, cudaErrorInvalidValue,
              "cudaIpcMemLazyEnablePeerAccess"),
      refused("opened_after_free", run_opened_after_free, 1, kNoHandle, "has freed"),
      refused("opened_after_the_exporter_ended", run_opened_after_the_exporter_ended, 1, kNoHandle, "is gone"),
      {.name = "freed_while_open",
       .scenario = run_freed_while_open,
       .who = 0,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kLifetime,
       .message = "still has open"},
      {.name = "used_after_free",
       .scenario = run_used_after_free<false>,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kUseAfterFree,
       .message = "combine_kernel",
       .plain = Plain::kNothing,
       .other_fault = Fault::kLifetime},
      {.name = "copied_after_free",
       .scenario = run_used_after_free<true>,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kUseAfterFree,
       .message = "cudaMemcpyAsync",
       .other_fault = Fault::kLifetime},
      {.name = "closed_while_used",
       .scenario = run_closed_while_used,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kUseAfterFree,
       .message = "combine_kernel",
       .plain = Plain::kNotRun,
       .prepare = at_synchronisation},
      refused("closed_too_often", run_closed_too_often, 1, cudaErrorInvalidValue, "cudaIpcOpenMemHandle"),
      refused("freed_by_the_importer", run_freed_by_the_importer, 1, cudaErrorInvalidValue, "not to be freed"),
      {.name = "used_by_another_device",
       .scenario = run_used_by_another_device,
       .error = cudaErrorIllegalAddress,
       .fault = Fault::kPeerAccess,
       .message = "combine_kernel",
       .plain = Plain::kNothing},
      {.name = "no_access_between_gpus",
       .scenario = run_no_access_between_gpus,
       .error = cudaErrorPeerAccessUnsupported,
       .refusal = "no peer access",
       .prepare = second_to_first<PeerAccess::kNone>},
      {.name = "loses_writes_of_another_process",
       .scenario = run_loses_writes,
       .who = 0,
       .prepare = second_to_first<PeerAccess::kLosesWrites>},
  };
}

}  // namespace shardscope::planted_host
