#include "tests/emulation/fakes/machine_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::emulation {
namespace {

// The buses of a DGX A100's and of a DGX H100's GPUs, as their user guides list them.
constexpr int kAmpereBuses[kMostGpus] = {0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD};
constexpr int kHopperBuses[kMostGpus] = {0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF};
constexpr int kGpusPerNode = kMostGpus / 2;

/// A well-mixed word (the finaliser of SplitMix64): for UUIDs that look like any, and stay the same.
uint64_t mixed(uint64_t word) {
  word += 0x9E3779B97F4A7C15;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
  return word ^ (word >> 31);
}

std::string uuid_of(const GpuModel& model, int index) {
  const uint64_t high = mixed(uint64_t{model.pci_device_id} << 32 | model.pci_subsystem_id);
  const uint64_t first = mixed(high + static_cast<uint64_t>(index));
  const uint64_t second = mixed(first);
  return fmt::format("GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", first >> 32, first >> 16 & 0xFFFF, first & 0xFFFF,
                     second >> 48, second & 0xFFFF'FFFF'FFFF);
}

[[noreturn]] void contradict(const std::string& what, const std::string& where, std::string_view what_to_do) {
  throw UserError(what, where, what_to_do);
}

/// Whether `text` is like `pattern`, in which h stands for a hex digit (lower case) and H for one (upper case).
bool is_like(std::string_view text, std::string_view pattern) {
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(), [](char c, char p) {
    const bool digit = c >= '0' && c <= '9';
    if (p == 'h') return digit || (c >= 'a' && c <= 'f');
    if (p == 'H') return digit || (c >= 'A' && c <= 'F');
    return c == p;
  });
}

/// "", or ranges and single CPUs in ascending order.
bool is_cpu_list(std::string_view text) {
  const std::vector<int> cpus = cpus_of(text);
  return text.empty() || (!cpus.empty() && std::is_sorted(cpus.begin(), cpus.end()) &&
                          std::adjacent_find(cpus.begin(), cpus.end()) == cpus.end());
}

void check_gpu(const MachineTable& table, size_t index, const std::string& where) {
  const Gpu& gpu = table.gpus[index];
  const auto name = [&](std::string_view member) { return fmt::format("gpus[{}].{}", index, member); };
  if (gpu.model == nullptr) contradict(name("model") + " is missing", where, "use one of " + model_keys());
  if (!is_like(gpu.uuid, "GPU-hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh")) {
    contradict(fmt::format("{} is \"{}\"", name("uuid"), gpu.uuid), where,
               "use GPU- and 32 lower-case hex digits in groups of 8-4-4-4-12");
  }
  if (!is_like(gpu.pci_bus_id, "HHHHHHHH:HH:HH.0")) {
    contradict(fmt::format("{} is \"{}\"", name("pci_bus_id"), gpu.pci_bus_id), where,
               "write it as nvidia-smi does: 00000000:1B:00.0, hex digits in upper case");
  }
  if (static_cast<int>(gpu.links.size()) > gpu.model->links) {
    contradict(fmt::format("{} has {} links", name("links"), gpu.links.size()), where,
               fmt::format("{} has at most {}", gpu.model->key, gpu.model->links));
  }
  for (const NvLink& link : gpu.links) {
    const bool another =
        link.to >= 0 && link.to < static_cast<int>(table.gpus.size()) && link.to != static_cast<int>(index);
    if (link.to != NvLink::kSwitch && !another) {
      contradict(fmt::format("{} leads to {}", name("links"), link.to), where, "use \"switch\" or another GPU's index");
    }
  }
  if (!is_cpu_list(gpu.cpu_affinity)) {
    contradict(fmt::format("{} is \"{}\"", name("cpu_affinity"), gpu.cpu_affinity), where,
               "list CPUs below 1024 as 0-23,48-71, or give \"\" for a driver that does not tell");
  }
  if (gpu.pcie_generation > gpu.model->pcie_generation) {
    contradict(fmt::format("{} is {}", name("pcie_generation"), gpu.pcie_generation), where,
               fmt::format("{} has at most {}", gpu.model->key, gpu.model->pcie_generation));
  }
  if ((gpu.fabric != Fabric::kNotSupported) && !gpu.model->joins_fabric) {
    contradict(name("fabric") + " has a state", where,
               fmt::format("{} has no fabric state: \"not-supported\"", gpu.model->key));
  }
  if (gpu.clock_khz > gpu.model->clock_khz || gpu.memory_clock_khz > gpu.model->memory_clock_khz) {
    contradict(name("clock_khz") + " or memory_clock_khz is higher than the model's", where,
               fmt::format("use at most {} and {}", gpu.model->clock_khz, gpu.model->memory_clock_khz));
  }
}

