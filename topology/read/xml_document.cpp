#include "topology/read/xml_document.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::topology {
namespace {

// The largest that we know (hwloc, 64 GPUs and 2000 cores) stays far below both.
constexpr int kMostParts = 1 << 20;
constexpr size_t kDeepest = 64;
constexpr const char* kFaultMark = "shardscope-fault";

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
         c == '-' || c == '.';
}

/// Walks tags in order and stops at the end of the root or at the first fault. Keeps no tree: pugixml makes that.
class TagWalk {
 public:
  TagWalk(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  /// Runs to the end. Afterwards end() is where the intact part ends, and open() what is not closed there.
  void run() {
    do {
      const size_t tag = std::min(text_.find_first_of(std::string_view("<\0", 2), at_), text_.size());
      at_ = tag;
      if (tag == text_.size()) {
        fail("the text ends before its root element does", true);
      } else if (text_[tag] == '\0') {
        fail("a zero byte");
      } else {
        read_tag();
      }
    } while (fault_.empty() && !open_.empty());
  }

  size_t end() const { return at_; }
  const std::vector<std::string_view>& open() const { return open_; }
  const std::string& fault() const { return fault_; }
  bool cut() const { return cut_; }

 private:
  /// at_ stays where it is: in front of the tag at fault. Returns false.
  bool fail(std::string what, bool cut = false) {
    fault_ = std::move(what);
    cut_ = cut;
    return false;
  }

  void count() {
    if (++count_ <= kMostParts) return;
    throw UserError(fmt::format("an XML document of more than {} tags and attributes is no topology", kMostParts),
                    file_, "give the file that NCCL or hwloc wrote");
  }

  /// From at_, which is "<", to behind the tag. False after a fault.
  bool read_tag() {
    for (const auto& [start, stop] : {std::pair<std::string_view, std::string_view>{"<!--", "-->"},
                                      {"<![CDATA[", "]]>"},
                                      {"<?", "?>"},
                                      {"<!", ">"}}) {
      if (text_.substr(at_, start.size()) != start) continue;
      const size_t found = text_.find(stop, at_ + start.size());
      if (found == std::string_view::npos) return fail(fmt::format("{} is not closed", start), true);
      at_ = found + stop.size();
      return true;
    }
    count();
    const bool closing = text_.substr(at_, 2) == "</";
    size_t at = at_ + (closing ? 2 : 1);
    const std::string_view name = name_at(at);
    if (name.empty()) return fail("a tag without a name", at >= text_.size());
    bool alone = false;
    if (!read_rest(at, closing, alone)) return false;
    if (closing) {
      if (open_.empty() || open_.back() != name) {
        return fail(fmt::format("</{}> where <{}> is open", name.substr(0, 40),
                                open_.empty() ? std::string_view("nothing") : open_.back().substr(0, 40)));
      }
      open_.pop_back();
    } else if (!alone) {
      if (open_.size() == kDeepest) {
        throw UserError(fmt::format("XML elements nested deeper than {} are no topology", kDeepest), file_,
                        "give the file that NCCL or hwloc wrote");
      }
      open_.push_back(name);
    }
    at_ = at;
    return true;
  }

  /// Attributes and the end of a tag; `at` moves behind it. False after a fault.
  bool read_rest(size_t& at, bool closing, bool& alone) {
    while (true) {
      skip_blanks(at);
      alone = !closing && at < text_.size() && text_[at] == '/';
      if (alone) ++at;
      if (at == text_.size()) return fail("a tag is not closed", true);
      if (text_[at] == '>') {
        ++at;
        return true;
      }
      if (closing || alone) return fail("a tag is damaged");
      if (!read_attribute(at)) return false;
    }
  }

  bool read_attribute(size_t& at) {
    count();
    const std::string_view name = name_at(at);
    if (name.empty()) return fail("a tag is damaged");
    skip_blanks(at);
    if (at < text_.size() && text_[at] != '=') return fail(fmt::format("{} has no value", name.substr(0, 40)));
    skip_blanks(++at);
    if (at >= text_.size()) return fail("a tag is not closed", true);
    const char quote = text_[at];
    if (quote != '"' && quote != '\'') return fail(fmt::format("{} is not quoted", name.substr(0, 40)));
    const char stops[] = {quote, '<', '\0'};
    at = std::min(text_.find_first_of(std::string_view(stops, 3), at + 1), text_.size());
    if (at == text_.size()) return fail("a tag is not closed", true);
    if (text_[at] != quote) return fail(fmt::format("the value of {} is not closed", name.substr(0, 40)));
    ++at;
    if (at == text_.size()) return fail("a tag is not closed", true);
    return is_blank(text_[at]) || text_[at] == '>' || text_[at] == '/' || fail("a tag is damaged");
  }

  void skip_blanks(size_t& at) const {
    while (at < text_.size() && is_blank(text_[at])) ++at;
  }

  std::string_view name_at(size_t& at) const {
    const size_t begin = at;
    while (at < text_.size() && is_name(text_[at])) ++at;
    const std::string_view name = text_.substr(begin, at - begin);
    // A name begins with a letter.
    return name.empty() || (name[0] >= '0' && name[0] <= '9') || name[0] == '-' || name[0] == '.' ? "" : name;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  std::vector<std::string_view> open_;
  std::string fault_;
  bool cut_ = false;
  int count_ = 0;
};

}  // namespace

XmlDocument::XmlDocument(std::string_view text, int first_line, const std::string& file) : first_line_(first_line) {
  TagWalk walk(text, file);
  walk.run();
  std::string whole(text.substr(0, walk.end()));
  for (size_t at = whole.find('\n'); at != std::string::npos; at = whole.find('\n', at + 1)) line_ends_.push_back(at);
  if (!walk.fault().empty()) {
    const int line = first_line + static_cast<int>(line_ends_.size());
    fault_ = XmlFault{.line = line, .what = walk.fault(), .cut = walk.cut()};
    whole += fmt::format("<{}/>", kFaultMark);
    for (size_t i = walk.open().size(); i-- > 0;) whole += fmt::format("</{}>", walk.open()[i]);
  }
  const pugi::xml_parse_result result =
      document_.load_buffer(whole.data(), whole.size(), pugi::parse_default, pugi::encoding_utf8);
  root_ = document_.document_element();
  if (!result || root_.empty() || std::strcmp(root_.name(), kFaultMark) == 0) {
    throw UserError("XML whose root element cannot be read", fmt::format("{}, line {}", file, first_line),
                    "give the whole file that NCCL or hwloc wrote");
  }
  if (!fault_) return;
  // The fault's mark is the last child of the innermost open element.
  for (pugi::xml_node node = root_; !node.empty(); node = node.last_child()) {
    if (std::strcmp(node.name(), kFaultMark) != 0) continue;
    for (pugi::xml_node above = node.parent(); above.type() == pugi::node_element; above = above.parent()) {
      open_.push_back(above);
    }
  }
  if (!open_.empty()) open_.front().remove_child(open_.front().last_child());
}

int XmlDocument::line_of(const pugi::xml_node& node) const {
  const ptrdiff_t offset = std::max<ptrdiff_t>(node.offset_debug(), 0);
  const auto before = std::lower_bound(line_ends_.begin(), line_ends_.end(), static_cast<size_t>(offset));
  return first_line_ + static_cast<int>(before - line_ends_.begin());
}

bool XmlDocument::is_open(const pugi::xml_node& node) const {
  return std::find(open_.begin(), open_.end(), node) != open_.end();
}

std::optional<unsigned long> xml_number(const char* text) {
  std::string_view digits = text;
  const int base = digits.starts_with("0x") || digits.starts_with("0X") ? 16 : 10;
  if (base == 16) digits.remove_prefix(2);
  unsigned long value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace shardscope::topology
