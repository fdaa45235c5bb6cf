// Which reader a text belongs to.
#include <array>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/reading.hpp"
#include "topology/topology_json.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

using Reader = std::optional<Topology> (*)(const SourceText&);

// From the kinds that are surely recognised to those that are tables of numbers only.
constexpr std::array<Reader, 10> kReaders = {
    read_shardscope_json, read_xml,         read_nvidia_smi_topo,    read_nvidia_smi_p2p, read_nvlink_status,
    read_nccl_tests,      read_nvbandwidth, read_p2p_bandwidth_test, read_p2pmark,        read_collective_table,
};

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

/// Windows' redirection writes UTF-16: the characters of ASCII, and '?' for all others.
std::string of_utf16(std::string_view text, bool big_endian) {
  std::string narrow;
  narrow.reserve(text.size() / 2);
  for (size_t i = 2; i + 1 < text.size(); i += 2) {
    const char low = text[big_endian ? i + 1 : i];
    const char high = text[big_endian ? i : i + 1];
    narrow += high == 0 && static_cast<unsigned char>(low) < 0x80 ? low : '?';
  }
  return narrow;
}

}  // namespace

std::optional<Topology> read_shardscope_json(const SourceText& source) {
  const size_t first = source.text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || source.text[first] != '{') return std::nullopt;
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(source.text);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("JSON that cannot be read: {}", error.what()), source.file,
                    "write the file anew with `shardscope topo --json FILE`");
  }
  return topology_of_json(document, source.file);
}

Topology read_topology(const SourceText& source) {
  std::string narrowed;
  SourceText text{without_mark(source.text), source.file};
  if (text.text.starts_with("\xFF\xFE") || text.text.starts_with("\xFE\xFF")) {
    narrowed = of_utf16(text.text, text.text.starts_with("\xFE\xFF"));
    text.text = narrowed;
  }
  if (text.text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw UserError("an empty file is no topology", source.file,
                    "fill it with the output of `nvidia-smi topo -m`, or of `shardscope topo --json FILE`");
  }
  for (const Reader reader : kReaders) {
    if (std::optional<Topology> topology = reader(text)) {
      topology->file = source.file;
      understand(*topology);
      return *std::move(topology);
    }
  }
  throw UserError("nothing that is known to describe a topology", source.file,
                  "give the output of nvidia-smi topo -m, topo -p2p r or nvlink -s, an NCCL or hwloc XML, a table of "
                  "p2pBandwidthLatencyTest, nvbandwidth or nccl-tests, or a JSON of shardscope topo");
}

}  // namespace shardscope::topology
