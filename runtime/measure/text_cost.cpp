#include "runtime/measure/text_cost.hpp"

#include <chrono>
#include <functional>
#include <utility>

#include "runtime/measure/statistics.hpp"

namespace shardscope::runtime {
namespace {

double median_ms(const std::function<void()>& work) {
  std::vector<double> times(5);
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    work();
    time = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return median(std::move(times));
}

}  // namespace

TextCost measure_text_cost(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt_ids, int64_t output_tokens) {
  const std::string text = tokenizer.decode(prompt_ids);
  std::vector<int32_t> output(static_cast<size_t>(output_tokens));
  for (size_t i = 0; i < output.size(); ++i) output[i] = prompt_ids[i % prompt_ids.size()];
  TextCost cost;
  cost.tokenise_ms = median_ms([&] { tokenizer.encode(text); });
  cost.detokenise_ms = median_ms([&] { tokenizer.decode(output); });
  return cost;
}

}  // namespace shardscope::runtime
