#include "topology/draw/figures_text.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "topology/draw/islands.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

using Kind = Measurement::Kind;

/// Copies that may be put into one row: same quantity, same peer access, same directions, same path.
struct CopyKey {
  Kind kind = Kind::kP2pBandwidth;
  int peer_access = 0;  // 0: not told, 1: off, 2: on
  int both_ways = 0;
  std::string how;    // "all at once"
  int path_rank = 0;  // near to far, unknown last
  std::string path;

  bool operator<(const CopyKey& other) const {
    return std::tie(kind, peer_access, both_ways, how, path_rank, path) <
           std::tie(other.kind, other.peer_access, other.both_ways, other.how, other.path_rank, other.path);
  }
};

constexpr const char* kAccess[] = {"?", "off", "on"};

int of_switch(const std::optional<bool>& value) {
  return !value ? 0 : *value ? 2 : 1;
}

CopyKey key_of(const Topology& topology, const Measurement& figure) {
  constexpr int kUnknownRank = 1000;
  CopyKey key{figure.kind, of_switch(figure.p2p), of_switch(figure.both_ways), figure.algorithm, kUnknownRank, "?"};
  const std::optional<int> from = position_of(topology, *figure.from);
  const std::optional<int> to = position_of(topology, *figure.to);
  const std::optional<Path> path = from && to ? path_between(topology, *from, *to) : std::nullopt;
  if (path) {
    constexpr int kKindStep = 100;
    key.path_rank = static_cast<int>(path->kind) * kKindStep - std::min(path->nvlinks, kKindStep - 1);
    key.path = text_of(*path);
  }
  return key;
}

std::string directions_text(const CopyKey& key) {
  constexpr const char* kDirections[] = {"?", "one", "both"};
  const std::string text = kDirections[key.both_ways];
  return key.how.empty() ? text : fmt::format("{}, {}", text, printable(key.how));
}

std::string copies_text(const Topology& topology) {
  std::map<CopyKey, std::vector<double>> copies;
  for (const Measurement& figure : topology.measurements) {
    if (figure.kind == Kind::kAllReduce || !figure.from || !figure.to || figure.from == figure.to) continue;
    const std::optional<double>& value = figure.kind == Kind::kP2pBandwidth ? figure.gb_per_s : figure.time_us;
    if (value) copies[key_of(topology, figure)].push_back(*value);
  }
  if (copies.empty()) return "";
  std::vector<Row> rows = {{"copies", "path", "peer access", "directions", "ordered pairs", "min", "median", "max"}};
  for (const auto& [key, values] : copies) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const bool rate = key.kind == Kind::kP2pBandwidth;
    rows.push_back({rate ? "GB/s" : "us", key.path, kAccess[key.peer_access], rate ? directions_text(key) : "-",
                    fmt::format("{}", values.size()), short_figure(*least), short_figure(median_of(values)),
                    short_figure(*most)});
  }
  return fmt::format("Measured between GPUs:\n{}", aligned(rows, "llllr", 2));
}

/// All-reduces of one number of GPUs with one algorithm.
struct Reduces {
  int rows = 0;
  int64_t least_bytes = std::numeric_limits<int64_t>::max();
  int64_t most_bytes = -1;
  std::vector<double> small_us;      // of up to 4 KiB: what an all-reduce costs whatever its size
  std::optional<double> best_busbw;  // GB/s
};

std::string reduces_text(const Topology& topology) {
  constexpr int64_t kSmall = 4096;
  std::map<std::tuple<int, std::string, int>, Reduces> all;  // the last: peer access
  for (const Measurement& figure : topology.measurements) {
    if (figure.kind != Kind::kAllReduce) continue;
    Reduces& reduces = all[{figure.gpu_count.value_or(0), figure.algorithm, of_switch(figure.p2p)}];
    ++reduces.rows;
    if (figure.bytes) {
      reduces.least_bytes = std::min(reduces.least_bytes, *figure.bytes);
      reduces.most_bytes = std::max(reduces.most_bytes, *figure.bytes);
      if (*figure.bytes <= kSmall && figure.time_us) reduces.small_us.push_back(*figure.time_us);
    }
    if (figure.busbw_gb_per_s) {
      reduces.best_busbw = std::max(reduces.best_busbw.value_or(0), *figure.busbw_gb_per_s);
    }
  }
  if (all.empty()) return "";
  std::vector<Row> rows = {
      {"GPUs", "algorithm", "peer access", "rows", "from", "to", "us up to 4 KiB", "best bus GB/s"}};
  for (const auto& [key, reduces] : all) {
    const auto& [gpus, algorithm, peer_access] = key;
    const bool sized = reduces.most_bytes >= 0;
    rows.push_back({gpus > 0 ? fmt::format("{}", gpus) : "?", algorithm.empty() ? "?" : printable(algorithm),
                    kAccess[peer_access], fmt::format("{}", reduces.rows),
                    sized ? bytes_text(reduces.least_bytes) : "?", sized ? bytes_text(reduces.most_bytes) : "?",
                    reduces.small_us.empty() ? "?" : short_figure(median_of(reduces.small_us)),
                    reduces.best_busbw ? short_figure(*reduces.best_busbw) : "?"});
  }
  return fmt::format("Measured all-reduces (median of the small ones, best of all):\n{}", aligned(rows, "rllr", 2));
}

}  // namespace

std::optional<int> position_of(const Topology& topology, int gpu) {
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    if (topology.gpus[i].index == gpu) return static_cast<int>(i);
  }
  return std::nullopt;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string figures_text(const Topology& topology) {
  const std::string copies = copies_text(topology);
  const std::string reduces = reduces_text(topology);
  return copies.empty() || reduces.empty() ? fmt::format("{}{}", copies, reduces)
                                           : fmt::format("{}\n{}", copies, reduces);
}

}  // namespace shardscope::topology
