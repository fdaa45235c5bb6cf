// `nvidia-smi nvlink -s`: the NVLink ports of each GPU, up or not, and their speed. Not where they lead to.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/reading.hpp"
#include "topology/read/text_table.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostPorts = 64;
constexpr double kMostGbPerS = 1000;  // of a port: more is damage

/// A GPU as it was found, with what is wrong with its ports.
struct FoundGpu {
  Gpu gpu;
  int line = 0;
  bool sound = true;  // every port is there and told
};

class StatusReader {
 public:
  StatusReader(const std::string& file, Faults& faults) : file_(file), faults_(faults) {}

  void take(std::string_view line, int number) {
    const std::vector<std::string_view> words = split_words(line, 64);
    if (words.empty()) return;
    last_is_port_ = false;
    const size_t most = std::min<size_t>(words.size(), 5);
    for (size_t at = 0; at + 1 < most; ++at) {
      const std::string_view next = words[at + 1];
      const bool colon = next.ends_with(":");
      const std::optional<int> index = number_after(colon ? next.substr(0, next.size() - 1) : next, "");
      if (!index || (words[at] != "GPU" && words[at] != "Link")) continue;
      if (words[at] == "GPU" && colon) return take_gpu(line, *index, number);
      if (words[at] == "Link")
        return take_port({words.begin() + static_cast<std::ptrdiff_t>(at) + 2, words.end()}, *index, colon, number);
    }
  }

  bool has_ports() const {
    const auto told = [](const NvLinkPort& port) { return port.active.has_value(); };
    return std::any_of(gpus_.begin(), gpus_.end(), [&](const FoundGpu& found) {
      return std::any_of(found.gpu.ports.begin(), found.gpu.ports.end(), told);
    });
  }
  bool ends_in_port() const { return last_is_port_; }
  std::vector<FoundGpu>& gpus() { return gpus_; }

 private:
  void take_gpu(std::string_view line, int index, int number) {
    const auto same = [&](const FoundGpu& found) { return found.gpu.index == index; };
    if (const auto known = std::find_if(gpus_.begin(), gpus_.end(), same); known != gpus_.end()) {
      // `nvidia-smi -L` before it names the GPUs too.
      if (!known->gpu.ports.empty()) {
        faults_.fault(
            fmt::format("Lines {} and {} both begin GPU {}: the second is left out.", known->line, number, index));
        current_ = nullptr;
        skipping_ = true;
        return;
      }
      gpus_.erase(known);
    }
    if (gpus_.size() == kMostGpus) {
      throw UserError(fmt::format("not a topology of one machine: more than {} GPUs", kMostGpus),
                      fmt::format("{} line {}", file_, number), "give the output for one machine");
    }
    FoundGpu& found = gpus_.emplace_back();
    found.gpu.index = index;
    found.line = number;
    std::string_view name = line.substr(line.find(':') + 1);
    const size_t uuid = name.find("(UUID:");
    if (uuid != name.npos) {
      std::string_view id = name.substr(uuid + 6);
      id = id.substr(0, id.find(')'));
      if (id.find("...") == id.npos && id.size() <= 128) found.gpu.uuid = trimmed(id);
      name = name.substr(0, uuid);
    }
    found.gpu.name = trimmed(name.substr(0, 128));
    current_ = &found;
    skipping_ = false;
  }

