// GPUs around an ellipse, so that no straight line between two of them crosses a third: for direct NVLinks that are
// more than pairs. What has no line is named in bars below.
#include "topology/draw/picture_ring.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/draw/picture_parts.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

constexpr double kGpuWidth = 84;
constexpr double kTagHeight = 20;  // of nearest NICs, below a GPU's box
constexpr double kTagGap = 2;
constexpr double kBarGap = 28;

using Layer = PictureItem::Layer;
using Anchor = PictureText::Anchor;

bool overlap(const PictureBox& a, const PictureBox& b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

bool any_near_nics(const Topology& topology) {
  return std::any_of(topology.nearest_nics.begin(), topology.nearest_nics.end(),
                     [](const std::vector<std::string>& names) { return !names.empty(); });
}

class RingLayout {
 public:
  explicit RingLayout(const Topology& topology)
      : topology_(topology),
        facts_(facts_of(topology)),
        any_nics_(any_near_nics(topology)),
        ring_(ring_places(topology, any_nics_)) {}

  Content lay_out() {
    place();
    add_areas();
    add_gpus();
    add_links();
    add_bars();
    return std::move(content_);
  }

 private:
  const std::vector<int>& node_of(int gpu) const { return gpu_at(topology_, gpu).numa_nodes; }

  bool linked(int a, int b) const {
    const std::optional<Path> path = path_between(topology_, a, b);
    return path && path->kind == PathKind::kNvLink;
  }

  double body_height() const { return kGpuHeight + (any_nics_ ? kTagHeight + kTagGap : 0); }

  /// Moves the ring to where its areas begin at (0, 0).
  void place() {
    double left = 0;
    double top = 0;
    for (const RingPoint& point : ring_.points) {
      left = std::min(left, point.x - kGpuWidth / 2);
      top = std::min(top, point.y - body_height() / 2);
    }
    const bool framed = ring_.halves || ring_.one_node;
    const double margin = framed ? kAreaPadding : 0;
    for (size_t i = 0; i < ring_.order.size(); ++i) {
      RingPoint& point = ring_.points[i];
      point.x += margin - left;
      point.y += margin + (framed ? kAreaLabelHeight : 0) - top;
      content_.width = std::max(content_.width, point.x + kGpuWidth / 2 + margin);
      content_.height = std::max(content_.height, point.y + body_height() / 2 + margin);
      places_[ring_.order[i]] = point;
    }
    area_bottom_ = content_.height;
  }

  // ---- shapes ----

  void add_area(const Gpu& gpu, const PictureBox& box) {
    for (PictureItem& item : area_items(gpu, box, /*label_below=*/false)) content_.items.push_back(std::move(item));
  }

  void add_areas() {
    if (ring_.one_node) {
      add_area(gpu_at(topology_, ring_.order.front()), {0, 0, content_.width, content_.height});
    }
    if (!ring_.halves) return;
    for (const bool left : {true, false}) {
      double from = content_.width;
      double to = 0;
      for (size_t i = left ? 0 : ring_.left; i < (left ? ring_.left : ring_.order.size()); ++i) {
        from = std::min(from, ring_.points[i].x - kGpuWidth / 2 - kAreaPadding);
        to = std::max(to, ring_.points[i].x + kGpuWidth / 2 + kAreaPadding);
      }
      areas_.emplace_back(from, to);
      add_area(gpu_at(topology_, left ? ring_.order.front() : ring_.order.back()),
               {from, 0, to - from, content_.height});
    }
  }

  void add_gpus() {
    for (const auto& [gpu, place] : places_) {
      const double top = place.y - body_height() / 2;
      content_.items.push_back(gpu_item(topology_, facts_, gpu, place.x, top, kGpuWidth));
      taken_.push_back({place.x - kGpuWidth / 2, top, kGpuWidth, body_height()});
      const std::vector<std::string>& names = near_nics(topology_, gpu);
      if (names.empty()) continue;
      PictureItem tag{.layer = Layer::kBody, .css = "nic"};
      tag.facts = {{"nics", printable(fmt::format("{}", fmt::join(names, " ")))}};
      tag.title = fmt::format("nearest NICs of {}: {}", gpu_label(topology_, gpu),
                              printable(fmt::format("{}", fmt::join(names, ", "))));
      const double y = top + kGpuHeight + kTagGap;
      tag.boxes.push_back({place.x - kGpuWidth / 2, y, kGpuWidth, kTagHeight, 5, "nic-box"});
      std::vector<std::string> labels;
      for (const std::string& label : nic_labels(topology_, names)) {
        labels.push_back(fmt::format("{} {}", nic_link_code(topology_, gpu), label));
      }
      constexpr double kSize = 10.5;
      tag.texts.push_back({place.x, y + 14, kSize, Anchor::kMiddle,
                           cut_to(fitting(labels, kGpuWidth - 6, kSize), kGpuWidth - 6, kSize), ""});
      content_.items.push_back(tag);
    }
  }

  void add_links() {
    for (size_t i = 0; i < ring_.order.size(); ++i) {
      for (size_t j = i + 1; j < ring_.order.size(); ++j) {
        if (linked(ring_.order[i], ring_.order[j]))
          add_link(std::min(ring_.order[i], ring_.order[j]), std::max(ring_.order[i], ring_.order[j]));
      }
    }
  }

  /// Of a mesh each link has the same count; else a GPU's own box says what is missing.
  int expected_of_mesh() const {
    if (topology_.topology_class != TopologyClass::kNvLinkMesh) return 0;
    std::map<int, int> counts;
    for (const int a : ring_.order) {
      for (const int b : ring_.order) {
        if (a < b && linked(a, b)) ++counts[path_between(topology_, a, b)->nvlinks];
      }
    }
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? 0 : most->first;
  }

  void add_link(int a, int b) {
    const int links = path_between(topology_, a, b)->nvlinks;
    const int expected = expected_of_mesh();
    const std::string code = fmt::format("NV{}", links);
    const std::string label = links < expected ? fmt::format("{} of {}", code, expected) : code;
    const RingPoint& from = places_[a];
    const RingPoint& to = places_[b];
    PictureItem item{.layer = Layer::kLink, .css = "link"};
    item.facts = {{"link", code},
                  {"from", fmt::format("{}", gpu_at(topology_, a).index)},
                  {"to", fmt::format("{}", gpu_at(topology_, b).index)}};
    item.title = fmt::format("{} to {}: {}", gpu_label(topology_, a), gpu_label(topology_, b), label);
    item.lines.push_back({from.x, from.y, to.x, to.y, link_width(links), links < expected ? "nv dashed" : "nv"});
    content_.items.push_back(item);
    add_link_label(label, a, b);
  }

  /// Whether the line of another pair runs through the box.
  bool crossed(const PictureBox& box, int a, int b) const {
    constexpr int kSamples = 100;
    for (const int i : ring_.order) {
      for (const int j : ring_.order) {
        if (i >= j || !linked(i, j) || (i == a && j == b)) continue;
        const RingPoint& from = places_.at(i);
        const RingPoint& to = places_.at(j);
        for (int sample = 0; sample <= kSamples; ++sample) {
          const double share = static_cast<double>(sample) / kSamples;
          const double x = from.x + (to.x - from.x) * share;
          const double y = from.y + (to.y - from.y) * share;
          if (x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height) return true;
        }
      }
    }
    return false;
  }

  /// As near to the line's middle as there is room, if possible where no other line runs.
  void add_link_label(const std::string& label, int a, int b) {
    constexpr double kStep = 0.02;
    constexpr int kSteps = 18;
    constexpr double kClear = 1;
    constexpr double kFromLine = 5;
    const RingPoint& from = places_[a];
    const RingPoint& to = places_[b];
    PictureItem chosen;
    int best = 3;  // 2: over something else; 1: over a line; 0: free
    for (int step = 0; step <= 2 * kSteps && best > 0; ++step) {
      const double share = 0.5 + kStep * ((step + 1) / 2) * (step % 2 == 0 ? 1 : -1);
      PictureItem item{.layer = Layer::kLabel, .css = "label"};
      add_plate(item, label, from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share, kSmallSize);
      PictureBox box = item.boxes.front();
      box = {box.x - kClear, box.y - kClear, box.width + 2 * kClear, box.height + 2 * kClear};
      const bool over =
          std::any_of(taken_.begin(), taken_.end(), [&](const PictureBox& other) { return overlap(box, other); });
      const PictureBox wider = {box.x - kFromLine, box.y - kFromLine, box.width + 2 * kFromLine,
                                box.height + 2 * kFromLine};
      const int badness = over ? 2 : crossed(wider, a, b) ? 1 : 0;
      if (badness >= best) continue;
      best = badness;
      chosen = item;
    }
    taken_.push_back(chosen.boxes.front());
    content_.items.push_back(chosen);
  }

  /// One bar for each kind of path among the pairs without a line.
  void add_bars() {
    std::map<PathKind, int> pairs;
    std::map<PathKind, bool> across;
    int unknown = 0;
    for (const int a : ring_.order) {
      for (const int b : ring_.order) {
        if (a >= b || linked(a, b)) continue;
        const std::optional<Path> path = path_between(topology_, a, b);
        if (!path) {
          ++unknown;
          continue;
        }
        const PathKind kind = path->kind == PathKind::kSoc ? PathKind::kSys : path->kind;
        ++pairs[kind];
        across[kind] = across[kind] || node_of(a) != node_of(b);
      }
    }
    for (const auto& [kind, count] : pairs) {
      const std::string code = code_of(kind, facts_);
      const std::string without = fmt::format("{} without a line", counted(count, "pair"));
      add_bar(
          css_of(Path{.kind = kind}), code, across[kind],
          {fmt::format("{} · {}: {}", code, words_of_path(kind), without), fmt::format("{}: {}", code, without), code});
    }
    if (unknown > 0) {
      add_bar("unknown dashed", "unknown", ring_.halves,
              {fmt::format("? · {} of which nothing is known", counted(unknown, "pair")), "?"});
    }
  }

  void add_bar(const std::string& css, const std::string& code, bool across, const std::vector<std::string>& labels) {
    double left = kAreaPadding;
    double right = content_.width - kAreaPadding;
    const double y = content_.height + kBarGap;
    if (across && areas_.size() == 2) {
      PictureItem connectors{.layer = Layer::kConnector, .css = "connectors"};
      for (const auto& [from, to] : areas_) {
        connectors.lines.push_back({(from + to) / 2, area_bottom_, (from + to) / 2, y, 2, "connector"});
      }
      content_.items.push_back(connectors);
      left = (areas_[0].first + areas_[0].second) / 2 - 30;
      right = (areas_[1].first + areas_[1].second) / 2 + 30;
    }
    PictureItem bar = bar_item(css, labels, {left, y, right - left, kBarHeight});
    bar.facts = {{"link", code}};
    content_.items.push_back(bar);
    content_.height = y + kBarHeight;
  }

  const Topology& topology_;
  const Facts facts_;
  const bool any_nics_;
  RingPlaces ring_;
  std::map<int, RingPoint> places_;
  std::vector<std::pair<double, double>> areas_;  // left and right edges
  std::vector<PictureBox> taken_;                 // where no label may stand
  double area_bottom_ = 0;
  Content content_;
};

}  // namespace

Content ring_content(const Topology& topology) {
  return RingLayout(topology).lay_out();
}

}  // namespace shardscope::topology
