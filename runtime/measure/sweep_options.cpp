// What follows from a sweep's options alone: its groups and its prompts.
#include <random>

#include "runtime/measure/sweep.hpp"

namespace shardscope::runtime {

FigureKind SweepOptions::kind() const {
  if (emulated) return FigureKind::kEmulated;
  return rehearsal ? FigureKind::kRehearsed : FigureKind::kMeasured;
}

std::vector<topology::PlacedGroup> SweepOptions::all_groups() const {
  std::vector<topology::PlacedGroup> all;
  if (groups.empty()) {
    for (const int degree : degrees) {
      all.push_back(topology::linear_group(degree));
      if (replica_ranks / degree < 2) continue;
      all.push_back(all.back());
      all.back().replicas = replica_ranks / degree;
    }
  }
  for (const auto& of_degree : groups) all.insert(all.end(), of_degree.begin(), of_degree.end());
  return all;
}

std::vector<int32_t> prompt_of_length(int64_t length, const std::vector<int32_t>& real, int64_t valid_vocab,
                                      uint64_t seed, int64_t sequence) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  if (!real.empty()) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = real[i % real.size()];
    return ids;
  }
  std::seed_seq key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(sequence)};
  std::mt19937 random(key);
  // The modulus keeps the ids the same with every standard library; its bias is below valid_vocab / 2^32.
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(valid_vocab));
  return ids;
}

}  // namespace shardscope::runtime
