// p2pBandwidthLatencyTest of NVIDIA's CUDA samples: which GPUs reach each other, then bandwidths and latencies of all
// ordered pairs. It prints figures under "P2P=Enabled" also where P2P does not work (copies staged through the host),
// so that the connectivity matrix decides what they are.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/number_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostTables = 64;  // a run has nine

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_corner(std::string_view word) {
  return word == "D\\D" || word == "GPU" || word == "CPU";
}

/// A line that begins another table.
bool begins_table(std::string_view line) {
  const std::vector<std::string_view> words = split_words(line, 1);
  return contains(line, "atrix") || contains(line, "P2P=") || (!words.empty() && is_corner(words[0]));
}

/// "pciBusID: 1a" of a device line: hexadecimal.
std::optional<unsigned> hex_behind(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> words = split_words(line.substr(at + key.size()), 1);
  if (words.empty()) return std::nullopt;
  unsigned value = 0;
  for (const char c : words[0].substr(0, words[0].find(','))) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos || value > 0xffff) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return value;
}

std::string_view access_text(std::optional<double> cell) {
  if (!cell) return "";
  return *cell == 1 ? "OK" : *cell == 0 ? "NS" : "";
}

class PairTestReader {
 public:
  explicit PairTestReader(const SourceText& source) : text_(plain_text(source.text)), cursor_{.rest = text_} {
    topology_.source = SourceKind::kP2pBandwidthTest;
    topology_.file = source.file;
    topology_.nics_known = false;
  }

