#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/plan/group_links.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// The rows of the largest degree that both plans have, of the first workload.
struct Pair {
  const PredictedRow* one = nullptr;
  const PredictedRow* other = nullptr;
};

Pair common_rows(const Plan& plan, const Plan& other_plan) {
  Pair best;
  for (const PredictedRow& row : plan.rows) {
    for (const PredictedRow& other : other_plan.rows) {
      const bool same = row.point.tp == other.point.tp && row.point.pp == other.point.pp &&
                        row.point.workload == other.point.workload;
      if (same && (best.one == nullptr || row.point.tp > best.one->point.tp)) best = {&row, &other};
    }
  }
  return best;
}

std::string gpus_text(const PlanMachine& machine, int count) {
  return fmt::format("{} x {} ({:.0f} GB at {:.0f} GB/s)", count, machine.gpu->name, machine.gpu->memory_gb,
                     machine.gpu->gb_per_s);
}

/// Sequences of the row's lengths that would fit beside those that it has.
int64_t more_sequences(const PredictedRow& row) {
  double kv = 0;
  for (const RankFigures& rank : row.point.ranks) kv = std::max(kv, static_cast<double>(rank.memory.kv));
  const double each = kv / static_cast<double>(row.point.workload.batch);
  return each > 0 ? static_cast<int64_t>(std::max(row.gpu_bytes - row.needed_bytes, 0.0) / each) : 0;
}

/// What the figures mean for whoever has to choose.
std::string conclusion(const PlanMachine& one, const PredictedRow& here, const PlanMachine& other,
                       const PredictedRow& there, bool apart) {
  constexpr double kWorthChoosing = 1.2;
  const double token = *there.point.tpot_ms.p50 / *here.point.tpot_ms.p50;
  std::string text = !apart ? "For single tokens the two are not told apart"
                            : fmt::format("For single tokens take {}", token > 1 ? one.name : other.name);
  if (here.point.ttft_ms.p50 && there.point.ttft_ms.p50) {
    const double first = *there.point.ttft_ms.p50 / *here.point.ttft_ms.p50;
    const bool sure = here.ttft_ms->high < there.ttft_ms->low || there.ttft_ms->high < here.ttft_ms->low;
    if (first > kWorthChoosing || first * kWorthChoosing < 1) {
      text += fmt::format("; for the first token {} is {}the faster", first > 1 ? one.name : other.name,
                          sure ? "" : "likely ");
    }
  }
  const auto room = static_cast<double>(more_sequences(here));
  const auto other_room = static_cast<double>(more_sequences(there));
  if (room > kWorthChoosing * other_room) text += fmt::format("; for many sequences at once {} has the room", one.name);
  if (other_room > kWorthChoosing * room)
    text += fmt::format("; for many sequences at once {} has the room", other.name);
  return text + ".";
}

std::string wiring_text(const PlanMachine& machine, const PredictedRow& row) {
  if (row.point.tp == 1) return "each alone";
  const GroupLinks links = links_of_group(machine.topology, row.point.group.places, machine.gpu->name);
  if (!links.known) return "with links that are not told";
  switch (links.path) {
    case GroupPath::kNvLink:
      if (!links.all_pairs) return fmt::format("joined by a ring of NVLinks ({:.0f} GB/s each way)", links.gb_per_s);
      return fmt::format("joined by NVLinks ({}, {:.0f} GB/s each way)", links.narrowest, links.gb_per_s);
    case GroupPath::kPciePeer:
      return fmt::format("some joined only by PCIe switches ({})", links.narrowest);
    case GroupPath::kHostMemory:
      return fmt::format("some joined only through the CPUs ({}), so that every sum takes a detour", links.narrowest);
  }
  return "";
}

/// "32.9 ms a token (24.2 to 44.9)"
std::string range_text(double ms, const Bounds& range, const char* of) {
  return fmt::format("{} ms{} ({} to {})", figure_text(ms), of, figure_text(range.low), figure_text(range.high));
}

/// "+12 %", "-8 %".
std::string change(double from, double to) {
  return fmt::format("{:+.0f} %", 100 * (to / from - 1));
}

struct PartChange {
  Part part;
  double ms = 0;
};

