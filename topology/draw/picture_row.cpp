#include "topology/draw/picture_row.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

constexpr double kGap = 14;                 // between GPUs
constexpr double kAreaGap = 24;             // between areas
constexpr double kNicGap = 26;              // between a GPU and its NICs
constexpr double kConnectorRoom = 20;       // left of NICs, for the line to the tree of PCIe
constexpr double kWide = 84, kNarrow = 66;  // boxes of GPUs
constexpr size_t kMostWide = 12;
constexpr size_t kMostInRow = 10;  // of GPUs on switches

using Layer = PictureItem::Layer;
using Anchor = PictureText::Anchor;

size_t at(int position) {
  return static_cast<size_t>(position);
}

}  // namespace

RowLayout::RowLayout(const Topology& topology)
    : topology_(topology), facts_(facts_of(topology)), roots_(pcie_islands(topology)) {
  for (const PcieIsland& root : roots_) order_.insert(order_.end(), root.gpus.begin(), root.gpus.end());
  gpu_width_ = order_.size() > kMostWide ? kNarrow : kWide;
  find_levels(roots_);
  switched_ =
      std::any_of(facts_.nvlink.begin(), facts_.nvlink.end(), [](const auto& island) { return island.switched; });
  unknown_roots_ = unknown_between_roots();
  has_tree_ = !levels_.empty() || unknown_roots_ > 0;
}

Content RowLayout::lay_out() {
  const bool two_rows = switched_ && !has_tree_ && order_.size() > kMostInRow && facts_.nvlink.size() == 1;
  if (two_rows) {
    lay_out_two_rows();
  } else {
    lay_out_one_row();
  }
  return std::move(content_);
}

// ---- what there is --------------------------------------------------------------------------------------------------

void RowLayout::find_levels(const std::vector<PcieIsland>& islands) {
  for (const PcieIsland& island : islands) {
    if (island.parts.empty()) continue;
    levels_[island.kind] = 0;
    find_levels(island.parts);
  }
}

const NvIsland* RowLayout::nv_island_of(int gpu) const {
  for (const NvIsland& island : facts_.nvlink) {
    if (std::find(island.gpus.begin(), island.gpus.end(), gpu) != island.gpus.end()) return &island;
  }
  return nullptr;
}

bool RowLayout::on_same_switch(int a, int b) const {
  const NvIsland* const island = nv_island_of(a);
  return island != nullptr && island->switched && island == nv_island_of(b);
}

int RowLayout::unknown_between_roots() const {
  int unknown = 0;
  for (size_t a = 0; a < roots_.size(); ++a) {
    for (size_t b = a + 1; b < roots_.size(); ++b) {
      for (const int i : roots_[a].gpus) {
        for (const int j : roots_[b].gpus) {
          if (!path_between(topology_, i, j) && !on_same_switch(i, j)) ++unknown;
        }
      }
    }
  }
  return unknown;
}

/// Of a direct link between two GPUs; empty: none.
std::string RowLayout::direct_label(int a, int b) const {
  const std::optional<Path> path = path_between(topology_, a, b);
  if (!path || path->kind != PathKind::kNvLink || on_same_switch(a, b)) return "";
  return link_label(facts_.counts[at(a)]);
}

std::string RowLayout::rate_label(int a, int b) const {
  if (!topology_.link_gb_per_s) return "";
  const std::optional<double> rate = (*topology_.link_gb_per_s)[at(a)][at(b)];
  return rate ? fmt::format("{} GB/s", short_figure(*rate)) : "";
}

bool RowLayout::same_area(int a, int b) const {
  return gpu_at(topology_, a).numa_nodes == gpu_at(topology_, b).numa_nodes;
}

bool RowLayout::framed(int gpu) const {
  return !gpu_at(topology_, gpu).numa_nodes.empty();
}

bool RowLayout::has_nics(int gpu) const {
  return !near_nics(topology_, gpu).empty();
}

bool RowLayout::any_has_nics(const std::vector<int>& gpus) const {
  return std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return has_nics(gpu); });
}

double RowLayout::label_height() const {
  return std::any_of(order_.begin(), order_.end(), [&](int gpu) { return framed(gpu); }) ? kAreaLabelHeight : 0;
}

