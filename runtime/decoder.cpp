#include "runtime/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/resident_weights.hpp"

namespace shardscope::runtime {
namespace {

using kernels::Activations;
using kernels::DType;
using kernels::Operation;

/// What a column-cut matrix of one layer reads of a row: its whole blocks, `front` columns before the rank's own.
struct BlockSpan {
  int64_t front = 0;
  int64_t width = 0;
};

/// Columns of the rows that feed a column-cut matrix. The rank's own columns begin at `front` in every layer; layers
/// may differ in block format, and each reads its own span around them, zero outside the rank's own columns.
struct FeedWidths {
  int64_t front = 0;  // the widest of any layer
  int64_t width = 0;
  std::vector<BlockSpan> layers;

  Activations of_layer(Activations rows, int64_t layer) const {
    const BlockSpan& span = layers[static_cast<size_t>(layer)];
    return rows.column_range(front - span.front, span.width);
  }
};

FeedWidths feed_widths(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan, int rank,
                       Role role) {
  FeedWidths feed;
  int64_t behind = 0;  // from the rank's first own column on
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const WeightSlice slice = slice_of(config, role, source.dtype({role, layer}), plan, rank);
    BlockSpan span;
    if (!slice.empty()) span = {slice.used_columns.begin - slice.columns.begin, slice.columns.size()};
    feed.front = std::max(feed.front, span.front);
    behind = std::max(behind, span.width - span.front);
    feed.layers.push_back(span);
  }
  feed.width = feed.front + behind;
  return feed;
}

/// How wide each activation of a rank is, in elements a token.
struct Widths {
  int64_t hidden = 0;
  int64_t qkv = 0;
  FeedWidths attention;  // feeds the output product
  FeedWidths ffn;        // feeds the down product
  int64_t vocab = 0;
};

Widths widths_of(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan, int rank) {
  const parallel::RankShard& shard = plan.ranks.at(static_cast<size_t>(rank));
  return {.hidden = config.hidden,
          .qkv = (shard.query_heads.size() + 2 * shard.kv_heads.size()) * config.head_dim,
          .attention = feed_widths(config, source, plan, rank, Role::kAttentionOut),
          .ffn = feed_widths(config, source, plan, rank, Role::kDown),
          .vocab = shard.vocab.size()};
}

/// Rows of hidden width that a step needs beside what its products make: the residual, its sum with what a sub-layer
/// adds, the sub-layer's part, the norm.
constexpr int64_t kHiddenBuffers = 4;

int64_t workspace_bytes(const Widths& widths, const DecoderOptions& options) {
  const int64_t element = kernels::facts(options.precision.activations).block_bytes;
  const int64_t per_token = kHiddenBuffers * widths.hidden + widths.qkv + widths.attention.width + widths.ffn.width;
  const int64_t rows = options.most_logit_rows();
  return (options.max_step_tokens * per_token + rows * kHiddenBuffers * widths.hidden) * element +
         rows * widths.vocab * kernels::facts(DType::kF32).block_bytes;
}

kernels::KvShape kv_shape(const ModelConfig& config, const parallel::RankShard& shard, const DecoderOptions& options) {
  return {.layers = config.layers,
          .slots = options.slots,
          .kv_heads = shard.kv_heads.size(),
          .positions = options.max_positions,
          .head_dim = config.head_dim};
}

}  // namespace

struct Decoder::State {
  ModelConfig config;
  DecoderOptions options;
  RankContext context;
  parallel::RankShard shard;
  Widths widths;
  kernels::HeadLayout heads;
  std::vector<float> frequencies;

  ResidentWeights weights;
  std::vector<const kernels::Matrix*> every_step;
  std::unique_ptr<kernels::KvCache> cache;
  const char* doing = "decode";  // in the step that runs

