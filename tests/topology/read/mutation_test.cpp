// Recorded texts, damaged at random in the ways that copying, wrapping and cutting do. Whatever is left: a topology, or
// a UserError; and nothing wrong is said as if it were sure.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <random>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/topology_json.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::PathMatrix;
using topology::Topology;

namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  std::istringstream stream(text);
  Lines lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string text_of_lines(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Where words of a line begin and end.
std::vector<std::pair<size_t, size_t>> words_in(const std::string& line) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = 0; at < line.size();) {
    at = line.find_first_not_of(" \t", at);
    if (at == std::string::npos) break;
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.emplace_back(at, end);
    at = end;
  }
  return words;
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// One mutation of the text; says which in `what`.
  std::string mutate(const std::string& text, std::string& what) {
    Lines lines = lines_of(text);
    if (lines.empty()) return text;
    const size_t at = below(lines.size());
    std::string& line = lines[at];
    switch (below(11)) {
      case 0:
        what = fmt::format("line {} cut out", at + 1);
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1: {
        const size_t end = below(line.size() + 1);
        what = fmt::format("line {} cut at {}", at + 1, end);
        line.resize(end);
        break;
      }
      case 2: {
        const size_t end = below(text.size() + 1);
        what = fmt::format("text cut at {}", end);
        return text.substr(0, end);
      }
      case 3: {
        const auto words = words_in(line);
        if (words.size() < 2) break;
        const size_t word = below(words.size() - 1);
        what = fmt::format("line {}: words {} and {} fused", at + 1, word + 1, word + 2);
        line.erase(words[word].second, words[word + 1].first - words[word].second);
        break;
      }
      case 4: {
        if (line.empty()) break;
        const size_t byte = below(line.size());
        const int bit = static_cast<int>(below(8));
        what = fmt::format("line {}: bit {} of byte {} flipped", at + 1, bit, byte);
        line[byte] = static_cast<char>(line[byte] ^ (1 << bit));
        break;
      }
      case 5: {
        if (line.empty()) break;
        const size_t byte = below(line.size());
        const char put = static_cast<char>(below(256));
        what = fmt::format("line {}: byte {} is {}", at + 1, byte, static_cast<int>(put));
        line[byte] = put;
        break;
      }
      case 6: {
        if (line.empty()) break;
        const size_t byte = below(line.size());
        what = fmt::format("line {}: byte {} lost", at + 1, byte);
        line.erase(byte, 1);
        break;
      }
      case 7: {
        what = fmt::format("line {} doubled", at + 1);
        const std::string copy = line;
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), copy);
        break;
      }
      case 8: {
        const size_t other = below(lines.size());
        what = fmt::format("lines {} and {} swapped", at + 1, other + 1);
        std::swap(lines[at], lines[other]);
        break;
      }
      case 9: {
        const size_t column = below(words_in(line).size() + 1);
        what = fmt::format("column {} removed", column + 1);
        for (std::string& each : lines) {
          // The header's first cell is empty: its words stand one column further.
          const auto words = words_in(each);
          const bool header = words.size() > 1 && each[words[0].first] == 'G' && each[words[1].first] == 'G';
          const size_t word = column - (header && column > 0 ? 1 : 0);
          if (word >= words.size() || each.find("GPU") == std::string::npos) continue;
          each.erase(words[word].first, words[word].second - words[word].first);
        }
        break;
      }
      case 10: {
        static constexpr std::array<const char*, 8> kNoise = {
            "[INFO] rank 3 is up",   "$",   "NCCL version 2.18.3", "GPU 0: NVIDIA A100 (UUID: GPU-0)", "0", "N/A",
            "Warning: GPU3 is busy", "...."};
        const char* const noise = kNoise[below(kNoise.size())];
        what = fmt::format("\"{}\" put before line {}", noise, at + 1);
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), noise);
        break;
      }
    }
    return text_of_lines(lines);
  }

  size_t below(size_t bound) { return static_cast<size_t>(random_() % bound); }

 private:
  std::mt19937_64 random_;
};

/// Recorded files of a folder of tests/data/topologies.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kRecorded + folder)) {
    files.push_back(folder + "/" + entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  return files;
}

using Reader = std::optional<Topology> (*)(const topology::SourceText&);

/// The reader's own warnings, apart from what understand() concludes; nullopt: refused, or not of its kind.
std::optional<Topology> read_with(Reader reader, const std::string& text) {
  try {
    return reader({.text = text, .file = "mutated.txt"});
  } catch (const UserError&) {
    return std::nullopt;
  }
}

bool says_more(const Topology& mutated, const Topology& original) {
  if (!mutated.complete && original.complete) return true;
  return std::any_of(mutated.warnings.begin(), mutated.warnings.end(), [&](const std::string& warning) {
    return std::find(original.warnings.begin(), original.warnings.end(), warning) == original.warnings.end();
  });
}

/// Position of the GPU with that number.
std::optional<size_t> position_of(const Topology& topology, int index) {
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    if (topology.gpus[i].index == index) return i;
  }
  return std::nullopt;
}

/// A pair that both know, and know differently.
std::string contradiction(const Topology& mutated, const Topology& original) {
  if (!mutated.links || !original.links) return "";
  for (const topology::Gpu& from : original.gpus) {
    for (const topology::Gpu& to : original.gpus) {
      const auto a = position_of(mutated, from.index);
      const auto b = position_of(mutated, to.index);
      if (!a || !b) continue;
      const auto& now = (*mutated.links)[*a][*b];
      const auto& then = (*original.links)[*position_of(original, from.index)][*position_of(original, to.index)];
      if (now && then && *now != *then) {
        return fmt::format("GPU{}-GPU{}: {} was {}", from.index, to.index, text_of(*now), text_of(*then));
      }
    }
  }
  return "";
}

}  // namespace

