#include "launch/plan_machine.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/plan_options.hpp"
#include "launch/topology_files.hpp"
#include "topology/catalogue.hpp"
#include "topology/gpu_names.hpp"

namespace shardscope::launch {
namespace {

using runtime::PlanMachine;
using topology::DevicePeaks;

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const DevicePeaks& peaks : topology::device_peaks()) names.emplace_back(peaks.name);
  return names;
}

PlanMachine usual_machine(const DevicePeaks& gpu) {
  PlanMachine machine{.name = "", .gpu = &gpu, .topology = topology::usual_topology(gpu)};
  machine.name = fmt::format("{} x {}", machine.gpus(), gpu.name);
  return machine;
}

/// What a topology says of its GPUs.
struct ToldGpus {
  const DevicePeaks* row = nullptr;  // of all; nullptr: not told
  std::string names;                 // as it has them
};

ToldGpus told_gpus(const topology::Topology& topology, const std::string& where) {
  std::set<const DevicePeaks*> rows;
  std::set<std::string> names;
  for (const topology::Gpu& gpu : topology.gpus) {
    if (gpu.name.empty()) continue;
    rows.insert(topology::peaks_of_name(gpu.name));
    names.insert(gpu.name);
  }
  const std::string text = fmt::format("{}", fmt::join(names, ", "));
  const bool alike = rows.size() <= 1 && (names.size() <= 1 || *rows.begin() != nullptr);
  if (!alike) {
    throw UserError(fmt::format("a machine of several kinds of GPUs: {}", text), where, "plan one of a single kind");
  }
  return {.row = rows.empty() ? nullptr : *rows.begin(), .names = text};
}

/// gpu: as --gpu has it, or empty.
const DevicePeaks& agreed_gpu(const ToldGpus& told, const std::string& gpu, const std::string& where) {
  if (!gpu.empty()) {
    const DevicePeaks& named = gpu_named(gpu, "--gpu");
    if (told.row == nullptr || told.row == &named) return named;
    throw UserError(
        fmt::format("--gpu {} and the GPUs of {}, which are {}, are not the same", named.name, where, told.row->name),
        "--gpu, --topology", "leave one of them out");
  }
  if (told.row != nullptr) return *told.row;
  throw UserError(told.names.empty() ? std::string("which GPU? The topology does not tell")
                                     : fmt::format("which GPU? Of '{}' nothing is known here", told.names),
                  where, fmt::format("add --gpu NAME, one of: {}", fmt::join(gpu_names(), ", ")));
}

PlanMachine machine_named(const std::string& name, const std::string& gpu, const char* option, Session& session) {
  PlanMachine machine{.name = name, .gpu = nullptr, .topology = topology_named(name, session, option)};
  if (const topology::Machine* known = topology::find_machine(name)) {
    machine.name = known->name;
  } else {
    machine.name = name == "-" ? "standard input" : std::filesystem::path(name).filename().string();
  }
  if (machine.gpus() < 1) {
    throw UserError("it does not tell of any GPU", fmt::format("{} {}", option, name),
                    "name a machine with GPUs, or --gpu alone");
  }
  const std::string where = fmt::format("{} {}", option, name);
  machine.gpu = &agreed_gpu(told_gpus(machine.topology, where), gpu, where);
  return machine;
}

}  // namespace

const DevicePeaks& gpu_named(const std::string& name, const char* option) {
  if (const DevicePeaks* peaks = topology::peaks_of_name(name)) return *peaks;
  return *topology::find_device_peaks(known_name(name, option, "GPU", gpu_names()));
}

PlanMachine plan_machine(const std::string& gpu, const std::string& topology, Session& session) {
  if (!topology.empty()) return machine_named(topology, gpu, "--topology", session);
  if (!gpu.empty()) return usual_machine(gpu_named(gpu, "--gpu"));
  throw UserError("on which GPUs?", "--gpu, --topology",
                  "add --topology NAME, such as aws-p4d, or --gpu NAME, such as a100-40gb (`shardscope plan --list` "
                  "shows all)");
}

PlanMachine machine_against(const std::string& name, const std::string& gpu, Session& session) {
  if (const DevicePeaks* peaks = topology::find_device_peaks(name)) return usual_machine(*peaks);
  if (topology::find_machine(name) != nullptr) return machine_named(name, "", "--against", session);
  return machine_named(name, gpu, "--against", session);
}

}  // namespace shardscope::launch
