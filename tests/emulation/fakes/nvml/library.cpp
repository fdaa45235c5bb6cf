#include "tests/emulation/fakes/nvml/library.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "tests/emulation/fakes/environment.hpp"
#include "tests/emulation/fakes/machine_words.hpp"
#include "tests/emulation/fakes/nvml/use.hpp"

namespace shardscope::emulation::nvml {
namespace {

/// The words of tables are NVML's own numbers.
constexpr bool words_agree() {
  for (const Word<int>& word : kNvmlErrorWords) {
    const int expected = word.text == "NOT_SUPPORTED"             ? NVML_ERROR_NOT_SUPPORTED
                         : word.text == "NO_PERMISSION"           ? NVML_ERROR_NO_PERMISSION
                         : word.text == "DRIVER_NOT_LOADED"       ? NVML_ERROR_DRIVER_NOT_LOADED
                         : word.text == "FUNCTION_NOT_FOUND"      ? NVML_ERROR_FUNCTION_NOT_FOUND
                         : word.text == "GPU_IS_LOST"             ? NVML_ERROR_GPU_IS_LOST
                         : word.text == "RESET_REQUIRED"          ? NVML_ERROR_RESET_REQUIRED
                         : word.text == "LIB_RM_VERSION_MISMATCH" ? NVML_ERROR_LIB_RM_VERSION_MISMATCH
                         : word.text == "NO_DATA"                 ? NVML_ERROR_NO_DATA
                                                                  : NVML_ERROR_UNKNOWN;
    if (word.value != expected) return false;
  }
  return true;
}
static_assert(words_agree());

/// A number in hex, all of `text`, up to `most`.
std::optional<unsigned> hex(std::string_view text, unsigned most) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

/// "1B:00.0", "0:1b:0" and "00000000:1B:00.0" as the last is; nullopt for what is no bus id.
std::optional<std::string> whole_bus_id(std::string_view text) {
  const size_t dot = text.find('.');
  const auto function = dot == std::string_view::npos ? 0u : hex(text.substr(dot + 1), 7);
  const std::string_view address = text.substr(0, dot);
  const size_t last = address.rfind(':');
  if (!function || last == std::string_view::npos) return std::nullopt;
  const size_t first = address.find(':');
  const bool with_domain = first != last;
  if (!with_domain && dot == std::string_view::npos) return std::nullopt;
  const auto domain = with_domain ? hex(address.substr(0, first), 0xFFFF'FFFF) : 0u;
  const size_t bus_begin = with_domain ? first + 1 : 0;
  const auto bus = hex(address.substr(bus_begin, last - bus_begin), 0xFF);
  const auto device = hex(address.substr(last + 1), 31);
  if (!domain || !bus || !device) return std::nullopt;
  return fmt::format("{:08X}:{:02X}:{:02X}.{}", *domain, *bus, *device, *function);
}

nvmlReturn_t error_of(const std::map<std::string, std::string>& failing, std::string_view function) {
  const auto found = failing.find(std::string(function));
  if (found == failing.end()) return NVML_SUCCESS;
  for (const Word<int>& word : kNvmlErrorWords) {
    if (word.text == found->second) return static_cast<nvmlReturn_t>(word.value);
  }
  return NVML_ERROR_UNKNOWN;
}

/// A GPU's handle, unless that is what fails.
nvmlReturn_t give_handle(const char* function, nvmlDevice_t* device, size_t gpu) {
  const nvmlReturn_t failure = ordered(library(), function, library().table.gpus[gpu]);
  return failure == NVML_SUCCESS ? give(device, handle_of(library(), gpu)) : failure;
}

template <class Matches>
nvmlReturn_t find(const char* function, const char* text, nvmlDevice_t* device, const Matches& matches) {
  return call(function, [&](const MachineTable& table) {
    if (text == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (size_t i = 0; i < table.gpus.size(); ++i) {
      if (matches(table.gpus[i])) return give_handle(function, device, i);
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

}  // namespace

Library& library() {
  static auto& it = *new Library;
  return it;
}

nvmlReturn_t ordered(const Library& library, std::string_view function) {
  return error_of(library.table.failing, function);
}

nvmlReturn_t ordered(const Library& library, std::string_view function, const Gpu& gpu) {
  const nvmlReturn_t of_all = ordered(library, function);
  return of_all == NVML_SUCCESS ? error_of(gpu.failing, function) : of_all;
}

nvmlDevice_t handle_of(Library& library, size_t gpu) {
  return &library.handles[library.first_handle + gpu];
}

int gpu_of(const Library& library, nvmlDevice_t device) {
  for (size_t i = library.first_handle; i < library.handles.size(); ++i) {
    if (&library.handles[i] == device) return static_cast<int>(i - library.first_handle);
  }
  return -1;
}

nvmlReturn_t give_text(char* buffer, unsigned length, std::string_view text) {
  if (buffer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return NVML_SUCCESS;
}

void fill(nvmlPciInfo_t& pci, std::string_view bus_id, uint32_t device_id, uint32_t subsystem_id) {
  pci = {};
  pci.domain = hex(bus_id.substr(0, 8), 0xFFFF'FFFF).value_or(0);
  pci.bus = hex(bus_id.substr(9, 2), 0xFF).value_or(0);
  pci.device = hex(bus_id.substr(12, 2), 31).value_or(0);
  pci.pciDeviceId = device_id;
  pci.pciSubSystemId = subsystem_id;
  std::snprintf(pci.busId, sizeof pci.busId, NVML_DEVICE_PCI_BUS_ID_FMT, pci.domain, pci.bus, pci.device);
  std::snprintf(pci.busIdLegacy, sizeof pci.busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, pci.domain & 0xFFFF,
                pci.bus, pci.device);
}

}  // namespace shardscope::emulation::nvml

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nvml;  // NOLINT(google-build-using-namespace)

extern "C" {

void shardscope_fake_nvml_use(const MachineTable* table) {
  const std::lock_guard lock(library().mutex);
  library().used = table == nullptr ? nullptr : std::make_unique<MachineTable>(*table);
}

nvmlReturn_t nvmlInit_v2() {
  Library& it = library();
  const std::lock_guard lock(it.mutex);
  if (it.initialised > 0) {
    ++it.initialised;
    return NVML_SUCCESS;
  }
  try {
    it.table = it.used != nullptr ? *it.used : table_of(options_from_environment());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stand-in for NVML: %s\n", error.what());
    return NVML_ERROR_UNKNOWN;
  }
  if (const nvmlReturn_t failure = ordered(it, "nvmlInit_v2"); failure != NVML_SUCCESS) return failure;
  it.first_handle = it.handles.size();
  for (size_t i = 0; i < it.table.gpus.size(); ++i) it.handles.emplace_back();
  it.initialised = 1;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown() {
  Library& it = library();
  const std::lock_guard lock(it.mutex);
  if (it.initialised == 0) return NVML_ERROR_UNINITIALIZED;
  --it.initialised;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "success";
    case NVML_ERROR_UNINITIALIZED:
      return "not initialised";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "not supported";
    case NVML_ERROR_NO_PERMISSION:
      return "no permission";
    case NVML_ERROR_NOT_FOUND:
      return "not found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "buffer too small";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "driver not loaded";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "function not found";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED:
      return "GPU needs a reset";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return "driver and library of different versions";
    case NVML_ERROR_NO_DATA:
      return "no data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "argument of another version";
    default:
      return "unknown error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return call(__func__, [&](const MachineTable& table) { return give_text(version, length, table.driver_version); });
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return call(__func__, [&](const MachineTable& table) { return give(version, table.cuda_driver_version); });
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return call(__func__, [&](const MachineTable& table) { return give(count, table.gpus.size()); });
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return call(__func__, [&](const MachineTable& table) {
    if (index >= table.gpus.size()) return NVML_ERROR_INVALID_ARGUMENT;
    return give_handle("nvmlDeviceGetHandleByIndex_v2", device, index);
  });
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return find(__func__, uuid, device, [&](const Gpu& gpu) { return gpu.uuid == uuid; });
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
  const std::optional<std::string> whole = bus_id == nullptr ? std::nullopt : whole_bus_id(bus_id);
  return find(__func__, whole ? bus_id : nullptr, device, [&](const Gpu& gpu) { return gpu.pci_bus_id == *whole; });
}

}  // extern "C"