template <class T>
void check_square(const std::vector<std::vector<T>>& matrix, size_t size, const char* name, const std::string& where) {
  if (matrix.size() == size &&
      std::all_of(matrix.begin(), matrix.end(), [&](const auto& row) { return row.size() == size; })) {
    return;
  }
  contradict(fmt::format("{} is no square of {} rows", name, size), where, "give one row and one column per GPU");
}

int links_between(const MachineTable& table, size_t from, size_t to) {
  const std::vector<NvLink>& links = table.gpus[from].links;
  return static_cast<int>(
      std::count_if(links.begin(), links.end(), [&](const NvLink& link) { return link.to == static_cast<int>(to); }));
}

void check_pair(const MachineTable& table, size_t a, size_t b, const std::string& where) {
  const auto name = [&](std::string_view what) { return fmt::format("{} of GPUs {} and {}", what, a, b); };
  if (table.distances[a][b] != table.distances[b][a]) {
    contradict(name("distances") + " differ by direction", where, "give one distance for the pair");
  }
  if ((table.distances[a][b] == Distance::kSelf) != (a == b)) {
    contradict(name("distances") + " are X where they must not be, or are not where they must", where,
               "use X on the diagonal and nowhere else");
  }
  if (a == b && table.peers[a][b] != PeerAccess::kWorks) {
    contradict(fmt::format("peers[{}][{}] is not X", a, b), where, "use X on the diagonal");
  }
  if (links_between(table, a, b) != links_between(table, b, a)) {
    contradict(fmt::format("{} has {} links to {}, which has {} back", a, links_between(table, a, b), b,
                           links_between(table, b, a)),
               where, "give both ends of each link");
  }
  if (a != b && (table.gpus[a].uuid == table.gpus[b].uuid || table.gpus[a].pci_bus_id == table.gpus[b].pci_bus_id)) {
    contradict(name("uuid or pci_bus_id") + " are the same", where, "give each its own");
  }
}

}  // namespace

std::vector<int> cpus_of(std::string_view text) {
  constexpr int kMostCpus = 1024;
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at != end) {
    int first = 0;
    std::from_chars_result read = std::from_chars(at, end, first);
    int last = first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc{} || first < 0 || last < first || last >= kMostCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = read.ptr;
    if (at == end) return cpus;
    if (*at != ',' || ++at == end) return {};
  }
  return cpus;
}

MachineTable make_table(std::string_view key, int gpus) {
  const GpuModel* const model = find_model(key);
  if (model == nullptr) {
    throw UserError(fmt::format("unknown GPU model \"{}\"", key), "emulated machine", "use one of " + model_keys());
  }
  if (gpus < 1 || gpus > kMostGpus) {
    throw UserError(fmt::format("{} GPUs", gpus), "emulated machine", fmt::format("use 1 to {}", kMostGpus));
  }
  const auto count = static_cast<size_t>(gpus);
  MachineTable table;
  for (int i = 0; i < gpus; ++i) {
    const int bus = model->compute_major == 8 ? kAmpereBuses[i] : kHopperBuses[i];
    table.gpus.push_back({.model = model,
                          .uuid = uuid_of(*model, i),
                          .pci_bus_id = fmt::format("00000000:{:02X}:00.0", bus),
                          .numa_node = i / kGpusPerNode,
                          .links = std::vector<NvLink>(static_cast<size_t>(model->links)),
                          .pcie_generation = model->pcie_generation,
                          .fabric = model->joins_fabric ? Fabric::kCompleted : Fabric::kNotSupported,
                          .clock_khz = model->clock_khz,
                          .memory_clock_khz = model->memory_clock_khz});
  }
  table.peers.assign(count, std::vector<PeerAccess>(count, PeerAccess::kWorks));
  table.distances.assign(count, std::vector<Distance>(count, Distance::kSys));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      if (table.gpus[a].numa_node == table.gpus[b].numa_node) table.distances[a][b] = Distance::kNode;
    }
    table.distances[a][a] = Distance::kSelf;
  }
  return table;
}

void check_table(const MachineTable& table, const std::string& where) {
  const size_t count = table.gpus.size();
  if (count < 1 || count > kMostGpus) {
    contradict(fmt::format("gpus has {} entries", count), where, fmt::format("give 1 to {}", kMostGpus));
  }
  check_square(table.peers, count, "peers", where);
  check_square(table.distances, count, "distances", where);
  for (size_t i = 0; i < count; ++i) check_gpu(table, i, where);
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) check_pair(table, a, b, where);
    if (a > 0 && table.gpus[a - 1].pci_bus_id > table.gpus[a].pci_bus_id) {
      contradict(fmt::format("gpus[{}].pci_bus_id is less than that before it", a), where,
                 "list GPUs in the order of their PCI bus ids, as drivers do");
    }
  }
}

}  // namespace shardscope::emulation
