// Which XML this is, by its root element: NCCL's topology, hwloc's, NCCL's graph (refused by name), or something else.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/reading.hpp"
#include "topology/read/xml_document.hpp"

namespace shardscope::topology {
namespace {

constexpr std::array<std::string_view, 3> kRoots = {"system", "topology", "graphs"};

struct Root {
  size_t at = 0;  // of its "<"
  std::string_view name;
};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// The first start tag of a root that we know, outside of comments: prompts, code fences and declarations may stand
/// before it.
std::optional<Root> known_root(std::string_view text) {
  bool comments_end = true;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    if (comments_end && text.substr(at, 4) == "<!--") {
      const size_t end = text.find("-->", at);
      comments_end = end != std::string_view::npos;
      if (comments_end) at = end;
      continue;
    }
    for (const std::string_view name : kRoots) {
      if (text.substr(at + 1, name.size()) != name) continue;
      const size_t after = at + 1 + name.size();
      if (after < text.size() && (is_blank(text[after]) || text[after] == '>' || text[after] == '/')) {
        return Root{.at = at, .name = name};
      }
    }
  }
  return std::nullopt;
}

/// The root's name of a text that begins as XML and closes that root; empty for anything else.
std::string_view other_root(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (true) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    const std::string_view stop = text.starts_with("<!--") ? "-->" : text.starts_with("<?xml") ? "?>" : ">";
    if (!text.starts_with("<?xml") && !text.starts_with("<!")) break;
    const size_t end = text.find(stop);
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + stop.size());
  }
  if (!text.starts_with('<')) return "";
  const size_t end = std::min(text.find_first_of(" \t\r\n/>", 1), text.size());
  const std::string_view name = text.substr(1, end - 1);
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == ':';
  });
  if (name.empty() || name.size() > 60 || !letters) return "";
  const bool closed = text.find(fmt::format("</{}>", name), end) != std::string_view::npos;
  return closed || text.substr(0, text.find('>') + 1).ends_with("/>") ? name : "";
}

}  // namespace

std::optional<Topology> read_xml(const SourceText& source) {
  const std::optional<Root> root = known_root(source.text);
  if (!root) {
    const std::string_view other = other_root(source.text);
    if (other.empty()) return std::nullopt;
    throw UserError(fmt::format("XML with the root element <{}> is no topology of GPUs", other), source.file,
                    "give NCCL's topology (NCCL_TOPO_DUMP_FILE), hwloc's (lstopo --of xml), or nvidia-smi topo -m");
  }
  if (root->name == "graphs") {
    throw UserError("an NCCL graph (root element <graphs>: rings and trees that NCCL chose) is no topology",
                    source.file, "give the file that NCCL_TOPO_DUMP_FILE wrote, not that of NCCL_GRAPH_DUMP_FILE");
  }
  const auto newlines = std::count(source.text.begin(), source.text.begin() + static_cast<ptrdiff_t>(root->at), '\n');
  const XmlDocument document(source.text.substr(root->at), static_cast<int>(newlines) + 1, source.file);
  return root->name == "system" ? read_nccl_system(document, source.file) : read_hwloc_topology(document, source.file);
}

}  // namespace shardscope::topology
