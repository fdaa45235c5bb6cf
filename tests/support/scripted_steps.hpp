// Steps of a group of ranks on a clock that a script turns: each operation takes what the script says, collectives end
// together, a transfer after the last rank has come.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/measure/step_ledger.hpp"

namespace shardscope::test {

struct ScriptedRank {
  int64_t embedding_ns = 300;
  int64_t norm_ns = 200;
  int64_t product_ns = 1000;  // each of four a layer
  int64_t attention_ns = 700;
  int64_t head_ns = 4000;
  int64_t candidates_ns = 150;
  int64_t gap_ns = 40;  // before each product
};

struct Script {
  int64_t layers = 2;
  int64_t steps = 4;
  int64_t transfer_ns = 500;  // of an all-reduce
  int64_t exchange_ns = 90;   // of candidates
  std::vector<ScriptedRank> ranks;

  double products() const { return static_cast<double>(4 * layers); }  // of a step
  double sums() const { return static_cast<double>(2 * layers + 1); }
};

/// The ledgers of all ranks, as they travel.
inline std::vector<double> scripted_times(const Script& script) {
  using kernels::Operation;
  const size_t ranks = script.ranks.size();
  std::vector<int64_t> now(ranks, 1'000'000);
  std::vector<std::vector<kernels::OperationTimes>> times(ranks);
  const auto each = [&](Operation operation, int64_t ScriptedRank::*takes) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (operation == Operation::kProduct) now[rank] += script.ranks[rank].gap_ns;
      const int64_t begin = now[rank];
      now[rank] += script.ranks[rank].*takes;
      times[rank].push_back({operation, begin, now[rank]});
    }
  };
  const auto together = [&](Operation operation, int64_t transfer_ns) {
    const int64_t end = *std::max_element(now.begin(), now.end()) + transfer_ns;
    for (size_t rank = 0; rank < ranks; ++rank) {
      times[rank].push_back({operation, now[rank], end});
      now[rank] = end;
    }
  };
  std::vector<runtime::StepLedger> ledgers(ranks);
  const auto step = [&](bool decodes) {
    each(Operation::kEmbedding, &ScriptedRank::embedding_ns);
    together(Operation::kSum, script.transfer_ns);
    for (int64_t layer = 0; layer < script.layers; ++layer) {
      each(Operation::kNorm, &ScriptedRank::norm_ns);
      each(Operation::kProduct, &ScriptedRank::product_ns);
      each(Operation::kAttention, &ScriptedRank::attention_ns);
      each(Operation::kProduct, &ScriptedRank::product_ns);
      together(Operation::kSum, script.transfer_ns);
      each(Operation::kProduct, &ScriptedRank::product_ns);
      each(Operation::kProduct, &ScriptedRank::product_ns);
      together(Operation::kSum, script.transfer_ns);
    }
    each(Operation::kHead, &ScriptedRank::head_ns);
    each(Operation::kCandidates, &ScriptedRank::candidates_ns);
    together(Operation::kExchange, script.exchange_ns);
    for (size_t rank = 0; rank < ranks; ++rank) {
      ledgers[rank].add(times[rank], decodes);
      times[rank].clear();
    }
  };
  step(/*decodes=*/false);
  for (int64_t i = 0; i < script.steps; ++i) step(/*decodes=*/true);
  std::vector<double> all;
  for (const runtime::StepLedger& ledger : ledgers) {
    const std::vector<double> doubles = ledger.to_doubles();
    all.insert(all.end(), doubles.begin(), doubles.end());
  }
  return all;
}

/// How long a step takes, in ms: the same for all ranks, since they meet at its end.
inline double scripted_tpot_ms(const Script& script) {
  const std::vector<runtime::StepTimes> times =
      *runtime::step_times_of(scripted_times(script), script.ranks.size(), true);
  double sum = 0;
  for (double runtime::StepTimes::*field : runtime::kStepTimes) sum += times.front().*field;
  return sum;
}

}  // namespace shardscope::test