  std::optional<Topology> read() {
    std::string_view line;
    while (cursor_.next(line)) read_line(line);
    miss_table();
    if (!ours_) return std::nullopt;
    if (gpus_ == 0) {
      throw UserError("a p2pBandwidthLatencyTest without a table", topology_.file, "give the whole output of one run");
    }
    if (tables_.empty()) faults_.fault(fmt::format("line {}: the text ends before its tables", cursor_.number));
    fill_gpus(gpus_, topology_);
    for (const Gpu& device : devices_) topology_.gpus[static_cast<size_t>(device.index)] = device;
    for (const NumberTable& each : tables_) {
      if (each.size != gpus_) {
        faults_.fault(fmt::format("line {}: a table of {} GPUs, others have {}", each.line, each.size, gpus_));
      }
    }
    fill_connectivity();
    fill_measurements();
    if (topology_.measurements.empty() && !topology_.p2p) {
      throw UserError("a p2pBandwidthLatencyTest without figures", topology_.file, "give the whole output of one run");
    }
    const bool titled =
        std::any_of(meanings_.begin(), meanings_.end(), [](const auto& m) { return !m.second.empty(); });
    const bool ended = std::any_of(meanings_.begin(), meanings_.end(),
                                   [](const auto& m) { return contains(m.second, "P2P=Enabled Latency"); });
    if (titled && !ended) {
      faults_.note(
          "The latencies with P2P, which are the last table of a run, are not there: the text may have been cut");
    }
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  enum class Meaning { kConnectivity, kBandwidth, kLatency, kIgnored };

  void read_line(std::string_view line) {
    std::vector<std::string_view> words = split_words(line, kMostGpus + 8);
    while (!words.empty() && (words.front() == "#" || words.front() == ">")) words.erase(words.begin());
    if (words.empty()) return;
    const bool title = contains(line, "atrix") || contains(line, "P2P=");
    ours_ = ours_ || (title && contains(line, "P2P")) || contains(line, "GPU Bandwidth Latency Test");
    if (line.starts_with("Device")) {
      read_device(line, words);
    } else if (title) {
      miss_table();
      awaits_table_ = true;
      title_ = line;
      title_line_ = cursor_.number;
    } else if (is_corner(words[0]) && (words[0] == "D\\D" || contains(title_, "atency"))) {
      read_table(words);
    }
  }

  void read_device(std::string_view line, const std::vector<std::string_view>& words) {
    // "Device=0 CAN Access Peer Device=1"
    if (words.size() == 5 && words[2] == "Access" && (words[1] == "CAN" || words[1] == "CANNOT")) {
      const std::optional<int> from = number_after(words[0], "Device="), to = number_after(words[4], "Device=");
      if (from && to) access_.push_back({*from, *to, words[1] == "CAN"});
      return;
    }
    // "Device: 0, NVIDIA GeForce RTX 4090, pciBusID: 2, pciDeviceID: 0, pciDomainID:0"
    const size_t bus = line.find(", pciBusID:");
    if (words[0] != "Device:" || words.size() < 3 || bus == std::string_view::npos || !words[1].ends_with(',')) return;
    const std::optional<int> index = number_after(words[1].substr(0, words[1].size() - 1), "");
    const auto name = static_cast<size_t>(words[2].data() - line.data());
    if (!index || static_cast<size_t>(*index) >= kMostGpus || name > bus || devices_.size() == kMostGpus) return;
    Gpu gpu{.index = *index};
    gpu.name = bounded_name(line.substr(name, bus - name));
    const auto number = hex_behind(line, "pciBusID:"), device = hex_behind(line, "pciDeviceID:");
    const auto domain = hex_behind(line, "pciDomainID:");
    if (number && device && domain) gpu.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", *domain, *number, *device);
    devices_.push_back(std::move(gpu));
    gpus_ = std::max(gpus_, static_cast<size_t>(*index) + 1);
  }

  void miss_table() {
    if (awaits_table_) faults_.fault(fmt::format("line {}: the table below this title is missing", title_line_));
    awaits_table_ = false;
  }

  void read_table(const std::vector<std::string_view>& words) {
    awaits_table_ = false;
    const std::optional<size_t> columns = columns_of_head(words, 1, TableLabels::kNumbers);
    if (!columns) {
      if (words[0] == "D\\D") ours_ = true;
      faults_.fault(fmt::format("line {}: the head of a table is damaged: its figures are unknown", cursor_.number));
      title_.clear();
      return;
    }
    ours_ = true;
    if (tables_.size() == kMostTables) {
      throw UserError(fmt::format("more than {} tables", kMostTables), topology_.file, "give one run's output");
    }
    Meaning meaning = Meaning::kIgnored;
    // Times of the CPU's side are those of launches.
    if (contains(title_, "onnectivity")) meaning = Meaning::kConnectivity;
    if (contains(title_, "andwidth")) meaning = Meaning::kBandwidth;
    if (contains(title_, "atency") && words[0] != "CPU") meaning = Meaning::kLatency;
    NumberTable table = read_number_table(cursor_, *columns, TableLabels::kNumbers, false, begins_table, faults_);
    if (title_.empty()) {
      meaning = table.is_boolean() ? Meaning::kConnectivity : Meaning::kBandwidth;
      faults_.note(
          fmt::format("line {}: a table without a title, taken as {}", table.line,
                      meaning == Meaning::kConnectivity
                          ? "connectivity"
                          : "bandwidths in GB/s; whether P2P was on, and in one direction or both, is not told"));
    }
    if (contains(title_, "andwidth") + contains(title_, "atency") + contains(title_, "onnectivity") != 1 &&
        !title_.empty()) {
      faults_.fault(fmt::format("line {}: the title {} is damaged: what the table holds is unknown", title_line_,
                                quoted(title_)));
      meaning = Meaning::kIgnored;
    }
    gpus_ = std::max(gpus_, table.size);
    tables_.push_back(std::move(table));
    meanings_.push_back({meaning, title_});
    if (words[0] == "D\\D") title_.clear();
  }

  /// 1 is access, 0 is none. Access is mutual: where the two halves differ, one is damaged.
  void fill_connectivity() {
    Matrix<std::string> p2p(gpus_, std::vector<std::string>(gpus_));
    bool known = false;
    for (const auto& [from, to, can] : access_) {
      if (static_cast<size_t>(std::max(from, to)) >= gpus_) continue;
      p2p[static_cast<size_t>(from)][static_cast<size_t>(to)] = std::string(access_text(can ? 1 : 0));
      known = true;
    }
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (meanings_[i].first != Meaning::kConnectivity) continue;
      for (size_t from = 0; from < tables_[i].size; ++from) {
        for (size_t to = 0; to < tables_[i].size; ++to) {
          const std::optional<double>& cell = tables_[i].cells[from][to];
          known = known || cell;
          p2p[from][to] = std::string(access_text(cell));
          if (!cell || *cell == 0 || *cell == 1) continue;
          faults_.fault(fmt::format("line {}: row {}, column {} of the connectivity matrix is neither 0 nor 1",
                                    tables_[i].line, from, to));
        }
      }
    }
    for (size_t i = 0; i < gpus_; ++i) {
      p2p[i][i].assign(1, 'X');
      for (size_t j = 0; j < i; ++j) {
        if (p2p[i][j] == p2p[j][i] || p2p[i][j].empty() || p2p[j][i].empty()) continue;
        faults_.fault(fmt::format("connectivity of GPUs {} and {} differs by direction: unknown", j, i));
        p2p[i][j].clear();
        p2p[j][i].clear();
      }
    }
    if (known) topology_.p2p = std::move(p2p);
  }

