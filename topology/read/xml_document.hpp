// XML as far as it is intact: what stands before the first fault, in a tree of pugixml, with line numbers and with the
// elements that were still open at the fault marked, so that a reader does not take half an element for a whole one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pugixml.hpp>

namespace shardscope::topology {

/// Where well-formedness ends.
struct XmlFault {
  int line = 0;  // from 1
  std::string what;
  bool cut = false;  // nothing but the end is missing: what stands before nests as it was written
};

class XmlDocument {
 public:
  /// text: from the root's "<" on; what follows the root is ignored. first_line: that of its first byte. Throws
  /// UserError, which names `file`, for more elements or a deeper nesting than any machine's topology has.
  XmlDocument(std::string_view text, int first_line, const std::string& file);

  pugi::xml_node root() const { return root_; }
  const std::optional<XmlFault>& fault() const { return fault_; }
  int line_of(const pugi::xml_node& node) const;
  /// Whether the fault lies inside this element: its later children are missing.
  bool is_open(const pugi::xml_node& node) const;

 private:
  pugi::xml_document document_;
  pugi::xml_node root_;
  std::optional<XmlFault> fault_;
  std::vector<pugi::xml_node> open_;  // root first
  std::vector<size_t> line_ends_;     // offsets of newlines in what was parsed
  int first_line_ = 1;
};

struct Topology;

// The readers that read_xml chooses from, by the root element.
Topology read_nccl_system(const XmlDocument& document, const std::string& file);
Topology read_hwloc_topology(const XmlDocument& document, const std::string& file);

/// A hexadecimal or decimal whole number ("0x030200", "16"); nullopt for anything else.
std::optional<unsigned long> xml_number(const char* text);

}  // namespace shardscope::topology
