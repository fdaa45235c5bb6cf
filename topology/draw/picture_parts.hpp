// What both layouts of a picture (picture_row.cpp, picture_ring.cpp) put together: boxes of GPUs, labels, bars, areas.
// Within the topology library only.
#pragma once

#include <string>
#include <vector>

#include "topology/draw/islands.hpp"
#include "topology/draw/picture.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

constexpr double kGpuHeight = 50;
constexpr double kAreaPadding = 14;
constexpr double kBarHeight = 30;
constexpr double kSwitchHeight = 38;
constexpr double kNicHeight = 22;
constexpr double kLabelSize = 12;
constexpr double kSmallSize = 11;

/// A layout without its heading, from (0, 0) on.
struct Content {
  std::vector<PictureItem> items;
  double width = 0, height = 0;
};

/// GPUs in a row, by area; NVSwitches as bars above them (or between two rows), PCIe as a tree of bars below.
Content row_content(const Topology& topology);
/// GPUs around an ellipse, for direct NVLinks that are more than pairs.
Content ring_content(const Topology& topology);

/// Explains the shapes that the picture has, from `y` on; gives the height.
double add_legend(Picture& picture, double margin, double y);

/// What the layouts read from a topology, drawn once.
struct Facts {
  std::vector<NvIsland> nvlink;
  std::vector<LinkCount> counts;
  bool models_differ = false;
  bool old_codes = false;  // SOC for SYS
};
Facts facts_of(const Topology& topology);

const Gpu& gpu_at(const Topology& topology, int position);
std::string gpu_label(const Topology& topology, int position);  // "GPU 3"
/// "nv", "pix", "phb", "sys" or, of no path, "unknown": the classes that give a link its colour.
std::string css_of(const std::optional<Path>& path);
std::string code_of(PathKind kind, const Facts& facts);  // "PIX"
std::string words_of_path(PathKind kind);                // "within one PCIe switch"
/// "NV12", of a link that should have more "NV3 of 4", of a GPU with unknown pairs "NV6, part unknown".
std::string link_label(const LinkCount& count);
/// Grows with the number of links, less than in proportion, so that 18 can still be drawn.
double link_width(int nvlinks);

/// The first of `choices` that is at most so wide, else the last.
std::string fitting(const std::vector<std::string>& choices, double width, double size, bool strong = false);
/// `text` cut to that width with "…", if need be.
std::string cut_to(const std::string& text, double width, double size);

/// A GPU whose box is `width` wide and centred at `x`, its top at `y`.
PictureItem gpu_item(const Topology& topology, const Facts& facts, int position, double x, double y, double width);
/// A text on a plate of its own, centred, so that lines behind do not disturb.
void add_plate(PictureItem& item, const std::string& text, double x, double y, double size = kLabelSize);
/// The frame of a NUMA node (or of several that count as one), its label above or below what it holds.
std::vector<PictureItem> area_items(const Gpu& gpu, const PictureBox& box, bool label_below);
constexpr double kAreaLabelHeight = 20;
/// Something that joins all that stand on it.
PictureItem bar_item(const std::string& css, const std::vector<std::string>& labels, const PictureBox& box);

/// NICs of GPU `position` at PHB or nearer; none if nobody knows.
const std::vector<std::string>& near_nics(const Topology& topology, int position);
std::string nic_link_code(const Topology& topology, int position);  // "PIX"; empty: unknown
/// NIC names from complete to short, for fitting().
std::vector<std::string> nic_labels(const Topology& topology, const std::vector<std::string>& names);

}  // namespace shardscope::topology