int RowLayout::arcs_needed() const {
  int arcs = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    for (size_t j = i + 2; j < order_.size(); ++j) arcs += direct_label(order_[i], order_[j]).empty() ? 0 : 1;
  }
  return arcs;
}

// ---- places ---------------------------------------------------------------------------------------------------------

/// From left to right; gives the width of the row.
double RowLayout::place_row(const std::vector<int>& gpus, double top) {
  double x = kAreaPadding;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (i > 0) x += gap_between(gpus[i - 1], gpus[i]);
    places_[gpus[i]] = {x + gpu_width_ / 2, top};
    x += gpu_width_;
  }
  return x + kAreaPadding;
}

double RowLayout::gap_between(int a, int b) const {
  constexpr double kLeastLink = 76;
  constexpr double kMargin = 28;
  const double frames = same_area(a, b) || !(framed(a) || framed(b)) ? 0 : 2 * kAreaPadding;
  const double gap = frames > 0 ? kAreaGap + frames : kGap;
  const std::string label = direct_label(a, b);
  if (label.empty()) return gap;
  const double widest =
      kMargin + std::max(text_width(label, kLabelSize, true), text_width(rate_label(a, b), kSmallSize));
  return std::max({gap, kLeastLink, widest + frames});
}

void RowLayout::move_row(const std::vector<int>& gpus, double by) {
  for (const int gpu : gpus) places_[gpu].x += by;
}

