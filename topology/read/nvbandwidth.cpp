// nvbandwidth: one table a test. Only those between two GPUs become measurements; tables between CPU and GPU say
// nothing of links between GPUs. A test that cannot run (no second GPU, no peer access) is waived.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/number_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostTables = 256;  // a run has some forty

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_title(std::string_view line) {
  return contains(line, "(row)") || contains(line, "(column)");
}

bool begins_other(std::string_view line) {
  return is_title(line) || line.starts_with("Running ") || line.starts_with("SUM ") || line.starts_with("Waived");
}

/// "(00000009:01:00)" at the end of a device line as "0009:01:00.0"; empty: none.
std::string bus_id_of(std::string_view line) {
  const size_t open = line.rfind('(');
  if (open == std::string_view::npos || line.size() - open < 16) return "";
  std::string id(line.substr(open + 1, 14));
  for (char& c : id) c = c >= 'A' && c <= 'F' ? static_cast<char>(c | 0x20) : c;
  const bool good = line[open + 15] == ')' && id.starts_with("0000") && id[8] == ':' && id[11] == ':' &&
                    id.find_first_not_of("0123456789abcdef:") == std::string::npos;
  return good ? id.substr(4) + ".0" : "";
}

class BandwidthReader {
 public:
  explicit BandwidthReader(const SourceText& source) : text_(plain_text(source.text)), cursor_{.rest = text_} {
    topology_.source = SourceKind::kNvbandwidth;
    topology_.file = source.file;
    topology_.nics_known = false;
  }

  std::optional<Topology> read() {
    std::string_view line;
    while (cursor_.next(line)) read_line(line);
    if (!ours_) return std::nullopt;
    if (tables_ == 0 && waived_ == 0) {
      throw UserError("an output of nvbandwidth without a table", topology_.file, "give the whole output of one run");
    }
    const size_t gpus = std::max(devices_.size(), pair_columns_);
    if (!devices_.empty() && std::max(columns_, pair_columns_) > devices_.size()) {
      faults_.fault(fmt::format("line {}: a table has {} GPUs, but {} {} listed", widest_line_,
                                std::max(columns_, pair_columns_), devices_.size(),
                                devices_.size() == 1 ? "device is" : "devices are"));
    }
    if (gpus > 0) {
      fill_gpus(gpus, topology_);
      for (size_t i = 0; i < devices_.size(); ++i) topology_.gpus[i] = devices_[i];
    }
    if (waived_ > 0) faults_.note(fmt::format("{} tests were waived: they cannot run on this machine", waived_));
    if (topology_.measurements.empty())
      faults_.note("There are no figures between GPUs: nothing is known of their links");
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  void read_line(std::string_view line) {
    const std::vector<std::string_view> words = split_words(line, 4);
    if (words.empty()) return;
    if (words[0] == "nvbandwidth" && words.size() > 1 && words[1] == "Version:") ours_ = true;
    if (words[0] == "Waived:" || (words.size() == 2 && words[1] == "waived.")) ++waived_;
    if (words[0] == "Running" && words.size() > 1) {
      test_ = bounded_name(words[1].substr(0, words[1].find_last_not_of('.') + 1));
    }
    if (words[0] == "Device" && words.size() > 2 && words[1].ends_with(':')) read_device(line, words);
    if (is_title(line) && (contains(line, "andwidth (GB/s)") || contains(line, "atency")))
      read_table(std::string(line));
  }

  /// "Device 0: NVIDIA GH200 480GB (00000009:01:00)"
  void read_device(std::string_view line, const std::vector<std::string_view>& words) {
    const std::optional<int> index = number_after(words[1].substr(0, words[1].size() - 1), "");
    if (!index || static_cast<size_t>(*index) != devices_.size() || devices_.size() == kMostGpus) {
      faults_.fault(fmt::format("line {}: a device out of order: which GPUs there are is doubtful", cursor_.number));
      return;
    }
    const auto begin = static_cast<size_t>(words[2].data() - line.data());
    std::string_view name = line.substr(begin, line.rfind('(') - begin);
    while (name.ends_with(' ')) name.remove_suffix(1);
    Gpu gpu{.index = *index, .name = bounded_name(name), .pci_bus_id = bus_id_of(line)};
    devices_.push_back(std::move(gpu));
  }

  void read_table(const std::string& title) {
    const LineCursor before = cursor_;
    std::string_view line;
    if (!cursor_.next(line)) return;
    const std::optional<size_t> columns = columns_of_head(split_words(line, kMostGpus + 1), 0, TableLabels::kNumbers);
    const bool pairs = contains(title, "GPU(row)") && contains(title, "GPU(column)");
    if (!columns) {
      cursor_ = before;
      if (pairs) {
        faults_.fault(fmt::format("line {}: the head of a table is damaged: its figures are unknown", before.number));
      }
      return;
    }
    Faults ignored;
    const NumberTable table =
        read_number_table(cursor_, *columns, TableLabels::kNumbers, !pairs, begins_other, pairs ? faults_ : ignored);
    ours_ = true;
    if (++tables_ > kMostTables) {
      throw UserError(fmt::format("more than {} tables", kMostTables), topology_.file, "give one run's output");
    }
    if (table.size > std::max(columns_, pair_columns_) && pairs) widest_line_ = table.line;
    if (pairs) {
      pair_columns_ = std::max(pair_columns_, table.size);
      append_pairs(title, table);
    } else if (*columns > columns_) {
      columns_ = *columns;
      if (columns_ > pair_columns_) widest_line_ = table.line;
    }
  }

  void append_pairs(const std::string& title, const NumberTable& table) {
    // Of a test in both directions, the figures of each ("Read1", "Write2") and their total are printed: the total.
    for (const char* const part : {"Read1", "Read2", "Write1", "Write2"}) {
      if (contains(title, part)) return;
    }
    // Peers that cannot reach each other are left out by the tool ("N/A").
    TableMeaning meaning{.p2p = true, .algorithm = test_};
    if (contains(title, "atency")) {
      if (!contains(title, "(ns)")) return;
      meaning.kind = Measurement::Kind::kP2pLatency;
      meaning.unit = 1e-3;
    } else if (contains(title, "GPU(row) <-> GPU(column)")) {
      meaning.both_ways = true;
    } else if (contains(title, "GPU(row) -> GPU(column)") || contains(title, "GPU(row) <- GPU(column)")) {
      meaning.both_ways = false;
      meaning.row_receives = contains(title, "<-");
    } else {
      faults_.fault(fmt::format("line {}: the title of a table does not tell its direction", table.line - 1));
      return;
    }
    append_measurements(table, meaning, topology_);
  }

  const std::string text_;
  LineCursor cursor_;
  Topology topology_;
  Faults faults_;
  std::vector<Gpu> devices_;
  std::string test_;  // that runs
  size_t columns_ = 0, pair_columns_ = 0;
  int tables_ = 0, waived_ = 0, widest_line_ = 0;
  bool ours_ = false;
};

}  // namespace

std::optional<Topology> read_nvbandwidth(const SourceText& source) {
  return BandwidthReader(source).read();
}

}  // namespace shardscope::topology
