// What NVML says of one GPU.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include <fmt/format.h>

#include "topology/host.hpp"
#include "topology/nvml/nvml_library.hpp"

namespace shardscope::topology {

namespace nvml_api {

std::string bus_id_of(const PciInfo& pci) {
  // Where a remote end is hidden, NVML gives addresses out of range (all bits set), or nothing at all.
  constexpr unsigned kMostBus = 0xFF;
  constexpr unsigned kMostDevice = 31;
  const bool nothing = pci.domain == 0 && pci.bus == 0 && pci.device == 0 && pci.device_and_vendor == 0;
  if (pci.bus > kMostBus || pci.device > kMostDevice || nothing) return "";
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

}  // namespace nvml_api

namespace {

using namespace nvml_api;  // NOLINT(google-build-using-namespace): the library's names

constexpr int kMostLinks = 64;  // more than any GPU has
constexpr double kThousand = 1000;

std::string text_of(AskText function, Device device) {
  std::array<char, 128> text{};  // nvml.h: 96 suffice
  if (call(function, device, text.data(), static_cast<unsigned>(text.size())) != kSuccess) return "";
  text.back() = '\0';
  return text.data();
}

std::optional<int> count_of(AskCount function, Device device) {
  const std::optional<unsigned> count = ask<unsigned>(function, device);
  return count && *count <= INT_MAX ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

/// Of mW.
std::optional<double> watts_of(AskCount function, Device device) {
  const std::optional<unsigned> milliwatts = ask<unsigned>(function, device);
  return milliwatts ? std::optional(*milliwatts / kThousand) : std::nullopt;
}

std::optional<double> mhz_of(AskClock function, Device device, unsigned clock) {
  const std::optional<unsigned> mhz = ask<unsigned>(function, device, clock);
  return mhz && *mhz > 0 ? std::optional<double>(*mhz) : std::nullopt;
}

/// The numbers of the bits of a set; empty: not told.
std::vector<int> members_of(AskSet function, Device device) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 128> words{};  // 8192 CPUs
  if (call(function, device, static_cast<unsigned>(words.size()), words.data(), kScopeNode) != kSuccess) return {};
  std::vector<int> members;
  for (int i = 0; i < kBits * static_cast<int>(words.size()); ++i) {
    if ((words[static_cast<size_t>(i / kBits)] >> (i % kBits) & 1) != 0) members.push_back(i);
  }
  return members;
}

std::vector<std::string> clock_reasons(const Functions& functions, Device device) {
  std::optional<unsigned long long> bits = ask<unsigned long long>(functions.event_reasons, device);
  if (!bits) bits = ask<unsigned long long>(functions.throttle_reasons, device);
  std::vector<std::string> words;
  for (const ClockReason& reason : kClockReasons) {
    if (reason.bit == kIdle) continue;  // nothing holds back who has nothing to do
    if ((bits.value_or(0) & reason.bit) != 0) words.emplace_back(reason.word);
  }
  return words;
}

std::optional<int> other_processes(const Functions& functions, Device device) {
  unsigned count = 0;
  const Return counted = call(functions.processes, device, &count, static_cast<ProcessInfo*>(nullptr));
  if (counted == kSuccess && count == 0) return 0;
  if (counted != kSuccess && counted != kInsufficientSize) return std::nullopt;
  constexpr unsigned kSpare = 16;  // for those that start meanwhile
  constexpr unsigned kMost = 1u << 16;
  count = std::min(count, kMost) + kSpare;
  // Twice the space that is told: drivers of the 530 series write longer records under the same name.
  std::vector<ProcessInfo> infos(2 * size_t{count});
  const unsigned told = count;
  if (call(functions.processes, device, &count, infos.data()) != kSuccess || count > told) return std::nullopt;
  const auto own = static_cast<unsigned>(getpid());
  return static_cast<int>(
      std::count_if(infos.begin(), infos.begin() + count, [&](const ProcessInfo& info) { return info.pid != own; }));
}

std::string fabric_word(unsigned state, Return status) {
  switch (state) {
    case kFabricNotSupported:
      return "not supported";
    case kFabricNotStarted:
      return "not started";
    case kFabricInProgress:
      return "in progress";
    case kFabricCompleted:
      return status == kSuccess ? "completed" : "completed with an error";
    default:
      return "";
  }
}

std::string fabric_state(const Functions& functions, Device device) {
  for (const unsigned version : {kFabricVersion3, kFabricVersion2}) {
    FabricInfoV info{.version = version};
    const Return result = call(functions.fabric_v, device, &info);
    if (result == kSuccess) return fabric_word(info.state, info.status);
    if (result == kNotSupported) return "not supported";
  }
  FabricInfo info{};
  const Return result = call(functions.fabric, device, &info);
  if (result == kSuccess) return fabric_word(info.state, info.status);
  return result == kNotSupported ? "not supported" : "";
}

// ---- NVLinks ----

std::optional<int> generation_of(std::optional<unsigned> version) {
  if (!version) return std::nullopt;
  switch (*version) {
    case kNvLink1:
      return 1;
    case kNvLink2:
    case kNvLink22:
      return 2;
    case kNvLink3:
    case kNvLink31:
      return 3;
    case kNvLink4:
      return 4;
    case kNvLink5:
      return 5;
    default:
      return std::nullopt;
  }
}

std::optional<double> field_gb_per_s(const Functions& functions, Device device, unsigned field, unsigned scope) {
  FieldValue value{.field = field, .scope = scope};
  if (call(functions.fields, device, 1, &value) != kSuccess || value.result != kSuccess) return std::nullopt;
  const unsigned mb_per_s = value.value.count;
  return mb_per_s > 0 ? std::optional(mb_per_s / kThousand) : std::nullopt;
}

/// By the field that newer drivers have for every link, else by the one of links 0 to 11, else the one of all links.
std::optional<double> link_gb_per_s(const Functions& functions, Device device, unsigned link) {
  constexpr unsigned kFirstRow = 6;
  constexpr unsigned kBothRows = 12;
  std::optional<double> speed = field_gb_per_s(functions, device, kFieldSpeed, link);
  if (!speed && link < kBothRows) {
    const unsigned field = link < kFirstRow ? kFieldSpeedL0 + link : kFieldSpeedL6 + link - kFirstRow;
    speed = field_gb_per_s(functions, device, field, 0);
  }
  return speed ? speed : field_gb_per_s(functions, device, kFieldSpeedCommon, 0);
}

NvLinkPort::Remote remote_of(std::optional<unsigned> type) {
  if (type == kRemoteGpu) return NvLinkPort::Remote::kGpu;
  if (type == kRemoteSwitch) return NvLinkPort::Remote::kSwitch;
  if (type == kRemoteIbmNpu) return NvLinkPort::Remote::kCpu;
  return NvLinkPort::Remote::kUnknown;
}

NvLinkPort port_of(const Functions& functions, Device device, unsigned link, bool active) {
  NvLinkPort port{.link = static_cast<int>(link), .active = active};
  port.generation = generation_of(ask<unsigned>(functions.link_version, device, link));
  if (!active) return port;
  port.remote = remote_of(ask<unsigned>(functions.link_remote_type, device, link));
  if (const std::optional<PciInfo> pci = ask<PciInfo>(functions.link_remote, device, link)) {
    port.remote_bus_id = bus_id_of(*pci);
  }
  port.gb_per_s = link_gb_per_s(functions, device, link);
  return port;
}

/// Ports, and how many are up: unknown as soon as one's state is. Numbers that a GPU has no link of may lie between
/// others.
void read_links(Gpu& gpu, const Functions& functions, Device device) {
  int up = 0;
  bool all_told = functions.link_state != nullptr;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned state = kDisabled;
    const Return result = call(functions.link_state, device, link, &state);
    if (result == kSuccess) {
      gpu.ports.push_back(port_of(functions, device, link, state == kEnabled));
      if (state == kEnabled) ++up;
    } else if (result != kNotSupported && result != kInvalidArgument) {
      all_told = false;
      break;  // such a GPU answers no better for the next
    }
  }
  if (all_told) gpu.nvlinks = up;
}

// ---- health ----

void read_pcie(Gpu& gpu, const Functions& functions, Device device) {
  gpu.pcie_generation = count_of(functions.pcie_generation, device);
  gpu.pcie_width = count_of(functions.pcie_width, device);
  gpu.pcie_generation_most = count_of(functions.pcie_generation_most, device);
  gpu.pcie_width_most = count_of(functions.pcie_width_most, device);
}

void read_health(Gpu& gpu, const Functions& functions, Device device) {
  if (const std::optional<Memory> memory = ask<Memory>(functions.memory, device)) {
    gpu.memory_bytes = static_cast<int64_t>(memory->total);
  }
  // The highest: an idle GPU's memory runs slower, and a peak is what this figure is for.
  gpu.memory_clock_mhz = mhz_of(functions.clock_most, device, kClockMemory);
  if (!gpu.memory_clock_mhz) gpu.memory_clock_mhz = mhz_of(functions.clock, device, kClockMemory);
  gpu.memory_bus_bits = count_of(functions.bus_width, device);
  gpu.clock_mhz = mhz_of(functions.clock, device, kClockSm);
  gpu.clock_mhz_most = mhz_of(functions.clock_most, device, kClockSm);
  gpu.slowed_by = clock_reasons(functions, device);
  if (const std::optional<unsigned> celsius = ask<unsigned>(functions.temperature, device, kTemperatureGpu)) {
    gpu.temperature_celsius = static_cast<int>(*celsius);
  }
  gpu.power_watts = watts_of(functions.power, device);
  gpu.power_limit_watts = watts_of(functions.power_limit, device);
  if (const std::optional<unsigned> on = ask<unsigned>(functions.persistence, device)) gpu.persistence = *on != 0;
  unsigned mig = 0;
  unsigned pending = 0;
  const Return told = call(functions.mig, device, &mig, &pending);
  if (told == kSuccess) gpu.mig = mig != 0;
  if (told == kNotSupported) gpu.mig = false;  // a GPU that has none
  gpu.fabric = fabric_state(functions, device);
  gpu.processes = other_processes(functions, device);
}

}  // namespace

Gpu Nvml::gpu(int position) const {
  Gpu gpu{.index = position};
  const Device device = library_->device(position);
  if (device == nullptr) return gpu;
  const Functions& functions = library_->functions;
  gpu.name = text_of(functions.name, device);
  gpu.uuid = text_of(functions.uuid, device);
  if (const std::optional<PciInfo> pci = ask<PciInfo>(functions.pci, device)) gpu.pci_bus_id = bus_id_of(*pci);
  gpu.numa_nodes = members_of(functions.memory_affinity, device);
  gpu.cpu_affinity = core_list_text(members_of(functions.cpu_affinity, device));
  gpu.gpu_numa_id = count_of(functions.numa_node, device);
  int major = 0;
  int minor = 0;
  if (call(functions.compute, device, &major, &minor) == kSuccess) gpu.compute = fmt::format("{}.{}", major, minor);
  read_links(gpu, functions, device);
  read_pcie(gpu, functions, device);
  read_health(gpu, functions, device);
  return gpu;
}

std::string Nvml::trouble(int position) const {
  if (position < 0 || position >= gpu_count()) return "";
  const Library::Gpu& gpu = library_->gpus[static_cast<size_t>(position)];
  const auto text = [&](Return result, std::string_view question) {
    return fmt::format("{} ({})", library_->error_text(result), question);
  };
  if (gpu.device == nullptr) return text(gpu.result, "nvmlDeviceGetHandleByIndex_v2");
  const Functions& functions = library_->functions;
  PciInfo pci{};
  Memory memory{};
  unsigned celsius = 0;
  unsigned state = 0;
  const std::pair<const char*, Return> questions[] = {
      {"nvmlDeviceGetPciInfo_v3", call(functions.pci, gpu.device, &pci)},
      {"nvmlDeviceGetMemoryInfo", call(functions.memory, gpu.device, &memory)},
      {"nvmlDeviceGetNvLinkState", call(functions.link_state, gpu.device, 0u, &state)},
      {"nvmlDeviceGetTemperature", call(functions.temperature, gpu.device, kTemperatureGpu, &celsius)}};
  for (const auto& [question, result] : questions) {
    if (result != kSuccess && !knows_no_answer(result)) return text(result, question);
  }
  return "";
}

}  // namespace shardscope::topology
