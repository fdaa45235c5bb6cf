// What data sheets say of links. Sources: the NVLink generations' link counts and rates as NVIDIA's architecture
// whitepapers give them (P100, V100, A100, H100, GB200), NVML's rates per link, and PCI-SIG's rates after encoding.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

struct LinkFacts {
  std::string_view name;  // upper case, whole words of the driver's name
  int links;              // of each GPU; 0: none; -1: sources contradict each other
  double gb_per_s;        // of a link, one direction
};

// The first row that fits counts: longer names before those that they contain.
constexpr std::array<LinkFacts, 31> kLinkFacts = {{
    {"GB300", 18, 50},
    {"GB200", 18, 50},
    {"B300", 18, 50},
    {"B200", 18, 50},
    {"GH200", 18, 25},
    {"H200", 18, 25},
    {"H800", 8, 25},
    {"H100 PCIE", 12, 25},  // three bridges of 4 links, whatever the chip could
    {"H100 NVL", 12, 25},
    {"H100", 18, 25},
    {"H20", 18, 25},
    {"A800", 8, 25},
    {"A100", 12, 25},
    {"V100", 6, 25},
    {"P100", 4, 20},
    {"TITAN RTX", 2, 25},
    {"RTX A6000", 4, 14.0625},
    {"RTX A5500", 4, 14.0625},
    {"RTX A5000", 4, 14.0625},
    {"A40", 4, 14.0625},
    {"RTX 3090 TI", -1, 14.0625},
    {"RTX 3090", 4, 14.0625},
    {"RTX 4090", 0, 0},
    {"RTX 5090", 0, 0},
    {"L40S", 0, 0},
    {"L40", 0, 0},
    {"L4", 0, 0},
    {"A10G", 0, 0},
    {"A10", 0, 0},
    {"T4", 0, 0},
    {"RTX PRO 6000", 0, 0},
}};

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

bool is_letter_or_digit(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// Whether `name` stands in `text` between blanks, dashes or ends: "A40" does not in "RTX A4000".
bool has_words(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || !is_letter_or_digit(text[at - 1]);
    if (begins && (end == text.size() || !is_letter_or_digit(text[end]))) return true;
  }
  return false;
}

const LinkFacts* facts_of(const std::string& upper) {
  for (const LinkFacts& facts : kLinkFacts) {
    if (has_words(upper, facts.name)) return &facts;
  }
  return nullptr;
}

}  // namespace

std::optional<int> full_link_count(std::string_view gpu_name) {
  const LinkFacts* const facts = facts_of(upper_case(gpu_name));
  return facts == nullptr || facts->links < 0 ? std::nullopt : std::optional(facts->links);
}

std::optional<double> nvlink_gb_per_s(const Gpu& gpu) {
  if (const LinkFacts* const facts = facts_of(upper_case(gpu.name)); facts != nullptr && facts->links != 0) {
    return facts->gb_per_s;
  }
  if (!gpu.compute) return std::nullopt;
  const std::string& compute = *gpu.compute;
  if (compute == "6.0") return 20;
  if (compute == "7.0" || compute == "8.0" || compute == "9.0") return 25;
  if (compute == "8.6") return 14.0625;
  if (compute == "10.0" || compute == "10.3") return 50;
  return std::nullopt;
}

std::optional<double> pcie_gb_per_s(int generation, int width) {
  // GT/s of a lane, less the encoding (8b/10b, then 128b/130b; from 6 on FLITs of 242 of 256 bytes), in bytes.
  constexpr std::array<double, 7> kLane = {0, 0.25, 0.5, 0.984615, 1.969231, 3.938462, 7.5625};
  if (generation < 1 || generation >= static_cast<int>(kLane.size()) || width < 1 || width > 32) return std::nullopt;
  return kLane[static_cast<size_t>(generation)] * width;
}

}  // namespace shardscope::topology
