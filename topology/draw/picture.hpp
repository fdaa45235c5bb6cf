// A topology as shapes with places: what draw_svg.cpp writes down, and what tests check for overlaps. No unit; the
// origin is the upper left corner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

struct PictureBox {
  double x = 0, y = 0, width = 0, height = 0;
  double radius = 0;  // of its corners
  std::string css;    // classes of draw_svg.cpp
};

/// A line, or with a `bend` an arc that rises so far above its ends.
struct PictureLine {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  double width = 1;
  std::string css;
  double bend = 0;
};

struct PictureText {
  enum class Anchor : uint8_t { kStart, kMiddle, kEnd };

  double x = 0, y = 0;  // y: of the baseline
  double size = 12;
  Anchor anchor = Anchor::kMiddle;
  std::string text;  // not escaped yet
  std::string css;
};

/// What belongs together: a GPU, a link with its label, …
struct PictureItem {
  enum class Layer : uint8_t { kGround, kArea, kConnector, kLink, kBody, kLabel };

  Layer layer = Layer::kBody;
  std::string css;                                         // "gpu", "link", "bar", "nic", "area", "legend", …
  std::vector<std::pair<std::string, std::string>> facts;  // become data-KEY attributes
  std::string title;                                       // what a pointer that rests there shows; may be empty
  std::vector<PictureLine> lines;
  std::vector<PictureBox> boxes;
  std::vector<PictureText> texts;
};

struct Picture {
  double width = 0, height = 0;
  std::string title, description;
  std::vector<PictureItem> items;
};

/// At most so wide is `text` in usual sans-serif fonts.
double text_width(std::string_view text, double size, bool strong = false);

/// The text's place, by text_width().
PictureBox extent_of(const PictureText& text);

Picture picture_of(const Topology& topology);

}  // namespace shardscope::topology
