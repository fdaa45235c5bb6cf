#include "runtime/report/row_keys.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// What a reader must know of a row before its figures; explained below the table.
const char* mark_of(PointStatus status) {
  switch (status) {
    case PointStatus::kOk:
    case PointStatus::kOutOfMemory:  // its row says so
      return "";
    case PointStatus::kInvalid:
      return "!";
    case PointStatus::kIncomplete:
      return "*";
  }
  return "";
}

}  // namespace

RowKeys::RowKeys(const std::vector<PointResult>& points) {
  std::set<std::pair<int64_t, int64_t>> lengths;
  for (const PointResult& point : points) {
    lengths.insert({point.workload.prompt_tokens, point.workload.output_tokens});
    replicas_ = replicas_ || point.group.replicas > 1;
    placements_.insert(point.group.placement);
    placements_.insert(point.group.also.begin(), point.group.also.end());
  }
  lengths_vary_ = lengths.size() > 1;
}

std::vector<KeyColumn> RowKeys::columns() const {
  std::vector<KeyColumn> columns = {
      {"TP", "", [](const PointResult& p) { return fmt::format("{}{}", p.tp, mark_of(p.status)); }}};
  if (placements() > 1) {
    columns.push_back({"place", "", [keys = *this](const PointResult& p) { return keys.placement(p.group); }});
  }
  if (replicas_) {
    columns.push_back({"repl.", "", [](const PointResult& p) { return std::to_string(p.group.replicas); }});
  }
  columns.push_back({"batch", "", [](const PointResult& p) { return std::to_string(p.workload.batch); }});
  if (lengths_vary_) {
    columns.push_back({"in", "tok", [](const PointResult& p) { return std::to_string(p.workload.prompt_tokens); }});
    columns.push_back({"out", "tok", [](const PointResult& p) { return std::to_string(p.workload.output_tokens); }});
  }
  return columns;
}

std::string RowKeys::placement(const topology::PlacedGroup& group) const {
  return group.also.size() + 1 == placements() ? "all" : placements_text(group);
}

std::string RowKeys::name(const PointResult& point) const {
  const Workload& workload = point.workload;
  const std::string where = placement(point.group);
  const bool told = placements() > 1 && where != "all";
  const int replicas = point.group.replicas;
  std::string name = fmt::format("TP {}{}{}{}, batch {}", point.tp, told ? " " : "", told ? where : "",
                                 replicas > 1 ? fmt::format(" x {} replicas", replicas) : "", workload.batch);
  if (lengths_vary_) name += fmt::format(", {} + {}", workload.prompt_tokens, workload.output_tokens);
  std::replace(name.begin(), name.end(), ' ', kNoBreak);
  return name;
}

}  // namespace shardscope::runtime
