#include "runtime/generate/generate.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

using kernels::StepSequence;

/// The state of one batch. Buffers are sized once; a decode step only fills them.
class Batch {
 public:
  Batch(Decoder& decoder, Sampler& sampler, RankContext context, std::span<const GenerationRequest> requests,
        const GenerateOptions& options)
      : decoder_(decoder), sampler_(sampler), context_(context), requests_(requests), options_(options) {
    require(static_cast<int64_t>(requests.size()) <= decoder.options().slots, "generate: more requests than slots");
    results_.resize(requests.size());
    histories_.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerationRequest& request = requests[i];
      require(!request.prompt_ids.empty(), "generate: empty prompt");
      require(static_cast<int64_t>(request.prompt_ids.size()) + std::max<int64_t>(request.max_tokens - 1, 0) <=
                  decoder.options().max_positions,
              "generate: request longer than the KV cache");
      histories_[i].reserve(request.prompt_ids.size() + static_cast<size_t>(request.max_tokens));
      histories_[i] = request.prompt_ids;
      results_[i].output_ids.reserve(static_cast<size_t>(request.max_tokens));
      results_[i].token_times_ms.reserve(static_cast<size_t>(request.max_tokens));
      if (request.max_tokens > 0) running_.push_back(i);
    }
    ids_.reserve(static_cast<size_t>(decoder.options().max_step_tokens));
    for (auto* list : {&logit_rows_, &sampled_}) list->reserve(requests.size());
    finished_.resize(requests.size());
    drawing_.reserve(requests.size());
    sequences_.reserve(requests.size());
    rows_.reserve(requests.size());
    stops_.reserve(requests.size());
  }

  std::vector<GenerationResult> run() {
    start_ = Clock::now();
    if (running_.empty()) return std::move(results_);
    prefill();
    while (!running_.empty()) decode();
    return std::move(results_);
  }

 private:
  /// All prompts, packed one after another into steps of at most max_step_tokens; a request's first token is drawn in
  /// the step that ends its prompt.
  void prefill() {
    for (const size_t request : running_) {
      const auto length = static_cast<int64_t>(requests_[request].prompt_ids.size());
      for (int64_t done = 0; done < length;) {
        const int64_t room = decoder_.options().max_step_tokens - static_cast<int64_t>(ids_.size());
        const int64_t count = std::min(length - done, room);
        add(request, {done, done + count});
        done += count;
        if (static_cast<int64_t>(ids_.size()) == decoder_.options().max_step_tokens) step(/*decodes=*/false);
      }
    }
    if (!ids_.empty()) step(/*decodes=*/false);
    drop_finished();
  }

  /// One token of every running request in, one token of each out.
  void decode() {
    for (const size_t request : running_) {
      const auto length = static_cast<int64_t>(histories_[request].size());
      add(request, {length - 1, length});
    }
    step(/*decodes=*/true);
    drop_finished();
  }

  /// Puts the tokens at `positions` of a request into the next step; its end asks for logits.
  void add(size_t request, Range positions) {
    const std::vector<int32_t>& history = histories_[request];
    ids_.insert(ids_.end(), history.begin() + positions.begin, history.begin() + positions.end);
    sequences_.push_back(
        {.slot = static_cast<int64_t>(request), .first_position = positions.begin, .count = positions.size()});
    if (positions.end != static_cast<int64_t>(history.size())) return;
    logit_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
    drawing_.push_back(request);
    rows_.push_back({.request = static_cast<int64_t>(request),
                     .position = positions.end,
                     .history = history,
                     .options = &requests_[request].sampling});
  }

  void step(bool decodes) {
    const kernels::Activations logits = decoder_.forward(ids_, sequences_, logit_rows_);
    if (options_.top_logits > 0) {
      for (size_t row = 0; row < drawing_.size(); ++row) {
        results_[drawing_[row]].top_logits.push_back(
            sampler_.top_logits(logits, static_cast<int64_t>(row), options_.top_logits));
      }
    }
    if (!drawing_.empty()) {
      sampled_.resize(drawing_.size());
      sampler_.sample(logits, rows_, sampled_);
      accept();
    }
    if (options_.stepped) options_.stepped(decodes);
    ids_.clear();
    sequences_.clear();
    logit_rows_.clear();
    drawing_.clear();
    rows_.clear();
  }

  /// Books the sampled tokens and marks the requests that they end.
  void accept() {
    const double now_ms = std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    stops_.assign(drawing_.size(), std::byte{0});
    for (size_t row = 0; row < drawing_.size(); ++row) {
      const size_t i = drawing_[row];
      results_[i].output_ids.push_back(sampled_[row]);
      results_[i].token_times_ms.push_back(now_ms);
      histories_[i].push_back(sampled_[row]);
      const bool stop = options_.on_token && options_.on_token(i, sampled_[row]);
      if (stop && options_.callback_may_stop) stops_[row] = std::byte{1};
    }
    if (options_.callback_may_stop) context_.communicator.broadcast(stops_, 0);
    for (size_t row = 0; row < drawing_.size(); ++row) {
      const size_t i = drawing_[row];
      const GenerationRequest& request = requests_[i];
      const bool ended =
          std::find(request.stop_ids.begin(), request.stop_ids.end(), sampled_[row]) != request.stop_ids.end();
      const bool stopped = ended || stops_[row] != std::byte{0};
      if (stopped) results_[i].finish_reason = FinishReason::kStop;
      finished_[i] = stopped || static_cast<int64_t>(results_[i].output_ids.size()) >= request.max_tokens;
    }
  }

  void drop_finished() {
    std::erase_if(running_, [&](size_t request) { return finished_[request]; });
  }

  Decoder& decoder_;
  Sampler& sampler_;
  RankContext context_;
  std::span<const GenerationRequest> requests_;
  const GenerateOptions& options_;
  Clock::time_point start_;
  std::vector<GenerationResult> results_;
  std::vector<std::vector<int32_t>> histories_;  // prompt + output
  std::vector<bool> finished_;
  std::vector<size_t> running_;  // requests still going, ascending
  // The step being put together:
  std::vector<int32_t> ids_;
  std::vector<StepSequence> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<size_t> drawing_;  // the request of each logit row
  std::vector<SampleRow> rows_;
  std::vector<int32_t> sampled_;
  std::vector<std::byte> stops_;
};

}  // namespace

std::vector<GenerationResult> generate_batch(Decoder& decoder, Sampler& sampler, RankContext context,
                                             std::span<const GenerationRequest> requests,
                                             const GenerateOptions& options) {
  return Batch(decoder, sampler, context, requests, options).run();
}

}  // namespace shardscope::runtime
