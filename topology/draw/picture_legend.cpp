// What the shapes of a picture mean, and how wide its texts are.
#include <algorithm>

#include <fmt/format.h>

#include "topology/draw/picture_parts.hpp"

namespace shardscope::topology {
namespace {

struct Sample {
  enum class Shape : uint8_t { kStroke, kBar, kNic, kArea };
  Shape shape = Shape::kStroke;
  std::string css;
  std::string text;
};

bool drawn(const Picture& picture, std::string_view css) {
  const auto has = [&](const auto& shape) {
    return fmt::format(" {} ", shape.css).find(fmt::format(" {} ", css)) != std::string::npos;
  };
  return std::any_of(picture.items.begin(), picture.items.end(), [&](const PictureItem& item) {
    return std::any_of(item.lines.begin(), item.lines.end(), has) ||
           std::any_of(item.boxes.begin(), item.boxes.end(), has);
  });
}

std::vector<Sample> samples_of(const Picture& picture) {
  using Shape = Sample::Shape;
  std::vector<Sample> samples;
  if (drawn(picture, "nv")) samples.push_back({Shape::kStroke, "nv", "NVn: n NVLinks (the more, the wider)"});
  if (drawn(picture, "dashed")) {
    samples.push_back({Shape::kStroke, "unknown dashed", "dashed: weaker than it should be, or unknown"});
  }
  if (drawn(picture, "pix")) samples.push_back({Shape::kBar, "pix", "PIX, PXB: PCIe switches only"});
  if (drawn(picture, "phb")) samples.push_back({Shape::kBar, "phb", "PHB, NODE: through a CPU"});
  if (drawn(picture, "sys")) samples.push_back({Shape::kBar, "sys", "SYS: from socket to socket"});
  if (drawn(picture, "nic-box")) samples.push_back({Shape::kNic, "nic-box", "nearest NICs"});
  if (drawn(picture, "area-box")) samples.push_back({Shape::kArea, "area-box", "NUMA node"});
  return samples;
}

constexpr double kSampleWidth = 28;

PictureItem item_of(const Sample& sample, double x, double y) {
  constexpr double kToText = 8;
  PictureItem item{.layer = PictureItem::Layer::kBody, .css = "legend"};
  const double middle = y - 4;
  switch (sample.shape) {
    case Sample::Shape::kStroke:
      item.lines.push_back({x, middle, x + kSampleWidth, middle, 5, sample.css});
      break;
    case Sample::Shape::kBar:
      item.boxes.push_back({x, middle - 6, kSampleWidth, 12, 4, fmt::format("bar-box {}", sample.css)});
      break;
    case Sample::Shape::kNic:
      item.boxes.push_back({x, middle - 6, kSampleWidth, 12, 3, sample.css});
      break;
    case Sample::Shape::kArea:
      item.boxes.push_back({x, middle - 7, kSampleWidth, 14, 5, sample.css});
      break;
  }
  item.texts.push_back({x + kSampleWidth + kToText, y, kSmallSize, PictureText::Anchor::kStart, sample.text, "muted"});
  return item;
}

}  // namespace

double add_legend(Picture& picture, double margin, double y) {
  constexpr double kLine = 20;
  constexpr double kBetween = 24;
  const double top = y;
  double x = margin;
  for (const Sample& sample : samples_of(picture)) {
    PictureItem item = item_of(sample, x, y);
    PictureBox extent = extent_of(item.texts.front());
    if (x > margin && extent.x + extent.width > picture.width - margin) {
      x = margin;
      y += kLine;
      item = item_of(sample, x, y);
      extent = extent_of(item.texts.front());
    }
    x = extent.x + extent.width + kBetween;
    picture.items.push_back(std::move(item));
  }
  return y - top + kLine;
}

double text_width(std::string_view text, double size, bool strong) {
  // DejaVu Sans, the widest of the usual fonts, rounded up; no font may make a label leave its box.
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0U) == 0x80U) continue;  // the rest of a character
    if (byte >= 0x80) {
      width += byte == 0xc2 ? 0.5 : 1.0;  // "·" and the like
    } else if (std::string_view(" .,:;'|!ijl").find(c) != std::string_view::npos) {
      width += 0.34;
    } else if (std::string_view("frt()[]").find(c) != std::string_view::npos) {
      width += 0.42;
    } else if (std::string_view("cksvxyz").find(c) != std::string_view::npos) {
      width += 0.6;
    } else if (std::string_view("mwMW%@").find(c) != std::string_view::npos) {
      width += 0.99;
    } else if (c >= 'A' && c <= 'Z') {
      width += 0.73;
    } else {
      width += 0.64;
    }
  }
  return width * size * (strong ? 1.1 : 1);
}

PictureBox extent_of(const PictureText& text) {
  const double width = text_width(text.text, text.size, text.css.find("strong") != std::string::npos);
  double x = text.x;
  if (text.anchor == PictureText::Anchor::kMiddle) x -= width / 2;
  if (text.anchor == PictureText::Anchor::kEnd) x -= width;
  // Capitals reach 0.73 above the baseline, descenders 0.24 below it.
  return {x, text.y - 0.75 * text.size, width, text.size, 0, ""};
}

}  // namespace shardscope::topology
