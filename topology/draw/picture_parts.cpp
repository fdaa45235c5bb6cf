#include "topology/draw/picture_parts.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

size_t at(int position) {
  return static_cast<size_t>(position);
}

std::string short_name(const Gpu& gpu) {
  std::string name = printable(gpu.name);
  for (const std::string_view prefix : {"NVIDIA ", "GeForce ", "Tesla "}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  return name;
}

/// What else a GPU's box says: its model where they differ, links that are down.
std::string second_line(const Topology& topology, const Facts& facts, int position) {
  const Gpu& gpu = gpu_at(topology, position);
  const auto down = std::count_if(gpu.ports.begin(), gpu.ports.end(), [](const auto& p) { return p.active == false; });
  if (down > 0) return fmt::format("{} of {} links", static_cast<int64_t>(gpu.ports.size()) - down, gpu.ports.size());
  const LinkCount& count = facts.counts[at(position)];
  const bool direct = std::none_of(facts.nvlink.begin(), facts.nvlink.end(), [&](const NvIsland& island) {
    return (island.switched || island.gpus.size() == 2) &&
           std::find(island.gpus.begin(), island.gpus.end(), position) != island.gpus.end();
  });
  if (direct && count.degraded()) return fmt::format("{} of {} links", count.links, *count.expected);
  return facts.models_differ ? short_name(gpu) : "";
}

std::string gpu_title(const Topology& topology, int position) {
  const Gpu& gpu = gpu_at(topology, position);
  std::string title = gpu_label(topology, position);
  if (!gpu.name.empty()) title += fmt::format(": {}", printable(gpu.name));
  if (!gpu.numa_nodes.empty()) title += fmt::format("; NUMA node {}", ranges_text(gpu.numa_nodes));
  if (!gpu.cpu_affinity.empty()) title += fmt::format("; CPUs {}", printable(gpu.cpu_affinity));
  if (const std::vector<std::string>& nics = near_nics(topology, position); !nics.empty()) {
    title += fmt::format("; nearest NICs {} ({})", printable(fmt::format("{}", fmt::join(nics, ", "))),
                         nic_link_code(topology, position));
  }
  return title;
}

}  // namespace

Facts facts_of(const Topology& topology) {
  Facts facts{.nvlink = nvlink_islands(topology)};
  facts.counts = link_counts(topology, facts.nvlink);
  std::set<std::string> names;
  for (const Gpu& gpu : topology.gpus) names.insert(gpu.name);
  facts.models_differ = names.size() > 1;
  if (topology.links) {
    for (const auto& row : *topology.links) {
      facts.old_codes = facts.old_codes || std::any_of(row.begin(), row.end(), [](const std::optional<Path>& path) {
                          return path && path->kind == PathKind::kSoc;
                        });
    }
  }
  return facts;
}

const Gpu& gpu_at(const Topology& topology, int position) {
  return topology.gpus[at(position)];
}

std::string gpu_label(const Topology& topology, int position) {
  return fmt::format("GPU {}", gpu_at(topology, position).index);
}

std::string css_of(const std::optional<Path>& path) {
  if (!path) return "unknown";
  switch (path->kind) {
    case PathKind::kNvLink:
      return "nv";
    case PathKind::kPix:
    case PathKind::kPxb:
      return "pix";
    case PathKind::kPhb:
    case PathKind::kNode:
      return "phb";
    case PathKind::kSys:
    case PathKind::kSoc:
      return "sys";
    case PathKind::kSelf:
      break;
  }
  return "unknown";
}

std::string code_of(PathKind kind, const Facts& facts) {
  return text_of({.kind = kind == PathKind::kSys && facts.old_codes ? PathKind::kSoc : kind});
}

std::string words_of_path(PathKind kind) {
  switch (kind) {
    case PathKind::kPix:
      return "within one PCIe switch";
    case PathKind::kPxb:
      return "across PCIe switches";
    case PathKind::kPhb:
      return "through a CPU's host bridge";
    case PathKind::kNode:
      return "between host bridges of a NUMA node";
    case PathKind::kSys:
    case PathKind::kSoc:
      return "through the link between CPU sockets";
    case PathKind::kNvLink:
      return "NVLink";
    case PathKind::kSelf:
      break;
  }
  return "itself";
}

std::string link_label(const LinkCount& count) {
  if (count.links == 0) return count.row_known ? "no NVLink" : "?";
  if (count.degraded()) return fmt::format("NV{} of {}", count.links, *count.expected);
  return count.row_known ? fmt::format("NV{}", count.links) : fmt::format("NV{} ?", count.links);
}

double link_width(int nvlinks) {
  constexpr double kOne = 2.5;
  constexpr double kMost = 14;
  constexpr double kGrowth = 0.6;
  return std::min(kMost, kOne * std::pow(std::max(nvlinks, 1), kGrowth));
}

std::string fitting(const std::vector<std::string>& choices, double width, double size, bool strong) {
  for (const std::string& choice : choices) {
    if (text_width(choice, size, strong) <= width) return choice;
  }
  return choices.empty() ? "" : choices.back();
}

