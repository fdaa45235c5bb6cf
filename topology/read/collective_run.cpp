#include "topology/read/collective_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

constexpr double kRounding = 0.0051;   // of two decimals, in GB/s
constexpr double kOfTime = 0.002;      // times are printed with four digits or more
constexpr size_t kMostTries = 8;       // rows whose ratio is tried
constexpr size_t kMostRanks = 1024;    // of several machines together
constexpr int64_t kSizeRounding = 64;  // sizes are rounded down to whole elements

/// Whether rounding leaves enough to tell.
bool is_telling(const CollectiveRow& row) {
  return row.gb_per_s && row.busbw_gb_per_s && *row.gb_per_s >= 1;
}

/// n of 2(n-1)/n; nullopt where that is no whole number.
std::optional<size_t> gpus_by_ratio(const CollectiveRow& row) {
  const double factor = *row.busbw_gb_per_s / *row.gb_per_s;
  if (factor < 0.9 || factor > 2) return std::nullopt;
  const double gpus = std::round(2 / std::max(2 - factor, 1e-6));
  if (gpus > 32) return std::nullopt;  // neighbours are too close to tell
  return agrees(row, static_cast<size_t>(gpus)) ? std::optional(static_cast<size_t>(gpus)) : std::nullopt;
}

bool most_agree(const CollectiveRun& run, size_t gpus) {
  int good = 0, bad = 0;
  for (const CollectiveRow& row : run.rows) {
    if (is_telling(row)) ++(agrees(row, gpus) ? good : bad);
  }
  return good >= bad;
}

/// By the fastest rows, where rounding matters least, of which some may be damaged.
std::optional<size_t> gpus_by_ratios(const CollectiveRun& run) {
  std::vector<const CollectiveRow*> rows;
  for (const CollectiveRow& row : run.rows) {
    if (is_telling(row)) rows.push_back(&row);
  }
  const size_t tries = std::min<size_t>(rows.size(), kMostTries);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(tries), rows.end(),
                    [](const CollectiveRow* a, const CollectiveRow* b) { return *a->gb_per_s > *b->gb_per_s; });
  for (size_t i = 0; i < tries; ++i) {
    const std::optional<size_t> gpus = gpus_by_ratio(*rows[i]);
    if (gpus && most_agree(run, *gpus)) return gpus;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> size_of_option(std::string_view word) {
  const size_t unit = std::min(word.find_first_not_of("0123456789"), word.size());
  const std::optional<int64_t> number = count_of(word.substr(0, unit));
  const size_t shift = unit == word.size() ? 0 : std::string_view("_KMG").find(word[unit]);
  if (!number || *number > int64_t{1} << 30 || shift > 3 || unit + 1 < word.size()) {
    return unit == word.size() ? number : std::nullopt;
  }
  return *number << (10 * shift);
}

int64_t bytes_of_type(std::string_view type) {
  struct Type {
    std::string_view name;
    int64_t bytes;
  };
  static constexpr std::array<Type, 12> kTypes = {{{"int8", 1},
                                                   {"uint8", 1},
                                                   {"f8e4m3", 1},
                                                   {"f8e5m2", 1},
                                                   {"half", 2},
                                                   {"bfloat16", 2},
                                                   {"int32", 4},
                                                   {"uint32", 4},
                                                   {"float", 4},
                                                   {"int64", 8},
                                                   {"uint64", 8},
                                                   {"double", 8}}};
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& each) { return each.name == type; });
  return found == kTypes.end() ? 0 : found->bytes;
}

double allreduce_factor(size_t gpus) {
  return gpus < 1 ? 0 : 2 * (1 - 1 / static_cast<double>(gpus));
}

bool agrees(const CollectiveRow& row, size_t gpus) {
  if (!row.gb_per_s || !row.busbw_gb_per_s) return true;
  const double factor = allreduce_factor(gpus);
  return std::abs(*row.busbw_gb_per_s - factor * *row.gb_per_s) <=
         kRounding * (1 + factor) + 0.001 * *row.busbw_gb_per_s;
}

