// The whole picture: a heading, the layout that suits the links, notes and a legend.
#include "topology/draw/picture.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/draw/picture_parts.hpp"
#include "topology/draw/plain_text.hpp"
#include "topology/draw/source_words.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

constexpr double kMargin = 24;
constexpr double kLeastWidth = 640;
constexpr double kTitleSize = 20;
constexpr double kTextSize = 13;
constexpr double kLine = 18;

using Layer = PictureItem::Layer;
using Anchor = PictureText::Anchor;

/// Lines of `text`, each at most `width` wide.
std::vector<std::string> lines_of(const std::string& text, double width, double size, bool strong = false) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string longer = line.empty() ? word : fmt::format("{} {}", line, word);
    if (!line.empty() && text_width(longer, size, strong) > width) {
      lines.push_back(line);
      line = word;
    } else {
      line = longer;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

void shift(PictureItem& item, double dx, double dy) {
  for (PictureLine& line : item.lines) {
    line.x1 += dx;
    line.x2 += dx;
    line.y1 += dy;
    line.y2 += dy;
  }
  for (PictureBox& box : item.boxes) {
    box.x += dx;
    box.y += dy;
  }
  for (PictureText& text : item.texts) {
    text.x += dx;
    text.y += dy;
  }
}

bool is_ring(const Topology& topology) {
  const std::vector<NvIsland> islands = nvlink_islands(topology);
  return std::any_of(islands.begin(), islands.end(),
                     [](const NvIsland& island) { return !island.switched && island.gpus.size() > 2; });
}

// ---- heading and notes ----------------------------------------------------------------------------------------------

class Composer {
 public:
  explicit Composer(const Topology& topology) : topology_(topology) {}

  Picture compose() {
    Content content;
    if (!topology_.gpus.empty()) content = is_ring(topology_) ? ring_content(topology_) : row_content(topology_);
    picture_.width = std::max(kLeastWidth, content.width + 2 * kMargin);
    picture_.title = fmt::format("{}: {}", gpus_in_words(topology_), class_in_words(topology_.topology_class));
    add_heading();
    const double dx = (picture_.width - content.width) / 2;
    for (PictureItem& item : content.items) {
      shift(item, dx, y_);
      picture_.items.push_back(std::move(item));
    }
    y_ += content.height + kMargin;
    add_notes();
    y_ += add_legend(picture_, kMargin, y_);
    picture_.height = y_;
    PictureItem ground{.layer = Layer::kGround, .css = "ground"};
    ground.boxes.push_back({0, 0, picture_.width, picture_.height, 0, "ground-box"});
    picture_.items.push_back(ground);
    std::stable_sort(picture_.items.begin(), picture_.items.end(),
                     [](const PictureItem& a, const PictureItem& b) { return a.layer < b.layer; });
    picture_.description = description();
    return std::move(picture_);
  }

 private:
  double room() const { return picture_.width - 2 * kMargin; }

  void add_line(PictureItem& item, const std::string& text, double size, const std::string& css) {
    item.texts.push_back({kMargin, y_, size, Anchor::kStart, text, css});
  }

  void add_heading() {
    PictureItem heading{.layer = Layer::kBody, .css = "heading"};
    y_ = kMargin + kTitleSize * 0.8;
    for (const std::string& line : lines_of(picture_.title, room(), kTitleSize, /*strong=*/true)) {
      add_line(heading, line, kTitleSize, "strong");
      y_ += kTitleSize + 6;
    }
    y_ -= 3;
    for (const std::string& line : lines_of(printable(meaning_of(topology_)), room(), kTextSize)) {
      add_line(heading, line, kTextSize, "");
      y_ += kLine;
    }
    for (const std::string& line : lines_of(origin_in_words(topology_), room(), kSmallSize)) {
      add_line(heading, line, kSmallSize, "muted");
      y_ += kLine;
    }
    y_ += 6;
    picture_.items.push_back(heading);
  }

  /// NICs of which all paths are known, none of them near.
  std::string far_nics() const {
    std::vector<std::string> far;
    for (size_t nic = 0; nic < topology_.nics.size(); ++nic) {
      const bool all_far = std::all_of(
          topology_.nic_links->begin(), topology_.nic_links->end(), [&](const std::vector<std::optional<Path>>& row) {
            return nic < row.size() && row[nic] && nearer({.kind = PathKind::kPhb}, *row[nic]);
          });
      if (all_far) far.push_back(printable(topology_.nics[nic].name));
    }
    return fmt::format("{}", fmt::join(far, ", "));
  }

  /// What the layout cannot show.
  void add_notes() {
    std::vector<std::string> notes;
    if (!topology_.complete) notes.emplace_back("The source is cut or damaged: what is missing is unknown.");
    if (topology_.nics_known && topology_.nic_links) {
      if (const std::string far = far_nics(); !far.empty()) {
        notes.push_back(fmt::format("Not near any GPU (farther than PHB): {}.", far));
      }
    } else if (!topology_.nics_known && topology_.links) {
      notes.emplace_back("This source does not show all NICs.");
    }
    if (!topology_.warnings.empty()) {
      notes.push_back(fmt::format("{}: see the text of this topology.",
                                  counted(static_cast<int64_t>(topology_.warnings.size()), "warning")));
    }
    if (notes.empty()) return;
    PictureItem item{.layer = Layer::kBody, .css = "notes"};
    for (const std::string& note : notes) {
      for (const std::string& line : lines_of(note, room(), kSmallSize)) {
        add_line(item, line, kSmallSize, "muted");
        y_ += kLine - 2;
      }
    }
    picture_.items.push_back(item);
    y_ += 4;
  }

  std::string description() const {
    std::string text = printable(meaning_of(topology_));
    std::map<std::string, int> kinds;
    int unknown = 0;
    const auto count = static_cast<int>(topology_.gpus.size());
    for (int a = 0; a < count; ++a) {
      for (int b = a + 1; b < count; ++b) {
        const std::optional<Path> path = path_between(topology_, a, b);
        if (path) {
          ++kinds[text_of(*path)];
        } else {
          ++unknown;
        }
      }
    }
    std::vector<std::string> pairs;
    for (const auto& [kind, number] : kinds) pairs.push_back(fmt::format("{} {}", counted(number, "pair"), kind));
    if (unknown > 0) pairs.push_back(fmt::format("{} unknown", counted(unknown, "pair")));
    if (!pairs.empty()) text += fmt::format(" {}.", fmt::join(pairs, ", "));
    return text;
  }

  const Topology& topology_;
  Picture picture_;
  double y_ = 0;
};

}  // namespace

Picture picture_of(const Topology& topology) {
  return Composer(topology).compose();
}

}  // namespace shardscope::topology
