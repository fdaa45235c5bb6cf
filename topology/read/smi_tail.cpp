// What stands behind the cells of a GPU's row of `nvidia-smi topo -m`: CPU affinity, NUMA affinity, GPU NUMA ID.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/read/gpu_table.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostCores = 64 * 1024;
constexpr int kMostNodes = 1023;

bool is_none(const std::string& word) {
  return word == "N/A" || word == "-";
}

/// Puts a blank before each "N/A" that lost it.
std::vector<std::string> split_none(const std::vector<std::string>& words) {
  std::vector<std::string> split;
  for (std::string word : words) {
    size_t nones = 0;
    while (word.size() > 3 && word.ends_with("N/A")) {
      word.resize(word.size() - 3);
      ++nones;
    }
    split.push_back(std::move(word));
    split.insert(split.end(), nones, "N/A");
  }
  return split;
}

/// Whether all ranges of the list have one length, and there are several: so are cores of hyperthreads listed.
bool has_equal_ranges(std::string_view list) {
  std::set<int> lengths;
  int ranges = 0;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    const std::optional<std::vector<int>> cores = ascending_list(range, kMostCores);
    if (!cores) return false;
    lengths.insert(static_cast<int>(cores->size()));
    ++ranges;
    list.remove_prefix(std::min(list.size(), range.size() + 1));
  }
  return ranges > 1 && lengths.size() == 1;
}

/// "0-31,64-950" as "0-31,64-95" and "0", where one way alone makes sense: the cores are those of another row, or
/// only so are the ranges equally long.
std::optional<size_t> split_of_fused(const std::string& word, const std::set<std::string>& other_rows) {
  std::optional<size_t> chosen;
  for (size_t at = 1; at < std::min<size_t>(word.size(), 1024); ++at) {
    const std::string cores = word.substr(0, at);
    if (!is_ascending_list(cores, kMostCores) || !is_ascending_list(word.substr(at), kMostNodes)) continue;
    if (word[at] == '0' && at + 1 < word.size() && word[at + 1] >= '0' && word[at + 1] <= '9') continue;
    const bool sane = other_rows.contains(cores) || (has_equal_ranges(cores) && !has_equal_ranges(word));
    if (!sane) continue;
    if (chosen) return std::nullopt;
    chosen = at;
  }
  return chosen;
}

struct TailReader {
  const GpuTable& table;
  Topology& topology;
  Faults& faults;
  std::set<std::string> cores = {};           // of rows that are whole
  std::vector<std::string> without_end = {};  // GPUs whose row ends before its last columns

  std::vector<TailColumn> columns_for(size_t words) const {
    static const std::vector<TailColumn> kAll = {TailColumn::kCpus, TailColumn::kNuma, TailColumn::kGpuNuma};
    if (table.tail) return *table.tail;
    return {kAll.begin(), kAll.begin() + static_cast<std::ptrdiff_t>(std::min(words, kAll.size()))};
  }

  void set(Gpu& gpu, TailColumn column, const std::string& word, int line) {
    if (is_none(word)) return;
    const std::optional<std::vector<int>> list =
        ascending_list(word, column == TailColumn::kCpus ? kMostCores : kMostNodes);
    if (!list || (column == TailColumn::kGpuNuma && list->size() != 1)) {
      const char* const name = column == TailColumn::kCpus   ? "CPU affinity"
                               : column == TailColumn::kNuma ? "NUMA affinity"
                                                             : "GPU NUMA ID";
      faults.fault(fmt::format("Line {} (GPU{}): the {} {} cannot be.", line, gpu.index, name, quoted(word)));
      return;
    }
    switch (column) {
      case TailColumn::kCpus:
        gpu.cpu_affinity = word;
        break;
      case TailColumn::kNuma:
        gpu.numa_nodes = *list;
        break;
      case TailColumn::kGpuNuma:
        gpu.gpu_numa_id = list->front();
        break;
    }
  }

  void read(const TableRow& row, Gpu& gpu) {
    std::vector<std::string> words = split_none(row.tail);
    const std::vector<TailColumn> columns = columns_for(words.size());
    const bool cores_first = !columns.empty() && columns.front() == TailColumn::kCpus;
    if (words.size() + 1 == columns.size() && cores_first && columns.size() > 1 && !words.empty()) {
      if (const std::optional<size_t> at = split_of_fused(words.front(), cores)) {
        faults.note(fmt::format("Line {} (GPU{}): {} was split into cores and NUMA node.", row.line, gpu.index,
                                quoted(words.front())));
        words.insert(words.begin() + 1, words.front().substr(*at));
        words.front().resize(*at);
      }
    }
    const bool bare_number = !table.tail && words.size() == 1 && words.front().find('-', 1) == std::string::npos;
    if (words.size() < columns.size() || row.cut || (bare_number && !is_none(words.front()))) {
      // Which cell is missing is not certain, except that a list of cores at the front is one.
      const bool list = !words.empty() && words.front().find('-', 1) != std::string::npos;
      const auto begin = words.begin() + (words.empty() ? 0 : 1);
      const bool rest_none = std::all_of(begin, words.end(), is_none);
      if (cores_first && list && rest_none) set(gpu, TailColumn::kCpus, words.front(), row.line);
      const bool lost_nothing = !row.cut && words.size() + 1 == columns.size() && list && words.size() > 1 && rest_none;
      if (!lost_nothing && !columns.empty()) without_end.push_back(fmt::format("GPU{}", gpu.index));
      return;
    }
    if (words.size() > columns.size() && !(columns.empty() && !table.tail)) {
      faults.fault(fmt::format("Line {} (GPU{}): {} is more than the columns hold.", row.line, gpu.index,
                               quoted(words[columns.size()])));
    }
    for (size_t i = 0; i < columns.size(); ++i) set(gpu, columns[i], words[i], row.line);
    // Where GPUs' memory is a NUMA node, the list holds such nodes too, behind that of the CPU.
    if (gpu.gpu_numa_id && !gpu.numa_nodes.empty())
      gpu.numa_nodes.erase(gpu.numa_nodes.begin() + 1, gpu.numa_nodes.end());
  }
};

}  // namespace

void read_smi_tails(const GpuTable& table, Topology& topology, Faults& faults) {
  TailReader reader{table, topology, faults};
  for (const TableRow& row : table.rows) {
    const std::vector<std::string> words = split_none(row.tail);
    if (table.tail && words.size() == table.tail->size() && !words.empty()) reader.cores.insert(words.front());
  }
  for (const TableRow& row : table.rows) {
    const TableColumn& column = table.columns[row.column];
    if (column.kind != TableColumn::Kind::kGpu) continue;
    const auto gpu = std::find_if(topology.gpus.begin(), topology.gpus.end(),
                                  [&](const Gpu& candidate) { return candidate.index == column.gpu; });
    reader.read(row, *gpu);
  }
  if (!reader.without_end.empty()) {
    faults.fault(fmt::format("Rows end early or unclear, so that their last columns (affinity) are unknown: {}.",
                             listed(reader.without_end)));
  }
}

}  // namespace shardscope::topology
