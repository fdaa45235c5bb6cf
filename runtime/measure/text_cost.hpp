// What text costs beside the tokens: outside of TTFT and TPOT, and shown apart.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/measure/point.hpp"
#include "runtime/text/tokenizer.hpp"

namespace shardscope::runtime {

/// Times text -> ids of this prompt's text and ids -> text of `output_tokens` of its tokens: the medians of a few runs.
TextCost measure_text_cost(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt_ids, int64_t output_tokens);

}  // namespace shardscope::runtime