/// The changes of the parts, the largest first, without those under `least` ms.
std::vector<PartChange> changes(const Parts& one, const Parts& other, double least) {
  std::vector<PartChange> found;
  for (const Part part : kParts) {
    const double ms = other[part] - one[part];
    if (std::abs(ms) >= least) found.push_back({part, ms});
  }
  std::sort(found.begin(), found.end(),
            [](const PartChange& a, const PartChange& b) { return std::abs(a.ms) > std::abs(b.ms); });
  return found;
}

std::string parts_text(const Parts& one, const Parts& other, double tpot) {
  constexpr double kLeast = 0.02;  // of TPOT: less is not worth a buyer's time
  std::string text;
  for (const PartChange& change : changes(one, other, kLeast * tpot)) {
    text += fmt::format("{}{} {:+.2g} ms", text.empty() ? "" : ", ", words_of(change.part), change.ms);
  }
  return text.empty() ? "no part of it differs by 2 %" : text;
}

std::string does_not_fit(const PlanMachine& machine, const PredictedRow& row) {
  return fmt::format("on {} it does not fit: a GPU lacks {}", machine.name,
                     bytes_text(row.needed_bytes - row.gpu_bytes));
}

}  // namespace

std::string against_text(const PlanMachine& one, const Plan& plan, const PlanMachine& other, const Plan& other_plan,
                         const std::string& model) {
  const Pair pair = common_rows(plan, other_plan);
  if (pair.one == nullptr) return fmt::format("{} and {} have no TP degree in common", one.name, other.name);
  const PredictedRow& here = *pair.one;
  const PredictedRow& there = *pair.other;
  const PointResult& point = here.point;
  std::string text = fmt::format("{} at TP {}, batch {}, {} + {} tokens: ", model, point.tp, point.workload.batch,
                                 point.workload.prompt_tokens, point.workload.output_tokens);
  if (!here.fits() || !there.fits()) {
    if (!here.fits()) text += does_not_fit(one, here);
    if (!there.fits()) text += fmt::format("{}{}", here.fits() ? "" : "; ", does_not_fit(other, there));
    return text + ".";
  }
  if (!point.tpot_ms.p50 || !there.point.tpot_ms.p50) return text + "one output token has no TPOT to compare.";
  const double from = *point.tpot_ms.p50;
  const double to = *there.point.tpot_ms.p50;
  text += fmt::format("predicted {} on {}, {} on {}: {}", range_text(from, *here.tpot_ms, " a token"), one.name,
                      range_text(to, *there.tpot_ms, ""), other.name, change(from, to));
  const bool apart = here.tpot_ms->high < there.tpot_ms->low || there.tpot_ms->high < here.tpot_ms->low;
  text += apart ? ". " : ", within the stated errors. ";
  text += fmt::format("{}: {} {}; {}: {} {}. ", one.name, gpus_text(one, point.tp), wiring_text(one, here), other.name,
                      gpus_text(other, point.tp), wiring_text(other, there));
  text += fmt::format("Of the difference in a token: {}. ",
                      parts_text(*point.attribution, *there.point.attribution, std::max(from, to)));
  if (point.ttft_ms.p50 && there.point.ttft_ms.p50) {
    text += fmt::format(
        "The first token comes after {} and {}: {}. ", range_text(*point.ttft_ms.p50, *here.ttft_ms, ""),
        range_text(*there.point.ttft_ms.p50, *there.ttft_ms, ""), change(*point.ttft_ms.p50, *there.point.ttft_ms.p50));
  }
  const auto groups = [&](const PlanMachine& machine) { return machine.gpus() / (point.tp * point.pp); };
  text += fmt::format("The {} GPUs of {} are {} such group{}, the {} of {} {}. ", one.gpus(), one.name, groups(one),
                      groups(one) == 1 ? "" : "s", other.gpus(), other.name, groups(other));
  text += fmt::format("Beside this, memory holds {} and {} more such sequences. ", more_sequences(here),
                      more_sequences(there));
  text += conclusion(one, here, other, there, apart);
  if (!here.uncalibrated.empty() || !there.uncalibrated.empty()) {
    text += " Not backed by measurements of such machines: ";
    std::vector<std::string> things = here.uncalibrated;
    for (const std::string& thing : there.uncalibrated) {
      if (std::find(things.begin(), things.end(), thing) == things.end()) things.push_back(thing);
    }
    text += fmt::format("{}.", fmt::join(things, "; "));
  }
  return text;
}

}  // namespace shardscope::runtime
