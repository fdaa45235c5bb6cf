// Formats: Linux Documentation/filesystems/proc.rst, ABI/testing/sysfs-devices-system-cpu,
// ABI/stable/sysfs-devices-node, admin-guide/pm/cpufreq.rst and intel_pstate.rst, admin-guide/mm/transhuge.rst;
// os-release(5).
#include "topology/system.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "topology/container.hpp"
#include "topology/files.hpp"

namespace shardscope::topology {
namespace {

constexpr const char* kCores = "/sys/devices/system/cpu";

// ---- the system's and the machine's names ----

std::string join(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + " " + second;
}

std::string kernel_text(const std::string& root) {
  return join(first_line(root + "/proc/sys/kernel/ostype"), first_line(root + "/proc/sys/kernel/osrelease"));
}

/// The value of a shell assignment: quotes and the backslashes within double quotes taken away.
std::string unquoted(const std::string& value) {
  if (value.size() < 2 || value.front() != value.back() || (value.front() != '"' && value.front() != '\''))
    return value;
  std::string inner = value.substr(1, value.size() - 2);
  if (value.front() == '\'') return inner;
  std::string text;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] == '\\' && i + 1 < inner.size()) ++i;
    text += inner[i];
  }
  return text;
}

std::string distribution_text(const std::string& root) {
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (const char* path : {"/etc/os-release", "/usr/lib/os-release"}) {
    for (const std::string& line : read_lines(root + path)) {
      if (line.starts_with(kKey)) return trimmed(unquoted(trimmed(line.substr(kKey.size()))));
    }
  }
  return "";
}

/// A DMI field; empty where the board's maker left it as it came.
std::string dmi_field(const std::string& root, const std::string& field) {
  std::string text = first_line(root + "/sys/class/dmi/id/" + field);
  for (const char* unset : {"To Be Filled By O.E.M.", "To be filled by O.E.M.", "Default string", "Not Specified",
                            "System manufacturer", "System Product Name"}) {
    if (text == unset) return "";
  }
  return text;
}

std::string machine_text(const std::string& root) {
  const std::string vendor = dmi_field(root, "sys_vendor");
  const std::string product = dmi_field(root, "product_name");
  if (vendor.empty() && product.empty()) return first_line(root + "/proc/device-tree/model");  // most ARM boards
  return product.starts_with(vendor) ? product : join(vendor, product);  // "Google" makes "Google Compute Engine"
}

// ---- CPU ----

/// Of x86's `flags` and ARM's `Features`: the instruction sets that vector code is chosen by. (Not by the prefix "sme":
/// on x86 that is memory encryption, and the start of smep.)
bool chooses_kernels(const std::string& flag) {
  for (const char* family : {"avx", "amx", "sve"}) {
    if (flag.starts_with(family)) return true;
  }
  constexpr std::string_view kSingle[] = {"ssse3", "sse4_1", "sse4_2", "f16c",    "fma",     "bmi1", "bmi2", "gfni",
                                          "vaes",  "asimd",  "fphp",   "asimdhp", "asimddp", "bf16", "i8mm"};
  return std::find(std::begin(kSingle), std::end(kSingle), flag) != std::end(kSingle);
}

/// "key : value" of /proc/cpuinfo.
std::string key_of(const std::string& line) {
  return trimmed(std::string_view(line).substr(0, line.find(':')));
}
std::string value_of(const std::string& line) {
  const size_t colon = line.find(':');
  return colon == std::string::npos ? "" : trimmed(std::string_view(line).substr(colon + 1));
}

void read_flags(SystemFacts& facts, const std::vector<std::string>& cpuinfo) {
  const auto line = std::find_if(cpuinfo.begin(), cpuinfo.end(), [](const std::string& each) {
    return key_of(each) == "flags" || key_of(each) == "Features";
  });
  if (line == cpuinfo.end()) return;
  const std::vector<std::string> flags = words_of(value_of(*line));
  std::copy_if(flags.begin(), flags.end(), std::back_inserter(facts.cpu_flags), chooses_kernels);
  std::sort(facts.cpu_flags.begin(), facts.cpu_flags.end());
  if (key_of(*line) == "flags" && !flags.empty()) {
    facts.virtual_machine = std::find(flags.begin(), flags.end(), "hypervisor") != flags.end();
  }
}

