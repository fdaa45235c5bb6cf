// Sources of formats: Linux Documentation/filesystems/proc.rst (stat, meminfo, status), Open MPI's FAQ "How do I set
// the value of MCA parameters?" (mca-params.conf), NCCL's user guide (nccl.conf).
#include "launch/doctor_facts.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "topology/cgroup.hpp"
#include "topology/files.hpp"
#include "topology/nvml.hpp"
#include "topology/probe.hpp"

namespace shardscope::launch {
namespace {

using nlohmann::json;
using topology::count_of;
using topology::first_line;
using topology::read_lines;
using topology::words_of;

/// "name = value" of a file; "#" begins a comment.
void read_settings(const std::string& path, Variables& settings) {
  for (const std::string& line : read_lines(path)) {
    const std::string text = line.substr(0, line.find('#'));
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    settings[topology::trimmed(text.substr(0, equals))] = topology::trimmed(text.substr(equals + 1));
  }
}

std::optional<HostFacts::Room> room_of(const std::string& path) {
  struct statvfs facts {};
  if (statvfs(path.c_str(), &facts) != 0) return std::nullopt;
  const auto unit = static_cast<int64_t>(facts.f_frsize);
  return HostFacts::Room{.bytes = static_cast<int64_t>(facts.f_blocks) * unit,
                         .free_bytes = static_cast<int64_t>(facts.f_bavail) * unit};
}

struct DriverAnswer {
  bool nvml = false;
  std::string why_not, version;
};

DriverAnswer ask_driver_now() {
  DriverAnswer answer;
  if (const std::unique_ptr<topology::Nvml> nvml = topology::Nvml::open(answer.why_not)) {
    answer.nvml = true;
    answer.version = nvml->driver_version().value_or("");
  }
  return answer;
}

/// In a thread of its own, which is left behind if the driver never answers: nothing can end a call into it. The
/// topology was asked for before, so that a driver that is only slow has started by now.
DriverAnswer ask_driver() {
  constexpr std::chrono::seconds kLimit{20};
  std::packaged_task<DriverAnswer()> task(ask_driver_now);
  std::future<DriverAnswer> answer = task.get_future();
  std::thread thread(std::move(task));
  if (answer.wait_for(kLimit) == std::future_status::ready) {
    thread.join();
    return answer.get();
  }
  thread.detach();
  return {.nvml = false, .why_not = fmt::format("NVML has not answered within {} s", kLimit.count()), .version = {}};
}

GpuFacts read_gpus(const std::string& home, const std::string& root) {
  const auto begin = std::chrono::steady_clock::now();
  GpuFacts gpus{.pci = read_pci(root),
                .module_text = first_line(root + "/proc/driver/nvidia/version"),
                .files = device_files(root),
                .nvml = false,
                .why_not = {},
                .driver = {},
                .seconds = 0,
                .topology = topology::probe_topology(root),
                .nccl_settings = {}};
  DriverAnswer answer = ask_driver();
  gpus.nvml = answer.nvml;
  gpus.why_not = std::move(answer.why_not);
  gpus.driver = std::move(answer.version);
  gpus.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const std::string& path : {root + "/etc/nccl.conf", home.empty() ? home : root + home + "/.nccl.conf"}) {
    Variables settings;
    if (!path.empty()) read_settings(path, settings);
    for (const auto& [name, value] : settings) gpus.nccl_settings.push_back(name + "=" + value);
  }
  return gpus;
}

template <typename Value>
json json_of(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

template <typename Value>
std::optional<Value> optional_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

}  // namespace

std::string text_of(const RankFacts& facts) {
  json devices = json::array();
  for (const SeenDevice& device : facts.devices) {
    devices.push_back({device.ordinal, device.name, device.uuid, device.pci_bus_id, device.refusal});
  }
  const json document = {{"rank", facts.rank},
                         {"host_rank", facts.host_rank},
                         {"host", facts.host},
                         {"launcher_cores", facts.launcher_cores},
                         {"cores", facts.cores},
                         {"threads", facts.threads},
                         {"locked_bytes", json_of(facts.locked_bytes)},
                         {"seccomp", json_of(facts.seccomp)},
                         {"variables", facts.variables},
                         {"copy_errno", json_of(facts.copy_errno)},
                         {"devices", std::move(devices)},
                         {"why_no_device", facts.why_no_device},
                         {"driver_cuda", facts.driver_cuda},
                         {"build_cuda", facts.build_cuda}};
  // Names of hosts and values of variables may be any bytes.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankFacts rank_facts_of(std::string_view text) {
  try {
    const json document = json::parse(text);
    RankFacts facts{.rank = document.at("rank").get<int>(),
                    .host_rank = document.at("host_rank").get<int>(),
                    .host = document.at("host").get<std::string>(),
                    .launcher_cores = document.at("launcher_cores").get<std::vector<int>>(),
                    .cores = document.at("cores").get<std::vector<int>>(),
                    .threads = document.at("threads").get<int>(),
                    .locked_bytes = optional_of<int64_t>(document.at("locked_bytes")),
                    .seccomp = optional_of<int>(document.at("seccomp")),
                    .variables = document.at("variables").get<Variables>(),
                    .copy_errno = optional_of<int>(document.at("copy_errno")),
                    .devices = {},
                    .why_no_device = document.at("why_no_device").get<std::string>(),
                    .driver_cuda = document.at("driver_cuda").get<int>(),
                    .build_cuda = document.at("build_cuda").get<int>()};
    for (const json& device : document.at("devices")) {
      facts.devices.push_back({.ordinal = device.at(0).get<int>(),
                               .name = device.at(1).get<std::string>(),
                               .uuid = device.at(2).get<std::string>(),
                               .pci_bus_id = device.at(3).get<std::string>(),
                               .refusal = device.at(4).get<std::string>()});
    }
    return facts;
  } catch (const json::exception&) {
    throw BugError("facts of a rank that are none");
  }
}

std::optional<double> stolen_share(const std::string& root) {
  // cpu user nice system idle iowait irq softirq steal
  constexpr size_t kUser = 1, kNice = 2, kSystem = 3, kIrq = 6, kSoftirq = 7, kSteal = 8;
  const std::vector<std::string> words = words_of(first_line(root + "/proc/stat"));
  if (words.size() <= kSteal || words[0] != "cpu") return std::nullopt;
  double busy = 0;
  for (const size_t word : {kUser, kNice, kSystem, kIrq, kSoftirq, kSteal}) {
    const std::optional<int64_t> ticks = count_of(words[word]);
    if (!ticks) return std::nullopt;
    busy += static_cast<double>(*ticks);
  }
  if (busy <= 0) return std::nullopt;
  return static_cast<double>(*count_of(words[kSteal])) / busy;
}

std::optional<int64_t> swap_used_bytes(const std::string& root) {
  std::optional<int64_t> total, unused;  // KiB
  for (const std::string& line : read_lines(root + "/proc/meminfo")) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2) continue;
    if (words[0] == "SwapTotal:") total = count_of(words[1]);
    if (words[0] == "SwapFree:") unused = count_of(words[1]);
  }
  constexpr int64_t kKibi = 1024;
  if (!total || !unused || *unused > *total) return std::nullopt;
  return (*total - *unused) * kKibi;
}

