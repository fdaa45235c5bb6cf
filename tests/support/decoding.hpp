// Runs recorded prompts through a decoder: what several test files ask of it.
#pragma once

#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/decoder.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/support/thread_group.hpp"

namespace shardscope::test {

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

/// The whole row of logits that the group sees for one of its rows: the ranks' slices side by side.
inline std::vector<float> whole_row(const runtime::Decoder& decoder, runtime::RankContext context,
                                    kernels::Activations logits, int64_t row) {
  std::vector<float> all(decoder.config().vocab, 0.0F);
  const std::span<const float> own = context.backend.host_logits(logits, row);
  std::copy(own.begin(), own.end(), all.begin() + decoder.vocab_range().begin);
  context.communicator.all_reduce(all);
  return all;
}

struct GroupResult {
  std::vector<float> last_logits;  // after the prompt
  double prompt_nll = 0;           // sum of -ln p(id[i] | id[:i]), i >= 1
  std::vector<int32_t> greedy;
};

/// Prompt in pieces of `chunk` tokens, logits of every position, then greedy continuation; as rank 0 sees it.
inline GroupResult prompt_result(const runtime::OpenedModel& model, const parallel::ShardPlan& plan,
                                 const std::vector<int32_t>& ids, int64_t new_tokens, int64_t chunk,
                                 runtime::RankContext context) {
  GroupResult result;
  runtime::Decoder decoder(model.config, *model.weights, plan,
                           {.slots = 1,
                            .max_positions = static_cast<int64_t>(ids.size()) + new_tokens,
                            .max_step_tokens = chunk,
                            .logit_rows = chunk,
                            .precision = context.backend.precision()},
                           context);
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(chunk, ids.size() - done);
    const std::vector<kernels::StepSequence> sequences = {
        {.slot = 0, .first_position = static_cast<int64_t>(done), .count = static_cast<int64_t>(count)}};
    std::vector<int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const kernels::Activations logits = decoder.forward(std::span(ids).subspan(done, count), sequences, rows);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<float> row = whole_row(decoder, context, logits, static_cast<int64_t>(i));
      if (done + i + 1 == ids.size()) {
        result.last_logits = row;
        continue;
      }
      const double max = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const float logit : row) sum += std::exp(logit - max);
      result.prompt_nll += max + std::log(sum) - row[ids[done + i + 1]];
    }
    done += count;
  }
  if (new_tokens == 0) return result;
  runtime::Sampler sampler(context.backend, context.communicator, decoder.vocab_range(), model.config.vocab, 1);
  const std::vector<runtime::GenerationRequest> requests = {{.prompt_ids = ids, .max_tokens = new_tokens}};
  result.greedy = generate_batch(decoder, sampler, context, requests, {}).front().output_ids;
  return result;
}

/// That on the CPU, by so many ranks.
inline GroupResult run_prompt(const runtime::OpenedModel& model, const std::vector<int32_t>& ids, int ranks,
                              int64_t new_tokens, kernels::ActivationMode mode, int64_t chunk) {
  GroupResult result;
  const parallel::ShardPlan plan = parallel::plan_shards(runtime::shard_dimensions(model.config), ranks);
  run_group(ranks, mode, [&](runtime::RankContext context) {
    GroupResult own = prompt_result(model, plan, ids, new_tokens, chunk, context);
    if (context.communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

}  // namespace shardscope::test