/// Distinct packages, by sysfs or else by cpuinfo. A package of -1 is the kernel's "unknown".
std::optional<int> socket_count(const std::string& root, const std::vector<std::string>& cpuinfo) {
  std::set<int64_t> packages;
  for (const int core : numbered_entries(root + kCores, "cpu")) {
    const std::string path = root + kCores + "/cpu" + std::to_string(core) + "/topology/physical_package_id";
    if (const std::optional<int64_t> package = count_of(first_line(path))) packages.insert(*package);
  }
  if (packages.empty()) {
    for (const std::string& line : cpuinfo) {
      if (key_of(line) != "physical id") continue;
      if (const std::optional<int64_t> package = count_of(value_of(line))) packages.insert(*package);
    }
  }
  return packages.empty() ? std::nullopt : std::optional(static_cast<int>(packages.size()));
}

std::optional<double> read_mhz(const std::string& path) {
  const std::optional<double> khz = number_of(first_line(path));
  return khz && *khz > 0 ? std::optional(*khz / 1000) : std::nullopt;
}

std::optional<bool> read_turbo(const std::string& root, const std::string& policy) {
  if (const std::optional<bool> no_turbo = read_switch(root + kCores + "/intel_pstate/no_turbo")) return !*no_turbo;
  if (const std::optional<bool> boost = read_switch(root + kCores + "/cpufreq/boost")) return boost;
  return read_switch(policy + "/boost");  // newer drivers: by policy
}

void read_frequency(SystemFacts& facts, const std::string& root) {
  std::string policy = root + kCores + "/cpu0/cpufreq";
  for (const int core : numbered_entries(root + kCores, "cpu")) {
    const std::string own = root + kCores + "/cpu" + std::to_string(core) + "/cpufreq";
    if (!path_exists(own)) continue;
    policy = own;
    break;
  }
  facts.governor = first_line(policy + "/scaling_governor");
  facts.frequency_driver = first_line(policy + "/scaling_driver");
  facts.lowest_mhz = read_mhz(policy + "/scaling_min_freq");
  facts.highest_mhz = read_mhz(policy + "/scaling_max_freq");
  facts.turbo = read_turbo(root, policy);
}

std::optional<double> read_load_average(const std::string& root) {
  const std::vector<std::string> words = words_of(first_line(root + "/proc/loadavg"));
  const std::optional<double> load = words.empty() ? std::nullopt : number_of(words.front());
  return load && *load >= 0 ? load : std::nullopt;
}

// ---- memory ----

/// "MemTotal: 16 kB", a node's own as "Node 0 MemTotal: 16 kB".
std::optional<int64_t> meminfo_bytes(const std::vector<std::string>& lines, const std::string& key) {
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_of(line);
    const auto found = std::find(words.begin(), words.end(), key + ":");
    if (words.end() - found < 3) continue;
    const std::optional<int64_t> kib = count_of(found[1]);
    if (!kib || found[2] != "kB" || *kib > std::numeric_limits<int64_t>::max() / 1024) return std::nullopt;
    return *kib * 1024;
  }
  return std::nullopt;
}

void read_memory(SystemFacts& facts, const std::string& root) {
  const std::vector<std::string> lines = read_lines(root + "/proc/meminfo");
  facts.memory_bytes = meminfo_bytes(lines, "MemTotal");
  facts.memory_available_bytes = meminfo_bytes(lines, "MemAvailable");
  facts.swap_bytes = meminfo_bytes(lines, "SwapTotal");
  const std::string pages = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = pages.find('[');  // always [madvise] never
  const size_t close = pages.find(']', open == std::string::npos ? 0 : open);
  if (open != std::string::npos && close != std::string::npos) {
    facts.transparent_hugepages = pages.substr(open + 1, close - open - 1);
  }
  facts.numa_balancing = read_switch(root + "/proc/sys/kernel/numa_balancing");
}

std::vector<NumaNode> read_numa_nodes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const int id : numbered_entries(folder, "node")) {
    const std::string node = folder + "/node" + std::to_string(id);
    nodes.push_back({.id = id,
                     .cores = core_list_of(first_line(node + "/cpulist")).value_or(std::vector<int>{}),
                     .memory_bytes = meminfo_bytes(read_lines(node + "/meminfo"), "MemTotal")});
  }
  return nodes;
}

}  // namespace

SystemFacts probe_system(const std::string& root) {
  SystemFacts facts{.kernel = kernel_text(root),
                    .distribution = distribution_text(root),
                    .machine = machine_text(root),
                    .container = container_kind(root)};
  const std::vector<std::string> cpuinfo = read_lines(root + "/proc/cpuinfo");
  read_flags(facts, cpuinfo);
  facts.sockets = socket_count(root, cpuinfo);
  facts.smt_active = read_switch(root + kCores + "/smt/active");
  read_frequency(facts, root);
  facts.load_average = read_load_average(root);
  read_memory(facts, root);
  facts.numa_nodes = read_numa_nodes(root);
  return facts;
}

}  // namespace shardscope::topology