  void fill_measurements() {
    bool staged = false, untold = false;
    for (size_t i = 0; i < tables_.size(); ++i) {
      const auto& [kind, title] = meanings_[i];
      if (kind != Meaning::kBandwidth && kind != Meaning::kLatency) continue;
      TableMeaning meaning;
      if (kind == Meaning::kLatency) meaning.kind = Measurement::Kind::kP2pLatency;
      if (contains(title, "Unidirectional")) meaning.both_ways = false;
      if (contains(title, "Bidirectional")) meaning.both_ways = true;
      meaning.row_receives = contains(title, "(P2P Reads)");
      const bool enabled = contains(title, "P2P=Enabled ");
      if (enabled || contains(title, "P2P=Disabled ")) meaning.p2p = enabled;
      const size_t before = topology_.measurements.size();
      append_measurements(tables_[i], meaning, topology_);
      if (!enabled) continue;
      for (size_t m = before; m < topology_.measurements.size(); ++m) {
        Measurement& each = topology_.measurements[m];
        each.p2p.reset();
        if (topology_.p2p) {
          const auto from = static_cast<size_t>(*each.from), to = static_cast<size_t>(*each.to);
          if (const std::string& access = (*topology_.p2p)[from][to]; !access.empty()) each.p2p = access == "OK";
        }
        staged = staged || each.p2p == false;
        untold = untold || !each.p2p;
      }
    }
    if (staged) {
      faults_.note(
          "Some or all GPUs cannot reach each other (0 in the connectivity matrix): figures of those pairs under "
          "P2P=Enabled "
          "are copies staged through the host's memory");
    }
    if (untold)
      faults_.note("Whether figures under P2P=Enabled are P2P is unknown: the connectivity matrix does not tell");
  }

  struct Access {
    int from, to;
    bool can;
  };

  const std::string text_;
  LineCursor cursor_;
  Topology topology_;
  Faults faults_;
  std::vector<Gpu> devices_;
  std::vector<Access> access_;
  std::vector<NumberTable> tables_;
  std::vector<std::pair<Meaning, std::string>> meanings_;  // of each table, with its title
  std::string title_;
  int title_line_ = 0;
  size_t gpus_ = 0;
  bool ours_ = false, awaits_table_ = false;
};

}  // namespace

std::optional<Topology> read_p2p_bandwidth_test(const SourceText& source) {
  return PairTestReader(source).read();
}

}  // namespace shardscope::topology