  void take_port(const std::vector<std::string_view>& words, int link, bool colon, int number) {
    if (skipping_) return;
    if (current_ == nullptr) {
      if (colon && is_status(words)) lost_ports_ = true;
      if (lost_ports_) faults_.fault(fmt::format("Line {}: a link, but of which GPU is not told.", number));
      return;
    }
    std::vector<NvLinkPort>& ports = current_->gpu.ports;
    if (!is_status(words)) {
      // Links of other options (-c, -R) are no status, but one that is cut may be.
      const std::string_view word = words.empty() ? std::string_view() : words.front();
      const bool other = !colon || word == "Remote" || word == "P2P" || word == "Data";
      if (other) return;
      current_->sound = false;
      faults_.fault(
          fmt::format("Line {} (GPU {}): the state of link {} is not clear.", number, current_->gpu.index, link));
    }
    if (link != static_cast<int>(ports.size()) || ports.size() == kMostPorts) {
      current_->sound = false;
      faults_.fault(fmt::format("Line {} (GPU {}): link {} where link {} is due.", number, current_->gpu.index, link,
                                ports.size()));
      if (ports.size() == kMostPorts) return;
    }
    const bool known = std::any_of(ports.begin(), ports.end(), [&](const NvLinkPort& p) { return p.link == link; });
    if (known) return;
    NvLinkPort& port = ports.emplace_back(NvLinkPort{.link = link});
    if (is_status(words)) {
      port.active = words.front() != "<inactive>";
      if (*port.active) port.gb_per_s = number_of(words.front());
    }
    last_is_port_ = true;
  }

  /// "25.781 GB/s" or "<inactive>".
  static bool is_status(const std::vector<std::string_view>& words) {
    if (words.size() == 1) return words[0] == "<inactive>";
    if (words.size() != 2 || words[1] != "GB/s") return false;
    const std::optional<double> speed = number_of(words[0]);
    return speed && *speed > 0 && *speed <= kMostGbPerS;
  }

  const std::string& file_;
  Faults& faults_;
  std::vector<FoundGpu> gpus_;
  FoundGpu* current_ = nullptr;
  bool skipping_ = false;
  bool lost_ports_ = false;
  bool last_is_port_ = false;
};

/// GPUs of one name list equally many links; the last may also be short of what its model has.
void find_short_lists(std::vector<FoundGpu>& gpus, bool ends_in_port, Faults& faults) {
  for (FoundGpu& found : gpus) {
    size_t most = 0;
    for (const FoundGpu& other : gpus) {
      if (other.gpu.name == found.gpu.name) most = std::max(most, other.gpu.ports.size());
    }
    const bool last = &found == &gpus.back();
    const size_t model = static_cast<size_t>(full_link_count(found.gpu.name).value_or(0));
    if (last && ends_in_port) most = std::max(most, model);
    if (found.gpu.ports.size() >= most) continue;
    found.sound = false;
    faults.fault(fmt::format("GPU {} (line {}): {} links are listed, where there should be {}.", found.gpu.index,
                             found.line, found.gpu.ports.size(), most));
  }
}

}  // namespace

std::optional<Topology> read_nvlink_status(const SourceText& source) {
  if (source.text.find("Link") == source.text.npos) return std::nullopt;
  const std::string plain = plain_text(source.text);
  Faults faults;
  StatusReader reader(source.file, faults);
  LineCursor cursor{plain};
  std::string_view line;
  bool dots = false;
  while (cursor.next(line)) {
    reader.take(line, cursor.number);
    dots = dots || (!line.empty() && line.find_first_not_of(". ") == line.npos && line.find("...") != line.npos);
  }
  if (!reader.has_ports()) return std::nullopt;
  find_short_lists(reader.gpus(), reader.ends_in_port(), faults);
  Topology topology{.source = SourceKind::kNvlinkStatus, .file = source.file, .nics_known = false};
  int due = 0;
  bool gap = false;
  std::vector<std::string> names;
  for (FoundGpu& found : reader.gpus()) {
    gap = gap || found.gpu.index != due++;
    names.push_back(fmt::format("GPU{}", found.gpu.index));
    if (found.sound) {
      found.gpu.nvlinks = static_cast<int>(std::count_if(found.gpu.ports.begin(), found.gpu.ports.end(),
                                                         [](const NvLinkPort& port) { return port.active == true; }));
    }
    topology.gpus.push_back(std::move(found.gpu));
  }
  topology.gpu_count = static_cast<int>(topology.gpus.size());
  if (gap || dots) {
    faults.fault(fmt::format("Not all GPUs of the machine are listed: there {} {} alone.",
                             names.size() == 1 ? "is" : "are", listed(names)));
  }
  std::move(faults).move_to(topology);
  return topology;
}

}  // namespace shardscope::topology
