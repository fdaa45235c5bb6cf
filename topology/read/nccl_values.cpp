// Values of attributes in NCCL's XML, and the numbers of GPUs by them.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/files.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/nccl_xml.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kLongestMask = 16384;  // of 64 Ki cores

}  // namespace

std::optional<std::vector<int>> nccl_mask(std::string_view mask) {
  std::vector<int> cores;
  int core = 0;
  if (mask.size() > kLongestMask) return std::nullopt;
  for (size_t i = mask.size(); i-- > 0;) {
    if (mask[i] == ',') continue;
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(mask[i] | 0x20));
    if (digit == std::string_view::npos || mask[i] < '0') return std::nullopt;
    for (int bit = 0; bit < 4; ++bit, ++core) {
      if ((digit >> bit & 1) != 0) cores.push_back(core);
    }
  }
  return cores;
}

std::string lower_name(std::string_view name) {
  std::string text = bounded_name(name);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return text;
}

std::optional<double> nccl_speed(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos || !text.substr(blank + 1).starts_with("GT/s")) return std::nullopt;
  const std::optional<double> speed = number_of(text.substr(0, blank));
  return speed && *speed > 0 && *speed <= 128 ? speed : std::nullopt;
}

std::optional<int> pcie_generation_of(double gt_per_s) {
  int generation = 1;
  for (const double speed : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
    if (gt_per_s == speed) return generation;
    ++generation;
  }
  return std::nullopt;
}

bool never_has_nvlink(const std::optional<std::string>& compute) {
  static const std::set<std::string> kNever = {"6.1", "6.2", "7.2", "8.7", "8.9", "12.0", "12.1"};
  return compute && (kNever.count(*compute) > 0 || (compute->size() == 3 && compute->front() < '6'));
}

void number_gpus(NcclSystem& system, Faults& faults) {
  std::set<int> taken;
  std::vector<NcclGpu*> without;
  for (NcclGpu& each : system.gpus) {
    if (each.device && taken.insert(*each.device).second) {
      each.gpu.index = *each.device;
    } else {
      without.push_back(&each);
    }
  }
  if (!without.empty() && !taken.empty()) {
    faults.note(
        fmt::format("line {}: a GPU has no number of its own: it got the next free one", without.front()->line));
  }
  int next = 0;
  for (NcclGpu* each : without) {
    while (!taken.insert(next).second) ++next;
    each->gpu.index = next;
  }
  std::stable_sort(system.gpus.begin(), system.gpus.end(),
                   [](const NcclGpu& a, const NcclGpu& b) { return a.gpu.index < b.gpu.index; });
}

}  // namespace shardscope::topology
