// The layout of a row of GPUs, for NVSwitches, NVLink pairs and PCIe. Within the topology library only.
//
//        [ NVSwitch ]               with more than ten GPUs on switches: half of them above the bar,
//     +--|--+   +--|--+             half below it
//     | GPU |===| GPU |  area       === a direct NVLink
//     | NIC |   | NIC |
//     +--|--+   +--|--+
//        [ PIX     ]   [ PIX ]      the tree of PCIe: what stands on a bar meets there
//             [ SYS       ]
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/draw/islands.hpp"
#include "topology/draw/picture_parts.hpp"

namespace shardscope::topology {

class RowLayout {
 public:
  explicit RowLayout(const Topology& topology);
  /// Once.
  Content lay_out();

 private:
  /// The middle of a GPU's box, and its upper edge.
  struct Place {
    double x = 0, top = 0;
    double bottom() const { return top + kGpuHeight; }
  };
  /// Where a line of the tree begins.
  struct End {
    double x = 0, y = 0;
  };
  struct Span {
    double left = 0, right = 0;
  };

  // What there is.
  void find_levels(const std::vector<PcieIsland>& islands);
  const NvIsland* nv_island_of(int gpu) const;
  bool on_same_switch(int a, int b) const;
  int unknown_between_roots() const;
  std::string direct_label(int a, int b) const;
  std::string rate_label(int a, int b) const;
  bool same_area(int a, int b) const;
  bool framed(int gpu) const;
  bool has_nics(int gpu) const;
  bool any_has_nics(const std::vector<int>& gpus) const;
  double label_height() const;
  int arcs_needed() const;

  // Places.
  double place_row(const std::vector<int>& gpus, double top);
  double gap_between(int a, int b) const;
  void move_row(const std::vector<int>& gpus, double by);
  Span span_of(const std::vector<int>& gpus) const;
  bool switches_overlap() const;

  // Shapes: picture_row.cpp; of links: picture_row_links.cpp.
  void add_areas(const std::vector<int>& gpus, double top, double bottom, bool label_below);
  void add_gpus(const std::vector<int>& gpus);
  void add_nics(const std::vector<int>& gpus, bool below);
  void add_shared_nics(const std::vector<int>& gpus, bool below);
  void add_switches();
  void add_switch_bar(const NvIsland& island, double y, const Span& span);
  void add_switch_link(int gpu, double bar_edge);
  bool missing_from(const NvIsland& island, int gpu) const;
  void add_direct_links();
  void add_direct_link(int a, int b, bool neighbours);
  double add_trees(double y);
  End add_tree(const PcieIsland& island);
  End add_tree_bar(const std::string& css, const PcieIsland& island, const std::vector<End>& ends, double y);
  std::vector<std::string> bar_labels(const PcieIsland& island) const;

  void lay_out_one_row();
  void lay_out_two_rows();

  const Topology& topology_;
  const Facts facts_;
  const std::vector<PcieIsland> roots_;
  std::vector<int> order_;  // positions, from left to right
  std::map<int, Place> places_;
  std::map<PathKind, double> levels_;  // y of the tree's rows
  double gpu_width_ = 0;
  int unknown_roots_ = 0;  // pairs of which nothing is known, not even that both GPUs are on the same switches
  int arcs_ = 0;           // drawn so far
  bool switched_ = false, has_tree_ = false, overlapping_switches_ = false;
  Content content_;
};

constexpr double kSwitchLinkHeight = 64;  // between a bar of NVSwitches and its GPUs
constexpr double kTreeGap = 26;           // between the rows of the tree
constexpr double kArcHeight = 26;         // each arc rises so far above the one before

}  // namespace shardscope::topology
