// How a run of all-reduces drove its GPUs, which is part of its times: one process that launches to eight GPUs in turn
// takes longer for small messages than eight processes, and a replayed graph less than either.
#include <algorithm>
#include <set>
#include <span>

#include "topology/files.hpp"
#include "topology/read/collective_run.hpp"

namespace shardscope::topology {
namespace {

/// nccl-tests' options of this matter (https://github.com/NVIDIA/nccl-tests#arguments), and their defaults.
struct LaunchOption {
  std::string_view letter, name;
  int64_t usual;
};
constexpr size_t kMostWords = 64;  // of options
constexpr LaunchOption kThreads = {"-t", "--nthreads", 1};
constexpr LaunchOption kGpus = {"-g", "--ngpus", 1};
constexpr LaunchOption kGraphs = {"-G", "--cudagraph", 0};

/// "-g 8", "-g8", "--ngpus 8", "--ngpus=8"; nullopt: the option is there with something else, or may be where we do not
/// see it.
std::optional<int64_t> value_of(const LaunchOption& option, std::span<const std::string_view> words, bool whole) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    const std::string_view prefix = word.starts_with("--") ? option.name : option.letter;
    if (!word.starts_with(prefix)) continue;
    word.remove_prefix(prefix.size());
    if (word.empty()) return i + 1 < words.size() ? count_of(words[i + 1]) : std::nullopt;
    if (word.front() == '=') word.remove_prefix(1);
    return count_of(word);
  }
  return whole ? std::optional(option.usual) : std::nullopt;
}

}  // namespace

void read_launch_options(std::string_view command, CollectiveRun& run) {
  const std::vector<std::string_view> words = split_words(command.substr(0, command.find_first_of(";&>")), kMostWords);
  // Options first: else this is a sentence about the program. A variable or a line that goes on may hold more of them.
  const bool options = !words.empty() && words.front().size() > 1 && words.front().front() == '-';
  const bool whole =
      options && words.size() < kMostWords && std::none_of(words.begin(), words.end(), [](std::string_view word) {
        return word.find('$') != std::string_view::npos || word.ends_with('\\') || word.ends_with("...");
      });
  run.threads = value_of(kThreads, words, whole);
  run.gpus_of_thread = value_of(kGpus, words, whole);
  const std::optional<int64_t> graphs = value_of(kGraphs, words, whole);
  run.graph = graphs ? std::optional(*graphs > 0) : std::nullopt;
}

std::optional<bool> one_process_of(const CollectiveRun& run, std::optional<size_t> gpus) {
  if (!gpus || *gpus < 2) return std::nullopt;
  const std::set<std::string> processes(run.processes.begin(), run.processes.end());
  if (run.processes.size() == *gpus && processes.count("") == 0) {
    if (processes.size() == *gpus) return false;
    return processes.size() == 1 && run.threads.value_or(1) == 1 ? std::optional(true) : std::nullopt;
  }
  if (!run.threads || !run.gpus_of_thread || *run.threads != 1) return std::nullopt;
  if (*run.gpus_of_thread == 1) return false;
  return *run.gpus_of_thread == static_cast<int64_t>(*gpus) ? std::optional(true) : std::nullopt;
}

}  // namespace shardscope::topology
