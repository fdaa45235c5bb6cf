// The links of a row: NVSwitches, direct NVLinks, the tree of PCIe.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/draw/picture_row.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

using Layer = PictureItem::Layer;
using Anchor = PictureText::Anchor;

size_t at(int position) {
  return static_cast<size_t>(position);
}

}  // namespace

// ---- NVSwitches -----------------------------------------------------------------------------------------------------

bool RowLayout::switches_overlap() const {
  std::vector<std::pair<double, double>> spans;
  for (const NvIsland& island : facts_.nvlink) {
    const Span span = span_of(island.gpus);
    if (island.switched) spans.emplace_back(span.left, span.right);
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].first <= spans[i - 1].second) return true;
  }
  return false;
}

/// GPUs alone beside the switches of most: their links are missing, and the picture says so.
bool RowLayout::missing_from(const NvIsland& island, int gpu) const {
  return nv_island_of(gpu) == nullptr && 2 * island.gpus.size() > order_.size();
}

void RowLayout::add_switches() {
  double y = 0;
  for (const NvIsland& island : facts_.nvlink) {
    if (!island.switched) continue;
    std::vector<int> members = island.gpus;
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(members),
                 [&](int gpu) { return missing_from(island, gpu); });
    add_switch_bar(island, y, span_of(members));
    for (const int gpu : members) add_switch_link(gpu, y + kSwitchHeight);
    if (overlapping_switches_) y += kSwitchHeight + kTreeGap;
  }
}

void RowLayout::add_switch_bar(const NvIsland& island, double y, const Span& span) {
  std::set<int> counts;
  for (const int gpu : island.gpus) counts.insert(facts_.counts[at(gpu)].links);
  std::vector<std::string> labels;
  if (counts.size() == 1 && *counts.begin() > 0) {
    const std::string each = fmt::format("NVSwitch · {} from each GPU", counted(*counts.begin(), "NVLink"));
    const std::string rate = island.gpus.size() > 1 ? rate_label(island.gpus[0], island.gpus[1]) : "";
    if (!rate.empty()) labels.push_back(fmt::format("{} · {} each way", each, rate));
    labels.push_back(each);
  }
  labels.emplace_back("NVSwitch");
  PictureItem bar = bar_item("nv", labels, {span.left, y, span.right - span.left, kSwitchHeight});
  bar.facts = {{"link", "NVSwitch"}};
  content_.items.push_back(bar);
}

void RowLayout::add_switch_link(int gpu, double bar_edge) {
  constexpr double kThin = 2;
  const Place& place = places_[gpu];
  const LinkCount& count = facts_.counts[at(gpu)];
  const bool sound = count.links > 0 && !count.degraded() && count.row_known;
  const double end = bar_edge < place.top ? place.top : place.bottom();
  PictureItem item{.layer = Layer::kLink, .css = "link"};
  item.facts = {{"link", count.links > 0 ? fmt::format("NV{}", count.links) : "none"},
                {"from", fmt::format("{}", gpu_at(topology_, gpu).index)},
                {"to", "NVSwitch"}};
  item.title = fmt::format("{} to NVSwitch: {}", gpu_label(topology_, gpu), link_label(count));
  const double width = count.links > 0 ? link_width(count.links) : kThin;
  item.lines.push_back({place.x, bar_edge, place.x, end, width, sound ? "nv" : "nv dashed"});
  add_plate(item, link_label(count), place.x, (bar_edge + end) / 2);
  content_.items.push_back(item);
}

// ---- direct NVLinks -------------------------------------------------------------------------------------------------

void RowLayout::add_direct_links() {
  for (size_t i = 0; i < order_.size(); ++i) {
    for (size_t j = i + 1; j < order_.size(); ++j) {
      if (!direct_label(order_[i], order_[j]).empty()) add_direct_link(order_[i], order_[j], j == i + 1);
    }
  }
}