  /// The four buffers of kHiddenBuffers: what a norm reads and writes.
  struct Hidden {
    std::unique_ptr<kernels::ActivationBuffer> residual;
    std::unique_ptr<kernels::ActivationBuffer> sum;  // residual + partial; then it is the residual, and that its place
    std::unique_ptr<kernels::ActivationBuffer> partial;  // of a sub-layer, summed over the ranks
    std::unique_ptr<kernels::ActivationBuffer> normed;
  };
  Hidden hidden;                                         // [tokens, hidden]
  Hidden selected;                                       // [logit rows, hidden]
  std::unique_ptr<kernels::ActivationBuffer> qkv;        // [tokens, q + k + v columns of the rank]
  std::unique_ptr<kernels::ActivationBuffer> attention;  // [tokens, whole blocks around the rank's heads]
  std::unique_ptr<kernels::ActivationBuffer> gated;      // [tokens, whole blocks around the rank's ffn columns]
  std::unique_ptr<kernels::ActivationBuffer> logits;     // [logit rows, vocab rows of the rank]
  std::unique_ptr<kernels::StepRecordings> recordings;   // declared last: goes first

  void make_buffers();
  /// summed: the communicator sums in its residual and partial.
  Hidden make_hidden(int64_t rows, bool summed) const;
  /// The operations of a step on so many rows, and what is left: logits of `wanted` of them.
  Activations enqueue(int64_t rows, int64_t wanted, bool every_row);
};

Decoder::Decoder(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                 const DecoderOptions& options, RankContext context) {
  const int rank = context.communicator.rank();
  require(static_cast<int>(plan.ranks.size()) == context.communicator.size(), "decoder: plan and group differ in size");
  const parallel::RankShard shard = plan.ranks[static_cast<size_t>(rank)];
  state_ = std::unique_ptr<State>(new State{.config = config,
                                            .options = options,
                                            .context = context,
                                            .shard = shard,
                                            .widths = widths_of(config, source, plan, rank),
                                            .heads = {.head_dim = config.head_dim,
                                                      .query_heads = shard.query_heads,
                                                      .kv_heads = shard.kv_heads,
                                                      .queries_per_kv = config.queries_per_kv(),
                                                      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
                                                      .rotary_dims = config.head_dim},
                                            .frequencies = inverse_frequencies(config.rope, config.head_dim)});
  State& s = *state_;
  s.weights = load_weights({config, source, plan, rank}, context.backend, [&](int64_t bytes) {
    context.world.progress("loading weights");
    if (options.loaded) options.loaded(bytes);
  });
  s.every_step = s.weights.read_every_step();
  require(context.backend.precision() == options.precision, "decoder: the backend has another precision");
  s.cache = context.backend.make_kv_cache(kv_shape(config, shard, options));
  s.make_buffers();
}

Decoder::~Decoder() = default;

Decoder::State::Hidden Decoder::State::make_hidden(int64_t rows, bool summed) const {
  kernels::Backend& backend = context.backend;
  const auto make = [&](bool of_sums) {
    return of_sums ? context.communicator.make_summed(backend, rows, widths.hidden)
                   : backend.make_activations(rows, widths.hidden);
  };
  return {.residual = make(summed), .sum = make(false), .partial = make(summed), .normed = make(false)};
}

void Decoder::State::make_buffers() {
  kernels::Backend& backend = context.backend;
  const int64_t tokens = backend.padded_tokens(options.max_step_tokens, true);
  const int64_t rows = backend.padded_tokens(options.most_logit_rows(), true);
  hidden = make_hidden(tokens, true);
  selected = make_hidden(rows, false);
  qkv = backend.make_activations(tokens, widths.qkv);
  attention = backend.make_activations(tokens, widths.attention.width);
  gated = backend.make_activations(tokens, widths.ffn.width);
  logits = backend.make_logits(rows, widths.vocab);
  recordings = backend.make_recordings(options.max_step_tokens);
}