std::string cut_to(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  std::string cut = text;
  while (!cut.empty() && text_width(cut + "…", size) > width) {
    do {
      cut.pop_back();
    } while (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0xc0U) == 0x80U);
    // A lead byte whose rest is gone must go as well.
    if (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0xc0U) == 0xc0U) cut.pop_back();
  }
  return cut + "…";
}

PictureItem gpu_item(const Topology& topology, const Facts& facts, int position, double x, double y, double width) {
  constexpr double kRadius = 9;
  constexpr double kTextInset = 4;
  PictureItem item{.layer = PictureItem::Layer::kBody, .css = "gpu"};
  item.facts = {{"gpu", fmt::format("{}", gpu_at(topology, position).index)}};
  item.title = gpu_title(topology, position);
  item.boxes.push_back({x - width / 2, y, width, kGpuHeight, kRadius, "gpu-box"});
  const std::string second = second_line(topology, facts, position);
  const double first_y = y + (second.empty() ? 31 : 23);
  item.texts.push_back({x, first_y, width < 70 ? 14.0 : 16.0, PictureText::Anchor::kMiddle,
                        gpu_label(topology, position), "strong gpu-text"});
  if (!second.empty()) {
    item.texts.push_back(
        {x, y + 40, 10, PictureText::Anchor::kMiddle, cut_to(second, width - kTextInset, 10), "gpu-text"});
  }
  return item;
}

void add_plate(PictureItem& item, const std::string& text, double x, double y, double size) {
  constexpr double kInset = 5;
  const double width = text_width(text, size, /*strong=*/true) + 2 * kInset;
  const double height = size + 7;
  item.boxes.push_back({x - width / 2, y - height / 2, width, height, height / 2, "plate"});
  item.texts.push_back({x, y + size * 0.36, size, PictureText::Anchor::kMiddle, text, "strong"});
}

std::vector<PictureItem> area_items(const Gpu& gpu, const PictureBox& box, bool label_below) {
  constexpr double kRadius = 14;
  PictureItem area{.layer = PictureItem::Layer::kArea, .css = "area"};
  const std::string nodes = ranges_text(gpu.numa_nodes);
  const std::string cpus = printable(gpu.cpu_affinity);
  area.facts = {{"numa", nodes}};
  area.boxes.push_back({box.x, box.y, box.width, box.height, kRadius, "area-box"});
  if (!cpus.empty()) area.title = fmt::format("NUMA node {}, CPUs {}", nodes, cpus);
  std::vector<std::string> labels;
  if (!cpus.empty()) labels.push_back(fmt::format("NUMA node {} · CPUs {}", nodes, cpus));
  labels.push_back(fmt::format("NUMA node {}", nodes));
  labels.push_back(fmt::format("NUMA {}", nodes));
  const double room = box.width - 2 * kAreaPadding;
  PictureText text{.x = box.x + box.width / 2,
                   .y = label_below ? box.y + box.height - 9 : box.y + 17,
                   .size = kSmallSize,
                   .text = cut_to(fitting(labels, room, kSmallSize), room, kSmallSize),
                   .css = "muted"};
  // On a plate of the area's own colour: lines to PCIe run behind.
  PictureItem label{.layer = PictureItem::Layer::kLabel, .css = "area-label"};
  PictureBox plate = extent_of(text);
  plate.css = "area-plate";
  label.boxes.push_back(plate);
  label.texts.push_back(text);
  return {area, label};
}

PictureItem bar_item(const std::string& css, const std::vector<std::string>& labels, const PictureBox& box) {
  constexpr double kRadius = 7;
  constexpr double kInset = 8;
  PictureItem item{.layer = PictureItem::Layer::kBody, .css = "bar"};
  PictureBox body = box;
  body.radius = kRadius;
  body.css = fmt::format("bar-box {}", css);
  item.boxes.push_back(body);
  item.texts.push_back({box.x + box.width / 2, box.y + box.height / 2 + kLabelSize * 0.36, kLabelSize,
                        PictureText::Anchor::kMiddle, fitting(labels, box.width - 2 * kInset, kLabelSize, true),
                        "strong"});
  return item;
}

const std::vector<std::string>& near_nics(const Topology& topology, int position) {
  static const std::vector<std::string> kNone;
  return at(position) < topology.nearest_nics.size() ? topology.nearest_nics[at(position)] : kNone;
}

std::string nic_link_code(const Topology& topology, int position) {
  if (at(position) >= topology.nearest_nic_links.size() || !topology.nearest_nic_links[at(position)]) return "";
  return text_of(*topology.nearest_nic_links[at(position)]);
}

std::vector<std::string> nic_labels(const Topology& topology, const std::vector<std::string>& names) {
  std::vector<std::string> labels;
  if (names.size() == 1) {
    for (const Nic& nic : topology.nics) {
      if (nic.name == names.front() && !nic.device.empty() && nic.device != nic.name) {
        labels.push_back(fmt::format("{} ({})", printable(nic.name), printable(nic.device)));
      }
    }
  }
  labels.push_back(printable(fmt::format("{}", fmt::join(names, ", "))));
  if (names.size() > 1) {
    labels.push_back(fmt::format("{} +{}", printable(names.front()), names.size() - 1));
    labels.push_back(fmt::format("{} NICs", names.size()));
  } else {
    labels.emplace_back("NIC");
  }
  return labels;
}

}  // namespace shardscope::topology
