// The stand-in for NVML, in parts: the library's state here, what it tells of a GPU in device.cpp, links in links.cpp.
// It is a shared library with the real one's SONAME, so that a program that links it and then opens "libnvidia-ml.so.1"
// gets it. It shows all GPUs of the table in the order of their PCI bus ids, whatever CUDA_VISIBLE_DEVICES says.
//
// Stricter than the real one on purpose: handles of before the last nvmlShutdown are invalid (there they often still
// work); a link that is not active has no remote end to tell of; the peer status of a GPU with itself is no question.
#pragma once

#include <nvml.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string_view>

#include "tests/emulation/fakes/machine_table.hpp"

/// What handles point to; only its address counts.
struct nvmlDevice_st {
  char unused = 0;
};

namespace shardscope::emulation::nvml {

/// One function at a time, as the real one is thread-safe.
struct Library {
  std::mutex mutex;
  int initialised = 0;
  MachineTable table;
  std::deque<nvmlDevice_st> handles;  // of all times, so that no address comes again
  size_t first_handle = 0;            // of now: one per GPU

  std::unique_ptr<MachineTable> used;  // what a test gave
};
Library& library();

/// What the table orders for this function: NVML_SUCCESS, or its failure.
nvmlReturn_t ordered(const Library& library, std::string_view function);
/// The same for one GPU, or all.
nvmlReturn_t ordered(const Library& library, std::string_view function, const Gpu& gpu);

nvmlDevice_t handle_of(Library& library, size_t gpu);
/// The GPU of a handle; -1: no handle of now.
int gpu_of(const Library& library, nvmlDevice_t device);

/// What each function of the library does first; `body` is called with the table, under the lock.
template <class Body>
nvmlReturn_t call(const char* function, const Body& body) {
  const std::lock_guard lock(library().mutex);
  if (library().initialised == 0) return NVML_ERROR_UNINITIALIZED;
  if (const nvmlReturn_t failure = ordered(library(), function); failure != NVML_SUCCESS) return failure;
  return body(library().table);
}

/// The same of functions with a handle; `body` is called with the GPU and its index.
template <class Body>
nvmlReturn_t call(const char* function, nvmlDevice_t device, const Body& body) {
  const std::lock_guard lock(library().mutex);
  if (library().initialised == 0) return NVML_ERROR_UNINITIALIZED;
  const int gpu = gpu_of(library(), device);
  if (gpu < 0) return NVML_ERROR_INVALID_ARGUMENT;
  const Gpu& asked = library().table.gpus[static_cast<size_t>(gpu)];
  if (const nvmlReturn_t failure = ordered(library(), function, asked); failure != NVML_SUCCESS) return failure;
  return body(asked, gpu);
}

template <class T, class Value>
nvmlReturn_t give(T* variable, Value value) {
  if (variable == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *variable = static_cast<T>(value);
  return NVML_SUCCESS;
}

/// A string with its end into a buffer of `length`.
nvmlReturn_t give_text(char* buffer, unsigned length, std::string_view text);

/// The parts of "00000000:1B:00.0" and the ids.
void fill(nvmlPciInfo_t& pci, std::string_view bus_id, uint32_t device_id, uint32_t subsystem_id);

}  // namespace shardscope::emulation::nvml
