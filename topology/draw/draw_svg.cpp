// The picture of a topology, written as SVG.
#include <string>

#include <fmt/format.h>

#include "topology/draw/picture.hpp"
#include "topology/draw/plain_text.hpp"
#include "topology/drawing.hpp"
#include "topology/markup.hpp"

namespace shardscope::topology {
namespace {

// Colours that differ for every kind of colour blindness: M. Okabe and K. Ito, "Color Universal Design" (2008); the
// lighter ones of them in the dark. Colours repeat what labels, widths and dashes say. A page may hold several pictures
// with this same style: every rule is below the class of the root.
constexpr const char* kStyle = R"css(
.shardscope-topology { color: #1d1f24; --ground: #ffffff; --area: #f3f5f8; --area-line: #aab2bf; --muted: #545b68;
  --gpu: #ffffff; --gpu-line: #1d1f24; --nv: #009e73; --pix: #0072b2; --phb: #d55e00; --sys: #b0588a;
  --unknown: #6b7280; --connector: #7b8494;
  --nv-fill: #e3f4ee; --pix-fill: #e6f1f9; --phb-fill: #fcefe5; --sys-fill: #f8ebf2;
  font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
.shardscope-topology { color: #e9ebf0; --ground: #15181d; --area: #1e232b; --area-line: #4e5866; --muted: #a4acba;
  --gpu: #262c36; --gpu-line: #e9ebf0; --nv: #1fbf92; --pix: #56b4e9; --phb: #e69f00; --sys: #cc79a7;
  --unknown: #9aa3b2; --connector: #7f899a;
  --nv-fill: #16352c; --pix-fill: #172f40; --phb-fill: #3a2d14; --sys-fill: #392634; } }
.shardscope-topology text { fill: currentColor; }
.shardscope-topology .strong { font-weight: 600; }
.shardscope-topology .muted { fill: var(--muted); }
.shardscope-topology path { fill: none; }
.shardscope-topology .ground-box { fill: var(--ground); }
.shardscope-topology .area-box { fill: var(--area); stroke: var(--area-line); }
.shardscope-topology .area-plate { fill: var(--area); }
.shardscope-topology .gpu-box { fill: var(--gpu); stroke: var(--gpu-line); stroke-width: 1.5px; }
.shardscope-topology .nic-box { fill: var(--ground); stroke: var(--muted); }
.shardscope-topology .plate { fill: var(--ground); stroke: var(--nv); }
.shardscope-topology .nv { stroke: var(--nv); }
.shardscope-topology .pix { stroke: var(--pix); }
.shardscope-topology .phb { stroke: var(--phb); }
.shardscope-topology .sys { stroke: var(--sys); }
.shardscope-topology .unknown { stroke: var(--unknown); }
.shardscope-topology .connector { stroke: var(--connector); }
.shardscope-topology .bar-box { fill: var(--ground); stroke-width: 2.5px; }
.shardscope-topology .bar-box.nv { fill: var(--nv-fill); }
.shardscope-topology .bar-box.pix { fill: var(--pix-fill); }
.shardscope-topology .bar-box.phb { fill: var(--phb-fill); }
.shardscope-topology .bar-box.sys { fill: var(--sys-fill); }
.shardscope-topology .dashed { stroke-dasharray: 6 4; }
)css";

std::string escaped(std::string_view text) {
  return escaped_markup(printable(text));
}

/// One digit behind the point, none of ".0": the same on every machine.
std::string number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string svg_of(const PictureBox& box) {
  return fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}/>)", escaped(box.css), number(box.x),
                     number(box.y), number(box.width), number(box.height),
                     box.radius > 0 ? fmt::format(R"( rx="{}")", number(box.radius)) : "");
}

std::string svg_of(const PictureLine& line) {
  // An arc is a quadratic curve: its top lies half as high as its middle point.
  const std::string path =
      line.bend > 0
          ? fmt::format("M{} {}Q{} {} {} {}", number(line.x1), number(line.y1), number((line.x1 + line.x2) / 2),
                        number((line.y1 + line.y2) / 2 - 2 * line.bend), number(line.x2), number(line.y2))
          : fmt::format("M{} {}L{} {}", number(line.x1), number(line.y1), number(line.x2), number(line.y2));
  return fmt::format(R"(<path class="{}" d="{}" stroke-width="{}"/>)", escaped(line.css), path, number(line.width));
}

std::string_view anchor_of(PictureText::Anchor anchor) {
  switch (anchor) {
    case PictureText::Anchor::kStart:
      return "start";
    case PictureText::Anchor::kMiddle:
      return "middle";
    case PictureText::Anchor::kEnd:
      return "end";
  }
  return "start";
}

std::string svg_of(const PictureText& text) {
  return fmt::format(R"(<text{} x="{}" y="{}" font-size="{}" text-anchor="{}">{}</text>)",
                     text.css.empty() ? "" : fmt::format(R"( class="{}")", escaped(text.css)), number(text.x),
                     number(text.y), number(text.size), anchor_of(text.anchor), escaped(text.text));
}

std::string svg_of(const PictureItem& item) {
  std::string svg = fmt::format(R"(<g class="{}")", escaped(item.css));
  for (const auto& [key, value] : item.facts) svg += fmt::format(R"( data-{}="{}")", key, escaped(value));
  svg += ">";
  if (!item.title.empty()) svg += fmt::format("<title>{}</title>", escaped(item.title));
  for (const PictureLine& line : item.lines) svg += svg_of(line);
  for (const PictureBox& box : item.boxes) svg += svg_of(box);
  for (const PictureText& text : item.texts) svg += svg_of(text);
  return svg + "</g>\n";
}

}  // namespace

std::string topology_svg(const Topology& topology) {
  const Picture picture = picture_of(topology);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"shardscope-topology\" viewBox=\"0 0 {} {}\" role=\"img\">\n"
      "<title>{}</title>\n<desc>{}</desc>\n<style>{}</style>\n",
      number(picture.width), number(picture.height), escaped(picture.title), escaped(picture.description), kStyle);
  for (const PictureItem& item : picture.items) svg += svg_of(item);
  return svg + "</svg>\n";
}

}  // namespace shardscope::topology