Activations Decoder::State::enqueue(int64_t rows, int64_t wanted, bool every_row) {
  kernels::Backend& backend = context.backend;
  const auto first_rows = [](const std::unique_ptr<kernels::ActivationBuffer>& buffer, int64_t count) {
    return buffer->view().first_rows(count);
  };
  Activations residual = first_rows(hidden.residual, rows);
  Activations sum = first_rows(hidden.sum, rows);
  const Activations partial = first_rows(hidden.partial, rows);
  const Activations normed = first_rows(hidden.normed, rows);
  const Activations own_qkv = first_rows(qkv, rows);
  const Activations attended = first_rows(attention, rows);
  const Activations ffn = first_rows(gated, rows);
  const Activations own_heads = attended.column_range(widths.attention.front, heads.query_columns());
  const Activations own_ffn = ffn.column_range(widths.ffn.front, shard.ffn.size());
  const auto norm = [&](const std::unique_ptr<kernels::Vector>& weight) -> kernels::NormedInput {
    return {residual, &partial, weight.get(), config.norm_epsilon, sum, normed};
  };

  // Stands around each operation, for the instrument.
  const auto timed = [&](Operation operation, const auto& enqueue_it) {
    const kernels::TimedOperation times(backend, operation);
    enqueue_it();
  };

  timed(Operation::kEmbedding, [&] { backend.embed(*weights.embedding, shard.vocab.begin, residual); });
  // Each rank filled in the rows of its own part of the vocabulary.
  timed(Operation::kSum, [&] { context.communicator.all_reduce(residual); });
  kernels::NormedInput input = norm(weights.layers.front().attention_norm);
  input.addend = nullptr;  // nothing was added yet
  for (int64_t index = 0; index < config.layers; ++index) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(index)];
    context.world.progress(doing);
    timed(Operation::kProduct, [&] { backend.multiply(*layer.qkv, input, layer.qkv_bias.get(), own_qkv); });
    if (index > 0) std::swap(residual, sum);
    timed(Operation::kAttention, [&] { backend.append_and_attend(own_qkv, heads, *cache, index, own_heads); });
    timed(Operation::kProduct, [&] {
      backend.multiply(*layer.attention_out, widths.attention.of_layer(attended, index), layer.attention_out_bias.get(),
                       partial);
    });
    input = norm(layer.ffn_norm);
    timed(Operation::kSum, [&] { context.communicator.all_reduce(input); });
    timed(Operation::kProduct,
          [&] { backend.gated_multiply(*layer.gate_up, input, layer.gate_up_bias.get(), own_ffn); });
    std::swap(residual, sum);
    timed(Operation::kProduct,
          [&] { backend.multiply(*layer.down, widths.ffn.of_layer(ffn, index), layer.down_bias.get(), partial); });
    const bool last = index + 1 == config.layers;
    input = norm(last ? weights.final_norm : weights.layers[static_cast<size_t>(index) + 1].attention_norm);
    timed(Operation::kSum, [&] {
      if (last && !every_row) {
        context.communicator.all_reduce(partial);  // the norm is of the wanted rows alone
      } else {
        context.communicator.all_reduce(input);
      }
    });
  }

  const int64_t logit_rows = every_row ? rows : wanted;
  const Activations out = first_rows(logits, logit_rows);
  if (wanted == 0) return out;
  const Activations picked = first_rows(selected.partial, logit_rows);
  if (!every_row) {
    input = {first_rows(selected.residual, logit_rows),
             &picked,
             weights.final_norm.get(),
             config.norm_epsilon,
             first_rows(selected.sum, logit_rows),
             first_rows(selected.normed, logit_rows)};
    timed(Operation::kRows, [&] {
      backend.select_rows(residual, input.residual);
      backend.select_rows(partial, picked);
    });
  }
  timed(Operation::kHead, [&] { backend.multiply(weights.output_head(), input, nullptr, out); });
  timed(Operation::kCandidates, [&] {
    backend.prepare_candidates(out, intersection(shard.vocab, {0, options.valid_vocab_of(config)}).size(),
                               shard.vocab.begin);
  });
  return out;
}

