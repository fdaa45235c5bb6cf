// The places of a picture's shapes: no text lies on another, or leaves its box.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/draw/picture.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Picture;
using topology::PictureBox;
using topology::PictureItem;
using topology::PictureText;
using topology::Topology;

namespace {

bool overlap(const PictureBox& a, const PictureBox& b) {
  constexpr double kTouch = 0.01;
  return a.x + kTouch < b.x + b.width && b.x + kTouch < a.x + a.width && a.y + kTouch < b.y + b.height &&
         b.y + kTouch < a.y + a.height;
}

bool inside(const PictureBox& a, const PictureBox& b) {
  constexpr double kTouch = 0.01;
  return a.x >= b.x - kTouch && a.y >= b.y - kTouch && a.x + a.width <= b.x + b.width + kTouch &&
         a.y + a.height <= b.y + b.height + kTouch;
}

using Complaints = std::vector<std::string>;

/// What is wrong: texts over each other, outside the picture or the box that they are written in; boxes (of GPUs, NICs,
/// bars, labels) over each other or over other items' texts.
Complaints complaints_about(const Picture& picture) {
  Complaints complaints;
  std::vector<std::pair<PictureBox, std::string>> texts;
  std::vector<std::pair<PictureBox, const PictureItem*>> bodies;
  const PictureBox whole{0, 0, picture.width, picture.height, 0, ""};
  for (const PictureItem& item : picture.items) {
    const bool ground = item.css == "ground" || item.css == "area";
    for (const PictureBox& box : item.boxes) {
      if (!inside(box, whole)) complaints.push_back(fmt::format("{} leaves the picture", item.css));
      if (ground) continue;
      for (const auto& [other, owner] : bodies) {
        if (overlap(box, other)) complaints.push_back(fmt::format("{} over {}", item.css, owner->css));
      }
      bodies.emplace_back(box, &item);
    }
    for (const PictureText& text : item.texts) {
      const PictureBox extent = extent_of(text);
      if (!inside(extent, whole)) complaints.push_back(fmt::format("'{}' leaves the picture", text.text));
      const bool in_box = item.css == "gpu" || item.css == "bar" || item.css == "label" || item.css == "area-label";
      if (in_box && !inside(extent, item.boxes.front())) {
        complaints.push_back(fmt::format("'{}' leaves its box", text.text));
      }
      for (const auto& [other, said] : texts) {
        if (overlap(extent, other)) complaints.push_back(fmt::format("'{}' over '{}'", text.text, said));
      }
      texts.emplace_back(extent, text.text);
    }
  }
  for (const PictureItem& item : picture.items) {
    for (const PictureText& text : item.texts) {
      for (const auto& [box, owner] : bodies) {
        if (owner == &item || !overlap(extent_of(text), box)) continue;
        complaints.push_back(fmt::format("'{}' over a box of {}", text.text, owner->css));
      }
    }
  }
  return complaints;
}

TEST_CASE("picture_of: no text lies on another in any recorded machine") {
  for_recorded([](const Topology& machine) { CHECK(complaints_about(picture_of(machine)) == Complaints{}); });
}

TEST_CASE("picture_of: no text lies on another for any number of GPUs, links and NUMA nodes") {
  for (int gpus = 0; gpus <= 16; ++gpus) {
    for (const char* const path : {"NV18", "NV2", "PIX", "PHB", "SYS", ""}) {
      for (const int nodes : {0, 1, 2, 4, 8}) {
        for (const bool nics : {false, true}) {
          INFO(gpus << " GPUs, " << path << ", " << nodes << " NUMA nodes, " << (nics ? "with NICs" : "without NICs"));
          Topology machine = joined(gpus, path);
          for (int gpu = 0; gpu < gpus; ++gpu) {
            topology::Gpu& changed = machine.gpus[static_cast<size_t>(gpu)];
            if (nodes > 0) changed.numa_nodes = {gpu * nodes / gpus};
            changed.cpu_affinity = "0-23,48-71,96-119,144-167";
            changed.name = gpu == 1 ? "NVIDIA RTX PRO 6000 Blackwell Server Edition" : "";
            if (!nics) continue;
            machine.nics.push_back({.name = fmt::format("mlx5_bond_{}", gpu / 2)});
            machine.nic_links.emplace(static_cast<size_t>(gpus),
                                      std::vector<std::optional<topology::Path>>(static_cast<size_t>(gpus)));
          }
          for (size_t gpu = 0; nics && gpu < machine.gpus.size(); ++gpu) {
            for (size_t nic = 0; nic < machine.nics.size(); ++nic) {
              (*machine.nic_links)[gpu][nic] = topology::path_of(gpu / 3 == nic ? "PXB" : "SYS");
            }
          }
          // A linked pair that does not stand side by side, and one of a cube mesh's size.
          if (gpus >= 4) join(machine, 0, gpus - 1, "NV4");
          CHECK(complaints_about(picture_of(understood(machine))) == Complaints{});
        }
      }
    }
  }
}

size_t count_of(const Picture& picture, const std::string& css) {
  return static_cast<size_t>(std::count_if(picture.items.begin(), picture.items.end(),
                                           [&](const PictureItem& item) { return item.css == css; }));
}

TEST_CASE("picture_of: 64 GPUs in a ring and in a row are drawn in reasonable time") {
  Topology ring = joined(64, "SYS");
  for (int gpu = 0; gpu < 64; ++gpu) join(ring, gpu, (gpu + 1) % 64, "NV4");
  CHECK(count_of(picture_of(understood(ring)), "link") == 64);
  for (const char* const path : {"PIX", "NV18"}) {
    const Picture picture = picture_of(understood(joined(64, path)));
    CHECK(count_of(picture, "gpu") == 64);
    CHECK(complaints_about(picture) == Complaints{});
  }
}

TEST_CASE("picture_of: a text or box in a wrong place would be found") {
  const auto gpu_of = [](Picture& picture) {
    return std::find_if(picture.items.begin(), picture.items.end(), [](const auto& item) { return item.css == "gpu"; });
  };
  const Picture sound = picture_of(understood(joined(4, "PIX")));
  REQUIRE(complaints_about(sound) == Complaints{});
  Picture moved_text = sound;
  gpu_of(moved_text)->texts.front().y -= 25;
  CHECK(complaints_about(moved_text) == Complaints{"'GPU 0' leaves its box"});
  Picture moved_box = sound;
  gpu_of(moved_box)->boxes.front().x += 30;
  CHECK(complaints_about(moved_box).size() >= 2);  // over its neighbour, and away from its text
  Picture twice = sound;
  gpu_of(twice)->texts.push_back(gpu_of(twice)->texts.front());
  CHECK(complaints_about(twice) == Complaints{"'GPU 0' over 'GPU 0'"});
  Picture narrow = sound;
  narrow.width /= 2;
  CHECK_FALSE(complaints_about(narrow).empty());
}

}  // namespace