RowLayout::Span RowLayout::span_of(const std::vector<int>& gpus) const {
  Span span{.left = content_.width, .right = 0};
  for (const int gpu : gpus) {
    span.left = std::min(span.left, places_.at(gpu).x - gpu_width_ / 2);
    span.right = std::max(span.right, places_.at(gpu).x + gpu_width_ / 2);
  }
  return span;
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

/// Frames around each run of GPUs with the same NUMA nodes.
void RowLayout::add_areas(const std::vector<int>& gpus, double top, double bottom, bool label_below) {
  for (size_t first = 0; first < gpus.size();) {
    size_t end = first + 1;
    while (end < gpus.size() && same_area(gpus[first], gpus[end])) ++end;
    if (framed(gpus[first])) {
      const double left = places_[gpus[first]].x - gpu_width_ / 2 - kAreaPadding;
      const double right = places_[gpus[end - 1]].x + gpu_width_ / 2 + kAreaPadding;
      for (PictureItem& item :
           area_items(gpu_at(topology_, gpus[first]), {left, top, right - left, bottom - top}, label_below)) {
        content_.items.push_back(std::move(item));
      }
    }
    first = end;
  }
}

void RowLayout::add_gpus(const std::vector<int>& gpus) {
  for (const int gpu : gpus) {
    content_.items.push_back(gpu_item(topology_, facts_, gpu, places_[gpu].x, places_[gpu].top, gpu_width_));
  }
}

void RowLayout::add_nics(const std::vector<int>& gpus, bool below) {
  for (size_t first = 0; first < gpus.size();) {
    size_t end = first + 1;
    while (end < gpus.size() && same_area(gpus[first], gpus[end]) &&
           near_nics(topology_, gpus[end]) == near_nics(topology_, gpus[first])) {
      ++end;
    }
    const auto begin = gpus.begin() + static_cast<std::ptrdiff_t>(first);
    if (has_nics(gpus[first])) {
      add_shared_nics({begin, gpus.begin() + static_cast<std::ptrdiff_t>(end)}, below);
    }
    first = end;
  }
}

/// One box for neighbours that have the same NICs.
void RowLayout::add_shared_nics(const std::vector<int>& gpus, bool below) {
  constexpr double kRadius = 5;
  constexpr double kInset = 3;
  constexpr double kCodeSize = 10;
  const double inset = has_tree_ ? kConnectorRoom : 0;
  const std::vector<std::string>& names = near_nics(topology_, gpus.front());
  const Span span = span_of(gpus);
  const double left = span.left + inset;
  const double width = span.right - left;
  const double y = below ? places_[gpus.front()].bottom() + kNicGap : places_[gpus.front()].top - kNicGap - kNicHeight;
  PictureItem item{.layer = Layer::kBody, .css = "nic"};
  item.facts = {{"nics", fmt::format("{}", fmt::join(names, " "))}};
  item.title = fmt::format("nearest NICs: {}", fmt::join(names, ", "));
  item.boxes.push_back({left, y, width, kNicHeight, kRadius, "nic-box"});
  const double room = width - 2 * kInset;
  item.texts.push_back({left + width / 2, y + 15, kSmallSize, Anchor::kMiddle,
                        cut_to(fitting(nic_labels(topology_, names), room, kSmallSize), room, kSmallSize), ""});
  for (const int gpu : gpus) {
    const double x = places_[gpu].x + inset / 2;
    const double from = below ? places_[gpu].bottom() : places_[gpu].top;
    const double to = below ? y : y + kNicHeight;
    item.lines.push_back({x, from, x, to, 2, "connector"});
    item.texts.push_back(
        {x + 5, (from + to) / 2 + 4, kCodeSize, Anchor::kStart, nic_link_code(topology_, gpu), "muted"});
  }
  content_.items.push_back(item);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

void RowLayout::lay_out_one_row() {
  content_.width = place_row(order_, 0);
  overlapping_switches_ = switches_overlap();
  const double label = label_height();
  // Below bars of NVSwitches areas have their labels at the bottom, so that no link runs through a label.
  double area_top = 0;
  double gpu_top = kAreaPadding + label;
  if (switched_) {
    const auto bars = static_cast<double>(overlapping_switches_ ? facts_.nvlink.size() : 1);
    gpu_top = kSwitchHeight + (bars - 1) * (kSwitchHeight + kTreeGap) + kSwitchLinkHeight;
    area_top = gpu_top - kAreaPadding;
  }
  gpu_top += arcs_needed() * kArcHeight;
  for (const int gpu : order_) places_[gpu].top = gpu_top;
  const double nics = any_has_nics(order_) ? kNicGap + kNicHeight : 0;
  const double area_bottom = gpu_top + kGpuHeight + nics + kAreaPadding + (switched_ ? label : 0);
  add_areas(order_, area_top, area_bottom, /*label_below=*/switched_);
  add_gpus(order_);
  add_nics(order_, /*below=*/true);
  add_switches();
  add_direct_links();
  content_.height = has_tree_ ? add_trees(area_bottom + kTreeGap) : area_bottom;
}

void RowLayout::lay_out_two_rows() {
  const auto middle = order_.begin() + static_cast<std::ptrdiff_t>((order_.size() + 1) / 2);
  const std::vector<int> above(order_.begin(), middle);
  const std::vector<int> below(middle, order_.end());
  const double nics = kNicGap + kNicHeight;
  const double top = kAreaPadding + label_height() + (any_has_nics(above) ? nics : 0);
  const double bar = top + kGpuHeight + kSwitchLinkHeight;
  const double second = bar + kSwitchHeight + kSwitchLinkHeight;
  const double bottom = second + kGpuHeight + (any_has_nics(below) ? nics : 0) + kAreaPadding + label_height();
  const double width_above = place_row(above, top);
  const double width_below = place_row(below, second);
  content_.width = std::max(width_above, width_below);
  move_row(above, (content_.width - width_above) / 2);
  move_row(below, (content_.width - width_below) / 2);
  content_.height = bottom;
  add_areas(above, 0, top + kGpuHeight + kAreaPadding, /*label_below=*/false);
  add_areas(below, second - kAreaPadding, bottom, /*label_below=*/true);
  add_gpus(above);
  add_gpus(below);
  add_nics(above, /*below=*/false);
  add_nics(below, /*below=*/true);
  add_switch_bar(facts_.nvlink.front(), bar, {kAreaPadding, content_.width - kAreaPadding});
  for (const int gpu : above) add_switch_link(gpu, bar);
  for (const int gpu : below) add_switch_link(gpu, bar + kSwitchHeight);
}

Content row_content(const Topology& topology) {
  return RowLayout(topology).lay_out();
}

}  // namespace shardscope::topology