TEST_CASE("topo --json: every recorded machine comes back as it was") {
  int machines = 0;
  for (const char* folder : {"nvidia-smi", "a26", "p2p", "nccl-tests", "nccl-xml"}) {
    for (const std::string& file : files_in(folder)) {
      Topology wanted;
      try {
        wanted = recorded(file);
      } catch (const UserError&) {
        continue;  // recorded because it is refused
      }
      INFO(file);
      const std::string json = topology_json(wanted).dump();
      wanted.source = topology::SourceKind::kShardscope;
      CHECK(topology::read_topology({.text = json, .file = file}) == wanted);
      ++machines;
    }
  }
  CHECK(machines > 50);
}

TEST_CASE("read_topology: recorded JSON is the machine that it was written of") {
  const auto source = GENERATE(
      std::pair{"shardscope/allreduce-4xa100.json", "nccl-tests/dgx-a100-4gpu-p2p-on-and-off.txt"},
      std::pair{"shardscope/dgx2-16xv100-cut.json", "nvidia-smi/dgx2-16xv100-nv6-10hca-truncated.txt"},
      std::pair{"shardscope/gb200-compute-tray.json", "nvidia-smi/gb200-compute-tray-4gpu-8nic-gpu-numa-ids.txt"},
      std::pair{"shardscope/measured-2x-rtx4090.json", "p2p/p2pbw-2x-rtx4090-narrow-pcie-links.txt"},
      std::pair{"shardscope/pairs-4xa100.json", "nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"},
      std::pair{"shardscope/switched-4xa100.json", "nccl-xml/alibaba-4xa100-2cx6-dump.xml"});
  const Topology again = recorded(source.first);
  Topology wanted = recorded(source.second);
  wanted.source = topology::SourceKind::kShardscope;
  wanted.file = again.file;
  wanted.warnings = again.warnings;  // whose wording is that of the version that wrote the file
  CHECK(again == wanted);
}

TEST_CASE("read_topology: whatever is done to recorded texts, there is a topology or a UserError, and soon") {
  uint64_t seed = 0;
  const std::clock_t begin = std::clock();
  for (const char* folder : {"nvidia-smi", "a26", "p2p", "nccl-tests", "nccl-xml", "shardscope"}) {
    for (const std::string& file : files_in(folder)) {
      const std::string original = recorded_text(file);
      const int rounds = original.size() > 20'000 ? 10 : 60;
      for (int round = 0; round < rounds; ++round) {
        Mutator mutator(++seed);
        std::string text = original;
        std::string whats;
        for (size_t i = 0, count = 1 + mutator.below(6); i < count; ++i) {
          std::string what;
          text = mutator.mutate(text, what);
          whats += what + "; ";
        }
        try {
          const Topology topology = topology::read_topology({.text = text, .file = file});
          if (topology.gpu_count && static_cast<size_t>(*topology.gpu_count) != topology.gpus.size()) {
            FAIL("seed " << seed << ", " << file << ": " << whats << " counts GPUs that it does not list");
          }
        } catch (const UserError&) {
        } catch (const std::exception& error) {
          FAIL("seed " << seed << ", " << file << ": " << whats << " gives " << error.what());
        }
      }
    }
  }
  CHECK(std::clock() - begin < 240 * CLOCKS_PER_SEC);  // seconds without sanitizers
}

TEST_CASE("topo -m: one fault in a recorded machine is never a confident other machine") {
  uint64_t seed = 1'000'000;
  int read_well = 0;
  for (const char* folder : {"nvidia-smi", "a26"}) {
    for (const std::string& file : files_in(folder)) {
      const std::string text = recorded_text(file);
      const std::optional<Topology> original = read_with(topology::read_nvidia_smi_topo, text);
      if (!original) continue;  // rocm-smi, and what is expected of the small machines
      for (int round = 0; round < 400; ++round) {
        Mutator mutator(++seed);
        std::string what;
        const std::string damaged = mutator.mutate(text, what);
        const std::optional<Topology> mutated = read_with(topology::read_nvidia_smi_topo, damaged);
        if (!mutated) continue;
        ++read_well;
        // Where rows are cut away, their pairs' cells stand once only: another code there cannot be noticed.
        const bool byte = what.find("byte") != std::string::npos;
        if (byte && !original->complete) continue;
        const std::string told = contradiction(*mutated, *original);
        if (!told.empty())
          UNSCOPED_INFO("seed " << seed << ", " << file << ": " << what << ": " << told << "\n" << damaged);
        CHECK(told.empty());
        if (says_more(*mutated, *original)) continue;
        // A GPU whose row was cut away already, and now its column too, leaves a whole table of one GPU less.
        if (what.starts_with("column") && !original->complete) continue;
        const bool same = mutated->links == original->links && mutated->gpu_count == original->gpu_count &&
                          understood(*mutated).topology_class == understood(*original).topology_class;
        if (!same)
          UNSCOPED_INFO("seed " << seed << ", " << file << ": " << what << ": silently another machine\n" << damaged);
        CHECK(same);
      }
    }
  }
  CHECK(read_well > 5000);
}