std::optional<size_t> gpus_of_run(const CollectiveRun& run, Faults& faults) {
  std::vector<size_t> told;
  if (!run.ranks.empty()) told.push_back(run.ranks.size());
  if (run.told_gpus && *run.told_gpus > 0 && *run.told_gpus <= kMostRanks) told.push_back(*run.told_gpus);
  if (std::none_of(run.rows.begin(), run.rows.end(), is_telling)) {
    // Nothing to check against.
    if (told.empty() || told.front() == told.back()) return told.empty() ? std::nullopt : std::optional(told.front());
    faults.fault(fmt::format("line {}: {} ranks are listed, the options tell {} GPUs: their number is unknown",
                             run.line, told.front(), told.back()));
    return std::nullopt;
  }
  for (const size_t gpus : told) {
    if (!most_agree(run, gpus)) continue;
    if (gpus != told.front()) {
      faults.fault(fmt::format("line {}: {} ranks are listed of {}: the list is cut", run.line, told.front(), gpus));
    }
    return gpus;
  }
  const std::optional<size_t> by_ratio = gpus_by_ratios(run);
  if (told.empty() && by_ratio) {
    faults.note(fmt::format("line {}: the number of GPUs is not told: {} by the ratio of bus to algorithm bandwidth",
                            run.line, *by_ratio));
    return by_ratio;
  }
  // One GPU a process is usual under MPI, and the options are those of one process.
  if (by_ratio && run.ranks.empty() && *by_ratio % told.front() == 0) {
    faults.note(
        fmt::format("line {}: {} GPUs by the ratio of bus to algorithm bandwidth; the options of one process tell {}",
                    run.line, *by_ratio, told.front()));
    return by_ratio;
  }
  faults.fault(fmt::format("line {}: the ratio of bus to algorithm bandwidth is not that of an all-reduce of {}",
                           run.line, told.empty() ? "any number of GPUs" : fmt::format("{} GPUs", told.front())));
  return std::nullopt;
}

void drop_damaged_rows(CollectiveRun& run, std::optional<size_t> gpus, Faults& faults) {
  std::vector<CollectiveRow> kept;
  for (CollectiveRow& row : run.rows) {
    bool good = !gpus || agrees(row, *gpus);
    if (row.bytes && row.time_us && row.gb_per_s) {
      const double expected = *row.time_us > 0 ? static_cast<double>(*row.bytes) / (*row.time_us * 1000) : -1;
      good = good && std::abs(expected - *row.gb_per_s) <= kRounding + kOfTime * expected;
    }
    if (good) {
      kept.push_back(std::move(row));
    } else {
      faults.fault(
          fmt::format("line {}: size, time and bandwidths contradict each other: the row is left out", row.line));
    }
  }
  run.rows = std::move(kept);
}

void find_missing_rows(const CollectiveRun& run, Faults& faults) {
  if (run.rows.empty()) return;
  const auto next_size = [&](int64_t bytes) -> std::optional<int64_t> {
    if (run.factor && *run.factor > 1) return bytes <= INT64_MAX / *run.factor ? bytes * *run.factor : INT64_MAX;
    if (run.step_bytes && *run.step_bytes > 0 && bytes < INT64_MAX - *run.step_bytes) return bytes + *run.step_bytes;
    return std::nullopt;
  };
  const CollectiveRow* before = &run.rows.front();
  for (const CollectiveRow& row : run.rows) {
    if (!row.bytes) return;
    if (&row != before && before->kind == row.kind) {
      const std::optional<int64_t> expected = next_size(*before->bytes);
      if (expected && *row.bytes > kSizeRounding && *row.bytes - kSizeRounding > *expected) {
        faults.fault(fmt::format("line {}: sizes between {} and {} are missing", row.line, *before->bytes, *row.bytes));
      } else if (*row.bytes < *before->bytes) {
        faults.fault(fmt::format("line {}: size {} stands after {}", row.line, *row.bytes, *before->bytes));
      }
    }
    before = &row;
  }
  if (run.least_bytes && *run.rows.front().bytes - kSizeRounding > *run.least_bytes) {
    faults.fault(fmt::format("line {}: the table begins at size {}, the run at {}", run.rows.front().line,
                             *run.rows.front().bytes, *run.least_bytes));
  }
  const std::optional<int64_t> next = next_size(*before->bytes);
  if (!run.ended && (!run.most_bytes || !next)) {
    faults.note(
        fmt::format("line {}: the end of the run's output is missing: there may have been more rows", before->line));
  }
  if (run.most_bytes && next && *next <= *run.most_bytes && *before->bytes + kSizeRounding < *run.most_bytes) {
    faults.fault(fmt::format("line {}: the table ends at size {}, the run at {}", before->line, *before->bytes,
                             *run.most_bytes));
  }
}

void append_rows(const CollectiveRun& run, std::optional<size_t> gpus, Topology& topology) {
  for (const CollectiveRow& row : run.rows) {
    if (topology.measurements.size() == kMostMeasurements) {
      throw UserError(fmt::format("more than {} rows", kMostMeasurements), topology.file, "give one run's output");
    }
    Measurement each{.kind = Measurement::Kind::kAllReduce, .p2p = run.p2p};
    if (gpus) each.gpu_count = static_cast<int>(*gpus);
    each.bytes = row.bytes;
    each.time_us = row.time_us;
    each.gb_per_s = row.gb_per_s;
    each.busbw_gb_per_s = row.busbw_gb_per_s;
    each.algorithm = run.algorithm;
    each.one_process = run.one_process;
    each.graph = run.graph;
    topology.measurements.push_back(std::move(each));
  }
}

}  // namespace shardscope::topology