Variables mpi_settings(const std::string& home, const std::string& root) {
  Variables settings;
  read_settings(root + "/etc/openmpi/openmpi-mca-params.conf", settings);
  if (!home.empty()) read_settings(root + home + "/.openmpi/mca-params.conf", settings);
  return settings;
}

std::vector<DeviceFile> device_files(const std::string& root) {
  std::vector<DeviceFile> files;
  const auto add = [&](const std::string& path) {
    if (!topology::path_exists(root + path)) return;
    files.push_back({.path = path, .usable = access((root + path).c_str(), R_OK | W_OK) == 0});
  };
  add("/dev/nvidiactl");
  add("/dev/nvidia-uvm");
  for (const int number : topology::numbered_entries(root + "/dev", "nvidia")) {
    add("/dev/nvidia" + std::to_string(number));
  }
  return files;
}

std::optional<int> seccomp_mode(const std::string& root) {
  for (const std::string& line : read_lines(root + "/proc/self/status")) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() != 2 || words[0] != "Seccomp:") continue;
    const std::optional<int64_t> mode = count_of(words[1]);
    return mode ? std::optional(static_cast<int>(*mode)) : std::nullopt;
  }
  return std::nullopt;
}

HostFacts read_host(const std::string& host, const std::string& home, const std::string& root) {
  std::error_code error;
  HostFacts facts{.host = host,
                  .cpu = topology::probe_host(),
                  .system = topology::probe_system(root),
                  .memory_limit_bytes = topology::cgroup_memory_limit(root),
                  .shared_memory = room_of(root + "/dev/shm"),
                  .swap_used_bytes = swap_used_bytes(root),
                  .stolen_share = stolen_share(root),
                  .ptrace_scope = std::nullopt,
                  .infiniband = !std::filesystem::is_empty(root + "/sys/class/infiniband", error) && !error,
                  .mpi_settings = mpi_settings(home, root),
                  .gpus = read_gpus(home, root)};
  if (const std::optional<int64_t> scope = count_of(first_line(root + "/proc/sys/kernel/yama/ptrace_scope"))) {
    facts.ptrace_scope = static_cast<int>(*scope);
  }
  return facts;
}

}  // namespace shardscope::launch
