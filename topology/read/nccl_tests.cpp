// nccl-tests (all_reduce_perf): runs of rows by size. The out-of-place columns are taken, which every version prints.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/read/collective_run.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/number_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostWords = 48;      // of a line that counts
constexpr size_t kLongestLine = 4096;  // its later part says nothing
constexpr size_t kMostRuns = 256;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

using Words = std::vector<std::string_view>;

/// The word after the first that equals `name`; empty: none.
std::string_view word_after(const Words& words, std::string_view name) {
  const auto found = std::find(words.begin(), words.end(), name);
  return found == words.end() || found + 1 == words.end() ? std::string_view() : *(found + 1);
}

/// Where a head's columns stand.
struct Columns {
  size_t count = 0, time = 0, algbw = 0, busbw = 0, redop = 0;
};

class RunReader {
 public:
  explicit RunReader(const SourceText& source) : text_(plain_text(source.text)), cursor_{.rest = text_} {
    topology_.source = SourceKind::kNcclTests;
    topology_.file = source.file;
    topology_.nics_known = false;
  }

  std::optional<Topology> read() {
    std::string_view line;
    while (cursor_.next(line)) read_line(line.substr(0, kLongestLine));
    if (!ours_) return std::nullopt;
    finish_run();
    if (topology_.measurements.empty()) {
      throw UserError(failure_.empty() ? "a table of nccl-tests without rows"
                                       : fmt::format("a run of nccl-tests that failed ({}) and has no rows", failure_),
                      fmt::format("{}, line {}", topology_.file, failure_.empty() ? head_line_ : failure_line_),
                      "give the output of a run that succeeded");
    }
    if (!failure_.empty()) faults_.fault(fmt::format("line {}: a run failed: {}", failure_line_, failure_));
    if (gpus_ > 0) {
      fill_gpus(gpus_, topology_);
      if (ranks_.size() == gpus_) topology_.gpus = ranks_;
    }
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  void read_line(std::string_view line) {
    Words words = split_words(line, kMostWords);
    while (!words.empty() && (words.front() == "#" || words.front() == ">")) words.erase(words.begin());
    if (words.empty()) return;
    const size_t perf = line.find("_perf");
    const bool command = perf != std::string_view::npos && !contains(line, "concluded") && !contains(line, "NCCL INFO");
    if (command) read_command(line, perf, words);
    read_environment(line, command);
    if (words[0] == "nThread" || words[0] == "nthread") return read_options(words);
    if (contains(line, "Out of bounds values") || contains(line, "Avg bus bandwidth")) run_.ended = true;
    if (words[0] == "Rank") return read_rank(line, words);
    if (words[0] == "size" && word_after(words, "size") == "count" && contains(line, "busbw")) return read_head(words);
    if (contains(line, "Test CUDA failure") || contains(line, "Test NCCL failure") || contains(line, "Test failure")) {
      if (failure_.empty()) {
        failure_ = bounded_name(line.substr(line.find("Test ")));
        failure_line_ = cursor_.number;
      }
      return;
    }
    const bool numbers =
        count_of(words[0]) && (words.size() == 1 ? columns_.count > 0 : count_of(words[1]).has_value());
    if (numbers) read_row(line, words);
  }

  /// A command or the line that tells what runs. The options stand for the next table.
  void read_command(std::string_view line, size_t perf, const Words& words) {
    size_t begin = perf;
    while (begin > 0 && ((line[begin - 1] >= 'a' && line[begin - 1] <= 'z') || line[begin - 1] == '_')) --begin;
    const bool starting = contains(line, "Collective test starting");
    begin_run();
    if (!starting) reset_run();
    run_.collective = bounded_name(line.substr(begin, perf - begin));
    if (starting) {
      ours_ = true;
      return;
    }
    std::optional<int64_t> gpus = count_of(word_after(words, "-g"));
    if (!gpus) gpus = count_of(word_after(words, "--ngpus"));
    const bool several = contains(line, "mpirun") || contains(line, "srun") || contains(line, "mpiexec");
    if (several) gpus = count_of(word_after(words, "-np"));
    if (gpus && *gpus > 0 && *gpus <= 1024) run_.told_gpus = static_cast<size_t>(*gpus);
    run_.least_bytes = size_of_option(word_after(words, "-b"));
    run_.most_bytes = size_of_option(word_after(words, "-e"));
    run_.factor = count_of(word_after(words, "-f"));
    read_launch_options(line.substr(std::min(line.find(' ', perf), line.size())), run_);
  }

  /// Set on a command's line, for that run; on a line of its own ("export"), from there on.
  void read_environment(std::string_view line, bool command) {
    std::optional<bool> off;
    for (const std::string_view name : {"NCCL_P2P_DISABLE=", "NCCL_P2P_DISABLE set by environment to "}) {
      const size_t at = line.find(name);
      if (at == std::string_view::npos || at + name.size() >= line.size()) continue;
      const char value = line[at + name.size()];
      if (value == '0' || value == '1') off = value == '1';
    }
    if (!off) return;
    const std::optional<bool> p2p = *off ? std::optional(false) : std::nullopt;
    if (!command && contains(line, "export ")) exported_p2p_ = p2p;
    run_.p2p = p2p;
  }

  /// "nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) …": of one process.
  void read_options(const Words& words) {
    ours_ = true;
    begin_run();
    run_.ranks.clear();
    run_.processes.clear();
    const std::optional<int64_t> threads = count_of(word_after(words, words[0]));
    std::optional<int64_t> gpus = count_of(word_after(words, "nGpus"));
    if (!gpus) gpus = count_of(word_after(words, "ngpus"));
    if (threads && gpus && *threads > 0 && *threads <= 1024 && *gpus > 0 && *gpus <= 1024) {
      run_.told_gpus = std::max(run_.told_gpus.value_or(0), static_cast<size_t>(*threads * *gpus));
    }
    if (threads) run_.threads = threads;
    if (gpus) run_.gpus_of_thread = gpus;
    if (const std::optional<int64_t> graphs = count_of(word_after(words, "graph:"))) run_.graph = *graphs > 0;
    run_.least_bytes = count_of(word_after(words, "minBytes"));
    run_.most_bytes = count_of(word_after(words, "maxBytes"));
    run_.factor.reset();
    const std::string_view step = word_after(words, "step:");
    const size_t open = std::min(step.find('('), step.size());
    const std::optional<int64_t> by = count_of(step.substr(0, open));
    (step.substr(open) == "(factor)" ? run_.factor : run_.step_bytes) = by;
  }

  /// "Rank  0 Group  0 Pid  15386 on host device  0 [0000:19:00] NVIDIA H100 80GB HBM3"
  void read_rank(std::string_view line, const Words& words) {
    begin_run();
    const std::optional<int64_t> rank = count_of(word_after(words, "Rank"));
    const std::optional<int64_t> device = count_of(word_after(words, "device"));
    if (!rank || !device || *device >= 1024 || static_cast<size_t>(*rank) != run_.ranks.size()) {
      faults_.fault(fmt::format("line {}: a rank out of order: the list of ranks is damaged", cursor_.number));
      return;
    }
    if (run_.ranks.size() == 1024) return;
    const std::string_view host = word_after(words, "on");
    if (!host.empty()) {
      run_.several_hosts = run_.several_hosts || (!host_.empty() && host_ != host);
      host_ = host;
    }
    Gpu gpu{.index = static_cast<int>(*device)};
    const size_t open = line.find('['), close = std::min(line.find(']'), line.size() - 1);
    if (open < close) {
      // "[0x19]" of older versions leaves out the domain: no bus id follows from it.
      const std::string_view bus = line.substr(open + 1, close - open - 1);
      const bool good = bus.size() == 10 && bus[4] == ':' && bus[7] == ':' &&
                        bus.find_first_not_of("0123456789abcdef:") == std::string_view::npos;
      if (good) gpu.pci_bus_id = fmt::format("{}.0", bus);
      const size_t name = line.find_first_not_of(' ', close + 1);
      if (name != std::string_view::npos)
        gpu.name = bounded_name(line.substr(name, line.find_last_not_of(' ') + 1 - name));
    }
    run_.ranks.push_back(std::move(gpu));
    const std::optional<int64_t> process = count_of(word_after(words, "Pid"));
    run_.processes.push_back(process ? fmt::format("{} {}", bounded_name(host), *process) : "");
  }

  void read_head(const Words& words) {
    ours_ = true;
    if (!run_.rows.empty()) begin_run();
    const auto column = [&](std::string_view name) {
      return static_cast<size_t>(std::find(words.begin(), words.end(), name) - words.begin());
    };
    columns_ = {words.size(), column("time"), column("algbw"), column("busbw"), column("redop")};
    head_line_ = cursor_.number;
    if (run_.line == 0) run_.line = head_line_;
    if (columns_.time < columns_.algbw && columns_.algbw < columns_.busbw && columns_.busbw < columns_.count) return;
    faults_.fault(fmt::format("line {}: the head of a table is damaged: its rows are left out", head_line_));
    columns_ = {};
  }

  void read_row(std::string_view line, const Words& words) {
    if (columns_.count == 0) {
      if (words.size() > 2 && bytes_of_type(words[2]) > 0)
        faults_.fault(fmt::format("line {}: a row without a head of its table: left out", cursor_.number));
      return;
    }
    const std::string_view end = words.back();
    const bool unended = cursor_.rest.empty() && line.data() + line.size() == cursor_.rest.data() &&
                         end.data() + end.size() == line.data() + line.size();
    const size_t last = columns_.busbw;  // that is used
    // The last word of a line that is short, or that ends the text, may have lost digits.
    const bool whole = words.size() > last + 1 || (words.size() == last + 1 && columns_.count == last + 1 && !unended);
    CollectiveRow row{.line = cursor_.number};
    std::optional<Figure> algbw, busbw;
    if (whole) {
      row.bytes = count_of(words[0]);
      row.time_us = number_of(words[columns_.time]);
      algbw = figure_of(words[columns_.algbw]);
      busbw = figure_of(words[columns_.busbw]);
    }
    const int64_t each = words.size() > 2 ? bytes_of_type(words[2]) : 0;
    const int64_t count = words.size() > 1 ? count_of(words[1]).value_or(0) : 0;
    if (!row.bytes || !row.time_us || !(*row.time_us > 0) || !algbw || !busbw || algbw->decimals != busbw->decimals ||
        (each > 0 && (count > INT64_MAX / each || count * each != *row.bytes)) || words.size() > columns_.count) {
      faults_.fault(fmt::format("line {}: a row is cut or damaged: it is left out", cursor_.number));
      return;
    }
    if (words.size() < columns_.count) {
      faults_.fault(fmt::format("line {}: a row has {} columns of {}", cursor_.number, words.size(), columns_.count));
    }
    row.gb_per_s = algbw->value;
    row.busbw_gb_per_s = busbw->value;
    row.kind = bounded_name(words[2]);
    if (columns_.redop < words.size()) row.kind += fmt::format(" {}", bounded_name(words[columns_.redop]));
    if (run_.rows.size() == kMostMeasurements) {
      throw UserError(fmt::format("more than {} rows", kMostMeasurements), topology_.file, "give one run's output");
    }
    run_.rows.push_back(std::move(row));
  }

  /// After rows, the next command, options or head begin another run.
  void begin_run() {
    if (run_.rows.empty()) return;
    finish_run();
    reset_run();
    columns_ = {};
    if (++runs_ > kMostRuns) {
      throw UserError(fmt::format("more than {} runs", kMostRuns), topology_.file, "give fewer runs' output");
    }
  }

  void reset_run() {
    run_ = {};
    run_.p2p = exported_p2p_;
    host_ = {};
  }

  void finish_run() {
    if (!run_.collective.empty() && run_.collective != "all_reduce") {
      throw UserError(fmt::format("a table of {}_perf", run_.collective),
                      fmt::format("{}, line {}", topology_.file, run_.line), "give one of all_reduce_perf");
    }
    if (run_.rows.empty()) return;
    const std::optional<size_t> gpus = gpus_of_run(run_, faults_);
    find_missing_rows(run_, faults_);
    drop_damaged_rows(run_, gpus, faults_);
    run_.one_process = one_process_of(run_, gpus);
    append_rows(run_, gpus, topology_);
    if (run_.several_hosts) {
      faults_.note(fmt::format("line {}: ranks of several machines: how many GPUs one has is not told", run_.line));
    } else if (gpus && *gpus <= kMostGpus && *gpus >= gpus_) {
      gpus_ = *gpus;
      std::set<int> devices;
      for (const Gpu& gpu : run_.ranks) devices.insert(gpu.index);
      // Processes that see one GPU each all call theirs 0.
      for (size_t i = 0; i < run_.ranks.size() && devices.size() < run_.ranks.size(); ++i) {
        run_.ranks[i].index = static_cast<int>(i);
      }
      if (run_.ranks.size() == gpus_) ranks_ = run_.ranks;
    }
  }

  const std::string text_;
  LineCursor cursor_;
  Topology topology_;
  Faults faults_;
  CollectiveRun run_;
  Columns columns_;
  std::optional<bool> exported_p2p_;
  std::string_view host_;
  std::string failure_;
  std::vector<Gpu> ranks_;
  size_t gpus_ = 0, runs_ = 0;
  int head_line_ = 0, failure_line_ = 0;
  bool ours_ = false;
};

}  // namespace

std::optional<Topology> read_nccl_tests(const SourceText& source) {
  return RunReader(source).read();
}

}  // namespace shardscope::topology