/// Between neighbours straight, else as an arc above the row.
void RowLayout::add_direct_link(int a, int b, bool neighbours) {
  constexpr double kRateBelow = 24;
  const std::string label = direct_label(a, b);
  const int links = path_between(topology_, a, b)->nvlinks;
  const LinkCount& count = facts_.counts[at(a)];
  const std::string css = count.degraded() || !count.row_known ? "nv dashed" : "nv";
  PictureItem item{.layer = Layer::kLink, .css = "link"};
  item.facts = {{"link", fmt::format("NV{}", links)},
                {"from", fmt::format("{}", gpu_at(topology_, a).index)},
                {"to", fmt::format("{}", gpu_at(topology_, b).index)}};
  item.title = fmt::format("{} to {}: {}", gpu_label(topology_, a), gpu_label(topology_, b), label);
  const double left = places_[a].x;
  const double right = places_[b].x;
  const double middle = (left + right) / 2;
  if (neighbours) {
    const double y = places_[a].top + kGpuHeight / 2;
    item.lines.push_back({left + gpu_width_ / 2, y, right - gpu_width_ / 2, y, link_width(links), css});
    add_plate(item, label, middle, y);
    if (const std::string rate = rate_label(a, b); !rate.empty()) {
      item.texts.push_back({middle, y + kRateBelow, kSmallSize, Anchor::kMiddle, rate, "muted"});
    }
  } else {
    const double rise = ++arcs_ * kArcHeight;
    item.lines.push_back({left, places_[a].top, right, places_[b].top, link_width(links), css, rise});
    add_plate(item, label, middle, places_[a].top - rise);
  }
  content_.items.push_back(item);
}

// ---- PCIe -----------------------------------------------------------------------------------------------------------

std::vector<std::string> RowLayout::bar_labels(const PcieIsland& island) const {
  const std::string code = code_of(island.kind, facts_);
  std::string doubt;
  if (island.unknown_pairs > 0) doubt = fmt::format(" · {} unknown", counted(island.unknown_pairs, "pair"));
  if (island.farther_pairs > 0) doubt += fmt::format(" · {} farther", counted(island.farther_pairs, "pair"));
  return {fmt::format("{} · {}{}", code, words_of_path(island.kind), doubt), fmt::format("{}{}", code, doubt),
          doubt.empty() ? code : fmt::format("{} ?", code)};
}

RowLayout::End RowLayout::add_tree(const PcieIsland& island) {
  constexpr double kFromEdge = 9;
  if (island.parts.empty()) {
    const int gpu = island.gpus.front();
    const double aside = has_nics(gpu) ? gpu_width_ / 2 - kFromEdge : 0;
    return {places_[gpu].x - aside, places_[gpu].bottom()};
  }
  std::vector<End> ends;
  ends.reserve(island.parts.size());
  for (const PcieIsland& part : island.parts) ends.push_back(add_tree(part));
  return add_tree_bar(css_of(Path{.kind = island.kind}), island, ends, levels_.at(island.kind));
}

RowLayout::End RowLayout::add_tree_bar(const std::string& css, const PcieIsland& island, const std::vector<End>& ends,
                                       double y) {
  const Span span = span_of(island.gpus);
  const bool unknown = css == "unknown";
  const bool doubtful = unknown || island.unknown_pairs > 0 || island.farther_pairs > 0;
  const std::string pairs = counted(island.unknown_pairs, "pair");
  const std::vector<std::string> labels =
      unknown ? std::vector<std::string>{fmt::format("? · how these are joined is unknown ({})", pairs),
                                         fmt::format("? · {} unknown", pairs), "?"}
              : bar_labels(island);
  PictureItem bar = bar_item(doubtful ? fmt::format("{} dashed", css) : css, labels,
                             {span.left, y, span.right - span.left, kBarHeight});
  std::vector<int> indices;
  for (const int gpu : island.gpus) indices.push_back(gpu_at(topology_, gpu).index);
  bar.facts = {{"link", unknown ? "unknown" : code_of(island.kind, facts_)},
               {"gpus", fmt::format("{}", fmt::join(indices, " "))}};
  PictureItem connectors{.layer = Layer::kConnector, .css = "connectors"};
  for (const End& end : ends) {
    connectors.lines.push_back({end.x, end.y, end.x, y, 2, unknown ? "connector dashed" : "connector"});
  }
  content_.items.push_back(connectors);
  content_.items.push_back(bar);
  return {(span.left + span.right) / 2, y + kBarHeight};
}

double RowLayout::add_trees(double y) {
  for (auto& [kind, level_y] : levels_) {
    level_y = y;
    y += kBarHeight + kTreeGap;
  }
  PcieIsland all{.gpus = order_, .unknown_pairs = unknown_roots_};
  std::vector<End> ends;
  ends.reserve(roots_.size());
  for (const PcieIsland& root : roots_) ends.push_back(add_tree(root));
  if (unknown_roots_ > 0) {
    add_tree_bar("unknown", all, ends, y);
    y += kBarHeight + kTreeGap;
  }
  return y - kTreeGap;
}

}  // namespace shardscope::topology
