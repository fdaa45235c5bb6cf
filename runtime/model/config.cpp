#include "runtime/model/config.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

void check_rope(const RopeConfig& rope, int64_t head_dim, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw UserError(what, where, "use a checkpoint with sound rotary settings");
  };
  if (!(std::isfinite(rope.theta) && rope.theta >= 1.0))
    fail(fmt::format("rope theta is {}: must be at least 1", rope.theta));
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      break;
    case RopeConfig::Scaling::kLlama3:
      if (!(std::isfinite(rope.high_freq_factor) && rope.low_freq_factor > 0.0 &&
            rope.low_freq_factor < rope.high_freq_factor)) {
        fail(fmt::format("rope low_freq_factor {} must be positive and below high_freq_factor {}", rope.low_freq_factor,
                         rope.high_freq_factor));
      }
      if (rope.original_positions < 1) fail("rope original_max_position_embeddings must be positive");
      [[fallthrough]];
    case RopeConfig::Scaling::kLinear:
      if (!(std::isfinite(rope.factor) && rope.factor > 0.0))
        fail(fmt::format("rope factor is {}: must be positive", rope.factor));
      break;
  }
  if (rope.divisors.empty()) return;
  if (static_cast<int64_t>(rope.divisors.size()) != head_dim / 2) {
    fail(fmt::format("{} rotary divisors for a head of {}: must be {}", rope.divisors.size(), head_dim, head_dim / 2));
  }
  for (const float divisor : rope.divisors) {
    if (!(std::isfinite(divisor) && divisor > 0.0F)) fail(fmt::format("rotary divisor {} must be positive", divisor));
  }
}

}  // namespace

void ModelConfig::validate(const std::string& where) const {
  struct Bound {
    std::string_view key;
    int64_t value;
    int64_t limit;
  };
  // Limits far beyond any published model, small enough that no size of a tensor or model reaches 2^63.
  const std::array<Bound, 8> bounds = {{{"layers", layers, 4096},
                                        {"hidden", hidden, 1 << 20},
                                        {"query heads", query_heads, 1 << 14},
                                        {"kv heads", kv_heads, 1 << 14},
                                        {"head size", head_dim, 1 << 12},
                                        {"ffn", ffn, 1 << 22},
                                        {"vocab", vocab, 1 << 24},
                                        {"max positions", max_positions, int64_t{1} << 31}}};
  const auto fail = [&](const std::string& what) {
    throw UserError(what, where, "use a checkpoint with sound dimensions");
  };
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.limit) {
      fail(fmt::format("{} is {}: must be from 1 to {}", bound.key, bound.value, bound.limit));
    }
  }
  if (kv_heads > query_heads || query_heads % kv_heads != 0) {
    fail(fmt::format("{} query heads (num_attention_heads) must be a multiple of {} kv heads (num_key_value_heads)",
                     query_heads, kv_heads));
  }
  if (head_dim % 2 != 0) fail(fmt::format("head size {} is odd: rotary embedding turns pairs", head_dim));
  if (!(std::isfinite(norm_epsilon) && norm_epsilon > 0.0F && norm_epsilon < 1.0F)) {
    fail(fmt::format("norm epsilon (rms_norm_eps) is {}: must be between 0 and 1", norm_epsilon));
  }
  if (bos_id && (*bos_id < 0 || *bos_id >= vocab)) {
    fail(fmt::format("bos_token_id {} is not below the vocabulary of {}", *bos_id, vocab));
  }
  for (const int32_t id : eos_ids) {
    if (id < 0 || id >= vocab) fail(fmt::format("eos_token_id {} is not below the vocabulary of {}", id, vocab));
  }
  check_rope(rope, head_dim, where);
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  require(head_dim > 0 && head_dim % 2 == 0, "inverse_frequencies: the head size must be even");
  const int64_t pairs = head_dim / 2;
  require(rope.divisors.empty() || static_cast<int64_t>(rope.divisors.size()) == pairs,
          "inverse_frequencies: one divisor for each pair");
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
        break;
      case RopeConfig::Scaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeConfig::Scaling::kLlama3: {
        const double turns = static_cast<double>(rope.original_positions) * frequency / (2.0 * std::numbers::pi);
        if (turns < rope.low_freq_factor) {
          frequency /= rope.factor;
        } else if (turns <= rope.high_freq_factor) {
          const double share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
          frequency = (1.0 - share) * frequency / rope.factor + share * frequency;
        }
        break;
      }
    }
    if (!rope.divisors.empty()) frequency /= static_cast<double>(rope.divisors[static_cast<size_t>(i)]);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace shardscope::runtime