Activations Decoder::forward(std::span<const int32_t> token_ids, std::span<const kernels::StepSequence> sequences,
                             std::span<const int32_t> logit_rows) {
  State& s = *state_;
  kernels::Backend& backend = s.context.backend;
  const auto tokens = static_cast<int64_t>(token_ids.size());
  const auto wanted = static_cast<int64_t>(logit_rows.size());
  require(tokens > 0 && tokens <= s.options.max_step_tokens, "decoder: tokens of a step out of bounds");
  require(wanted <= s.options.most_logit_rows(), "decoder: too many logit rows");
  const kernels::Step step{.token_ids = token_ids,
                           .sequences = sequences,
                           .inverse_frequencies = s.frequencies,
                           .selected_rows = logit_rows};
  const bool decodes = step.decodes();
  s.doing = tokens > static_cast<int64_t>(sequences.size()) ? "prefill" : "decode";
  s.context.world.progress(s.doing);
  const auto enqueue = [&] { s.enqueue(backend.padded_tokens(tokens, decodes), wanted, decodes); };
  backend.run_step(step, *s.recordings, std::ref(enqueue));
  return s.logits->view().first_rows(wanted);
}

Range Decoder::vocab_range() const {
  return state_->shard.vocab;
}
const ModelConfig& Decoder::config() const {
  return state_->config;
}
const DecoderOptions& Decoder::options() const {
  return state_->options;
}
const kernels::KvCache& Decoder::kv_cache() const {
  return *state_->cache;
}
std::span<const kernels::Matrix* const> Decoder::read_every_step() const {
  return state_->every_step;
}

MemoryBytes Decoder::memory() const {
  const State& s = *state_;
  int64_t workspace = 0;
  for (const State::Hidden* hidden : {&s.hidden, &s.selected}) {
    for (const auto* buffer : {&hidden->residual, &hidden->sum, &hidden->partial, &hidden->normed}) {
      workspace += (*buffer)->bytes();
    }
  }
  for (const auto* buffer : {&s.qkv, &s.attention, &s.gated, &s.logits}) workspace += (*buffer)->bytes();
  return {.weights = s.weights.bytes, .kv = s.cache->bytes(), .workspace = workspace};
}

MemoryBytes planned_memory(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                           const DecoderOptions& options, int rank) {
  MemoryBytes memory;
  memory.weights = stored_bytes(announced_weights({config, source, plan, rank}));
  const kernels::KvShape shape = kv_shape(config, plan.ranks.at(static_cast<size_t>(rank)), options);
  constexpr int64_t kKeysAndValues = 2;
  memory.kv = kKeysAndValues * shape.layers * shape.slots * shape.kv_heads * shape.positions * shape.head_dim *
              kernels::facts(options.precision.kv).block_bytes;
  memory.workspace = workspace_bytes(widths_of(config, source, plan, rank), options);
  return memory;
}

int64_t planned_group_bytes(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                            const DecoderOptions& options) {
  int64_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    const MemoryBytes memory = planned_memory(config, source, plan, options, rank);
    bytes += memory.weights + memory.kv + memory.workspace;
  }
  return bytes;
}

int64_t largest_all_reduce_floats(const ModelConfig& config, const DecoderOptions& options) {
  constexpr int64_t kMostRowPadding = 16;  // rows begin on cache lines
  return options.max_step_tokens * (config.hidden + kMostRowPadding);
}

std::vector<int64_t> all_reduce_bytes(const ModelConfig& config, const kernels::Backend& backend,
                                      std::span<const int64_t> decoding, std::span<const int64_t> prefill) {
  const int64_t row = config.hidden * kernels::facts(backend.precision().activations).block_bytes;
  std::vector<int64_t> bytes;
  for (const int64_t sequences : decoding) bytes.push_back(backend.padded_tokens(sequences, true) * row);
  for (const int64_t tokens : prefill) bytes.push_back(backend.padded_tokens(tokens, false) * row);
  return bytes;
}

}  // namespace shardscope::runtime
