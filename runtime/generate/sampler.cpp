#include "runtime/generate/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/base/error.hpp"
#include "kernels/base/keyed_random.hpp"

namespace shardscope::runtime {
namespace {

using kernels::Candidate;

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kFirstCandidates = 64;  // of a rank, for top-p; doubled until they reach far enough
constexpr int64_t kMaxExchange = 4096;    // candidates of a rank in one exchange

uint64_t position_key(const SampleRow& row) {
  return shardscope::position_key(row.options->seed, static_cast<uint64_t>(row.request),
                                  static_cast<uint64_t>(row.position));
}

double score_of(float logit, float max, const SamplingOptions& options) {
  return (static_cast<double>(logit) - static_cast<double>(max)) / options.temperature;
}

bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

std::span<const std::byte> bytes_of(std::span<const Candidate> candidates) {
  return std::as_bytes(candidates);
}

/// As the Hugging Face reference does it: positive logits are divided, negative multiplied; once per distinct token.
void penalise(std::span<float> logits, Range vocab, const SampleRow& row) {
  std::vector<int32_t> seen(row.history.begin(), row.history.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  const auto penalty = static_cast<float>(row.options->repetition_penalty);
  for (const int32_t id : seen) {
    if (!vocab.contains(id)) continue;
    float& logit = logits[static_cast<size_t>(id - vocab.begin)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

}  // namespace

void SamplingOptions::validate() const {
  const auto demand = [](bool holds, double value, const char* option, const char* range) {
    if (!holds) throw UserError(std::to_string(value) + " is out of range", option, range);
  };
  demand(temperature >= 0 && std::isfinite(temperature), temperature, "--temperature",
         "use a number from 0 (greedy) up");
  demand(top_k >= 0, static_cast<double>(top_k), "--top-k", "use a whole number from 0 (all) up");
  demand(top_p > 0 && top_p <= 1, top_p, "--top-p", "use a number above 0 and up to 1 (all)");
  demand(min_p >= 0 && min_p <= 1, min_p, "--min-p", "use a number from 0 (all) to 1");
  demand(repetition_penalty >= 0.01 && repetition_penalty <= 100, repetition_penalty, "--repetition-penalty",
         "use a number from 0.01 to 100 (1: none)");
}

Sampler::Sampler(kernels::Backend& backend, parallel::Communicator& communicator, Range vocab, int64_t valid_vocab,
                 int64_t max_rows)
    : backend_(backend),
      communicator_(communicator),
      vocab_(vocab),
      valid_columns_(intersection(vocab, {0, valid_vocab}).size()),
      valid_vocab_(valid_vocab) {
  largest_.reserve(static_cast<size_t>(max_rows));
  mine_.reserve(static_cast<size_t>(std::max(max_rows, kMaxExchange)));
  all_.reserve(static_cast<size_t>(std::max(max_rows, kMaxExchange) * communicator.size()));
}

int64_t Sampler::max_exchange_floats(int64_t max_rows) {
  return std::max(max_rows, kMaxExchange) * static_cast<int64_t>(sizeof(Candidate) / sizeof(float));
}

void Sampler::sample(kernels::Activations logits, std::span<const SampleRow> rows, std::span<int32_t> token_ids) {
  mine_.assign(rows.size(), Candidate{kLowest, -1});
  largest_.resize(rows.size());
  const bool penalties =
      std::any_of(rows.begin(), rows.end(), [](const SampleRow& row) { return row.options->repetition_penalty != 1; });
  if (penalties || !backend_.best_of_group(logits, mine_)) exchange_best(logits, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Candidate& best = mine_[i];
    if (best.token_id < 0 || !std::isfinite(best.logit)) {
      throw SystemError("logits are not finite", "position " + std::to_string(rows[i].position),
                        "the weights or activations overflow: try --dtype fp32 or another file");
    }
    token_ids[i] = best.token_id;
    largest_[i] = best.logit;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].options->greedy()) token_ids[i] = draw(logits, static_cast<int64_t>(i), largest_[i], rows[i]);
  }
}

/// mine_ = the best of each row over all ranks, after penalties: one exchange for all rows.
void Sampler::exchange_best(kernels::Activations logits, std::span<const SampleRow> rows) {
  {
    const kernels::TimedOperation times(backend_, kernels::Operation::kCandidates);
    best_of_own(logits, rows);
  }
  {
    const kernels::TimedOperation times(backend_, kernels::Operation::kExchange);
    all_.resize(rows.size() * static_cast<size_t>(communicator_.size()));
    communicator_.all_gather(bytes_of(mine_), std::as_writable_bytes(std::span(all_)));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Candidate& best = mine_[i];
    best = {kLowest, -1};
    for (size_t at = i; at < all_.size(); at += rows.size()) {
      if (all_[at].token_id >= 0 && (best.token_id < 0 || before(all_[at], best))) best = all_[at];
    }
  }
}

/// mine_ = the best of each row over this rank's part of the vocabulary, after penalties.
void Sampler::best_of_own(kernels::Activations logits, std::span<const SampleRow> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    if (rows[i].options->repetition_penalty != 1) penalise(backend_.host_logits(logits, row), vocab_, rows[i]);
    if (valid_columns_ > 0) {
      backend_.top_candidates(logits, row, valid_columns_, vocab_.begin, std::span(&mine_[i], 1));
    }
  }
}

int32_t Sampler::draw(kernels::Activations logits, int64_t row, float largest, const SampleRow& what) {
  const SamplingOptions& options = *what.options;
  if (options.top_k == 0 && options.top_p >= 1) return draw_from_all(logits, row, largest, what);
  return draw_from_candidates(logits, row, what);
}

int32_t Sampler::draw_from_all(kernels::Activations logits, int64_t row, float largest, const SampleRow& what) {
  const SamplingOptions& options = *what.options;
  kernels::Noise noise{.key = position_key(what), .temperature = options.temperature, .reference = largest};
  if (options.min_p > 0) noise.lowest_score = std::log(options.min_p);
  const Candidate own = backend_.draw(logits, row, valid_columns_, vocab_.begin, noise);
  std::vector<Candidate> all(static_cast<size_t>(communicator_.size()));
  communicator_.all_gather(bytes_of({&own, 1}), std::as_writable_bytes(std::span(all)));
  Candidate best{kLowest, -1};
  for (const Candidate& candidate : all) {
    if (candidate.token_id >= 0 && (best.token_id < 0 || before(candidate, best))) best = candidate;
  }
  return best.token_id;
}

/// all_ = the k largest of the whole vocabulary, or all of it where it has fewer; descending.
void Sampler::merge_candidates(kernels::Activations logits, int64_t row, int64_t k) {
  k = std::min(k, valid_vocab_);
  std::vector<Candidate> own(static_cast<size_t>(k), Candidate{kLowest, -1});
  if (valid_columns_ > 0) backend_.top_candidates(logits, row, valid_columns_, vocab_.begin, own);
  std::vector<Candidate> merged;
  for (size_t at = 0; at < own.size(); at += kMaxExchange) {  // in pieces that the communicator has room for
    const auto piece = std::span(own).subspan(at, std::min<size_t>(kMaxExchange, own.size() - at));
    all_.resize(piece.size() * static_cast<size_t>(communicator_.size()));
    communicator_.all_gather(bytes_of(piece), std::as_writable_bytes(std::span(all_)));
    merged.insert(merged.end(), all_.begin(), all_.end());
  }
  std::erase_if(merged, [](const Candidate& candidate) { return candidate.token_id < 0; });
  std::sort(merged.begin(), merged.end(), before);
  merged.resize(std::min(merged.size(), static_cast<size_t>(k)));
  all_ = std::move(merged);
}

std::vector<Candidate> Sampler::top_logits(kernels::Activations logits, int64_t row, int64_t k) {
  merge_candidates(logits, row, k);
  return all_;
}

int32_t Sampler::draw_from_candidates(kernels::Activations logits, int64_t row, const SampleRow& what) {
  const SamplingOptions& options = *what.options;
  const auto weight_of = [&](float logit, float max) { return std::exp(score_of(logit, max, options)); };
  int64_t k = options.top_k > 0 ? options.top_k : kFirstCandidates;
  merge_candidates(logits, row, k);
  const float max = all_.front().logit;
  size_t kept = all_.size();
  if (options.top_p < 1) {
    // The mass that top-p is a share of: of the k candidates when top-k came first, else of the whole vocabulary.
    double mass = 0;
    if (options.top_k > 0) {
      for (const Candidate& candidate : all_) mass += weight_of(candidate.logit, max);
    } else {
      double own = 0;
      for (const float logit : backend_.host_logits(logits, row).first(static_cast<size_t>(valid_columns_))) {
        own += weight_of(logit, max);
      }
      std::vector<double> parts(static_cast<size_t>(communicator_.size()));
      communicator_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(parts)));
      for (const double part : parts) mass += part;
    }
    for (;;) {  // the smallest set of the likeliest tokens whose share reaches top_p
      double sum = 0;
      kept = 0;
      while (kept < all_.size() && sum < options.top_p * mass) sum += weight_of(all_[kept++].logit, max);
      const bool reached = sum >= options.top_p * mass;
      if (reached || options.top_k > 0 || static_cast<int64_t>(all_.size()) >= valid_vocab_) break;
      k *= 4;
      merge_candidates(logits, row, k);
    }
  }
  const uint64_t key = position_key(what);
  double best_score = -std::numeric_limits<double>::infinity();
  int32_t best = -1;
  for (const Candidate& candidate : std::span(all_).first(kept)) {
    if (options.min_p > 0 && weight_of(candidate.logit, max) < options.min_p) break;
    const double score = score_of(candidate.logit, max, options);
    const double noisy = score + kernels::gumbel(key, candidate.token_id);
    if (best >= 0 && !(noisy > best_score)) continue;
    best_score = noisy;
    best = candidate.token_id;
  }
  return best;
}

}  // namespace shardscope::runtime
