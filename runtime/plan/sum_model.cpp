#include "runtime/plan/sum_model.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/plan/calibration.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kSmallMessage = 8192;   // where tables begin
constexpr double kBytesPerUsOfGb = 1e3;  // 1 GB/s = 1000 bytes a microsecond

/// What each GPU sends of a message that is summed in a ring.
double ring_share(int ranks) {
  return 2.0 * (ranks - 1) / ranks;
}

double logarithmic(double low, double high, double share) {
  return low * std::pow(high / low, share);
}

}  // namespace

SumModel::SumModel(const PlanConstants& constants, std::string_view gpu, const GroupLinks& links, std::string_view way,
                   const std::vector<SumTable>& own)
    : links_(links) {
  const auto pieces = std::find_if(constants.paths.begin(), constants.paths.end(),
                                   [&](const PathPieces& one) { return one.path == name_of(links.path); });
  require(pieces != constants.paths.end(), "SumModel: a path without constants");
  pieces_ = *pieces;
  // One-shot reads the peers' memory: nothing does that through the host, and ours wants all pairs to be linked.
  const bool peers = way != "nccl" && links.path != GroupPath::kHostMemory && links.all_pairs;
  const bool launches_inside = std::any_of(own.begin(), own.end(), [](const SumTable& one) { return one.one_process; });
  if (!launches_inside) nccl_ = curves_of(constants, gpu, "nccl");
  if (peers && own.empty()) one_shot_ = curves_of(constants, gpu, way);
  for (const SumTable& table : own) {
    if (table.way != "nccl" && !peers) continue;
    Curves& curves = table.way == "nccl" ? nccl_ : one_shot_;
    curves[table.ranks] = {.us = topology::never_falling(table.us), .text = table.what, .calibrated = true};
  }
}

SumModel::Curves SumModel::curves_of(const PlanConstants& constants, std::string_view gpu, std::string_view way) const {
  Curves curves;
  const bool nvlink = links_.path == GroupPath::kNvLink;
  const GpuLike like = table_gpu(constants, gpu);
  for (const SumTable& table : constants.sums) {
    const bool switched = table.topology_class == topology::TopologyClass::kNvSwitch;
    if (table.way != way || switched != nvlink) continue;
    // NVLinks of other generations are nearer to each other than slots of other boards.
    if (nvlink ? table.gpu != like.gpu : table.gpu != gpu || links_.path != GroupPath::kPciePeer) continue;
    const bool same_wiring = links_.topology_class == topology::TopologyClass::kNvSwitch;
    curves[table.ranks] = {.us = topology::never_falling(table.us),
                           .text = fmt::format("{} ({}, {})", table.what, table.gpu, name_of(table.topology_class)),
                           .calibrated = !nvlink || (like.same && same_wiring)};
  }
  return curves;
}

double SumModel::large(int ranks, double bytes) const {
  return pieces_.large_first_us + 2 * (ranks - 1) * pieces_.large_step_us +
         bytes * ring_share(ranks) / (pieces_.large_share * links_.gb_per_s * kBytesPerUsOfGb);
}

double SumModel::by_pieces(int ranks, double bytes) const {
  const double small = pieces_.first_us + 2 * (ranks - 1) * pieces_.step_us +
                       bytes * ring_share(ranks) / (pieces_.small_share * links_.gb_per_s * kBytesPerUsOfGb);
  return std::min(small, large(ranks, bytes));
}

double SumModel::along(const Curve& curve, int ranks, int64_t bytes) const {
  const auto above = curve.us.lower_bound(bytes);
  if (above ==
      curve.us.end()) {  // beyond the table: on from its end with the small piece's bandwidth, until large wins
    const auto last = std::prev(curve.us.end());
    const double more = static_cast<double>(bytes - last->first) * ring_share(ranks) /
                        (pieces_.small_share * links_.gb_per_s * kBytesPerUsOfGb);
    return std::max(last->second, std::min(last->second + more, large(ranks, static_cast<double>(bytes))));
  }
  if (above->first == bytes || above == curve.us.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = std::log(static_cast<double>(bytes) / static_cast<double>(below->first)) /
                       std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return logarithmic(below->second, above->second, share);
}

double SumModel::by_curves(const Curves& curves, int ranks, int64_t bytes) const {
  const auto above = curves.lower_bound(ranks);
  if (above != curves.end() && above->first == ranks) return along(above->second, ranks, bytes);
  const auto anchor = above == curves.end() ? std::prev(above) : above;
  const double at_anchor = along(anchor->second, anchor->first, bytes);
  if (above == curves.end() || above == curves.begin()) {  // as latencies grow with the number of ranks
    return at_anchor * by_pieces(ranks, kSmallMessage) / by_pieces(anchor->first, kSmallMessage);
  }
  const auto below = std::prev(above);
  const double share =
      std::log(static_cast<double>(ranks) / below->first) / std::log(static_cast<double>(above->first) / below->first);
  return logarithmic(along(below->second, below->first, bytes), at_anchor, share);
}

double SumModel::us(int ranks, int64_t bytes) const {
  require(ranks >= 1 && bytes > 0, "SumModel: a sum of no rank, or of nothing");
  if (ranks == 1) return 0;
  const double by_nccl = nccl_.empty() ? by_pieces(ranks, static_cast<double>(bytes)) : by_curves(nccl_, ranks, bytes);
  if (one_shot_.empty()) return by_nccl;
  return std::min(by_nccl, by_curves(one_shot_, ranks, bytes));
}

SumModel::Backing SumModel::backing(int ranks) const {
  if (ranks == 1) return {.text = "one rank: no all-reduce", .calibrated = true};
  const Curves& curves = one_shot_.count(ranks) > 0 || nccl_.empty() ? one_shot_ : nccl_;
  if (curves.empty()) {
    return {.text = fmt::format("two pieces by path ({}{})", name_of(links_.path),
                                links_.known ? "" : ": the topology does not tell, the worst is taken"),
            .calibrated = false};
  }
  const auto own = curves.find(ranks);
  if (own != curves.end()) return {.text = own->second.text, .calibrated = own->second.calibrated};
  const auto above = curves.lower_bound(ranks);
  if (above == curves.end() || above == curves.begin()) {
    const auto anchor = above == curves.end() ? std::prev(above) : above;
    return {.text = fmt::format("{}, of {} ranks, grown to {}", anchor->second.text, anchor->first, ranks),
            .calibrated = false};
  }
  return {.text = fmt::format("{}, between {} and {} ranks", above->second.text, std::prev(above)->first, above->first),
          .calibrated = above->second.calibrated && std::prev(above)->second.calibrated};
}

}  // namespace shardscope::runtime
