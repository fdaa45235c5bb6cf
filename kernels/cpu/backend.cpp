// The CPU backend: checks shapes, and hands the work to products, attention and the small operations. Everything is
// done when a call returns, so that nothing is left to wait for.
#include "kernels/backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/base/logit_rank.hpp"
#include "kernels/cpu/attention_run.hpp"
#include "kernels/cpu/kv_cache.hpp"
#include "kernels/cpu/load.hpp"
#include "kernels/cpu/operations.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/products.hpp"
#include "kernels/cpu/thread_team.hpp"

namespace shardscope::kernels {
namespace cpu {
namespace {

class CpuActivationBuffer final : public ActivationBuffer {
 public:
  CpuActivationBuffer(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
    require(rows >= 0 && columns >= 0, "make_activations: a negative dimension");
    memory_ = AlignedBytes(rows * columns * static_cast<int64_t>(sizeof(float)));
    std::memset(memory_.data(), 0, static_cast<size_t>(memory_.size()));
  }
  Activations view() const override { return {memory_.floats(), rows_, columns_, columns_}; }
  int64_t bytes() const override { return memory_.size(); }

 private:
  int64_t rows_;
  int64_t columns_;
  AlignedBytes memory_;
};

class CpuVector final : public Vector {
 public:
  explicit CpuVector(std::span<const float> values) : memory_(static_cast<int64_t>(values.size_bytes())) {
    if (!values.empty()) std::memcpy(memory_.data(), values.data(), values.size_bytes());
  }
  int64_t size() const override { return memory_.size() / static_cast<int64_t>(sizeof(float)); }
  const float* data() const { return memory_.floats(); }

 private:
  AlignedBytes memory_;
};

template <typename Own, typename Interface>
const Own& own(const Interface& object) {
  const auto* mine = dynamic_cast<const Own*>(&object);
  require(mine != nullptr, "an object of another backend was given to the CPU backend");
  return *mine;
}

void check_view(const Activations& view, std::string_view what) {
  require(view.rows >= 0 && view.columns >= 0 && view.stride >= view.columns, what);
  require(view.data != nullptr || view.rows == 0 || view.columns == 0, what);
}

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token_id < b.token_id);
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options)
      : team_(options.threads, options.cores), int8_(options.activations != ActivationMode::kF32) {}

  std::string description() const override {
    const std::string threads = team_.size() == 1 ? "1 thread" : std::to_string(team_.size()) + " threads";
    return "cpu, " + std::string(instruction_set()) + ", " + threads + ", " + (int8_ ? "int8" : "fp32") +
           " inputs to block-quantised weights";
  }

  std::unique_ptr<ActivationBuffer> make_activations(int64_t rows, int64_t columns) override {
    return std::make_unique<CpuActivationBuffer>(rows, columns);
  }
  std::unique_ptr<ActivationBuffer> make_logits(int64_t rows, int64_t columns) override {
    return make_activations(rows, columns);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override { return std::make_unique<CpuKvCache>(shape); }
  std::unique_ptr<Vector> load_vector(std::span<const float> values) override {
    return std::make_unique<CpuVector>(values);
  }
  std::unique_ptr<Matrix> load_matrix(std::span<const MatrixPart> parts, const RowReader& read) override {
    return load_packed(parts, read, team_);
  }

  Precision precision() const override { return {}; }
  std::unique_ptr<StepRecordings> make_recordings(int64_t /*most_tokens*/) override {
    return std::make_unique<StepRecordings>();
  }
  int64_t padded_tokens(int64_t tokens, bool /*decodes*/) const override { return tokens; }
  void run_step(const Step& step, StepRecordings& /*recordings*/, const std::function<void()>& enqueue) override {
    times_.clear();
    begin_step(step);
    enqueue();
  }
  void embed(const Matrix& table, int64_t first_id, Activations out) override;
  void multiply(const Matrix& w, Activations x, const Vector* bias, Activations out) override;
  void multiply(const Matrix& w, const NormedInput& x, const Vector* bias, Activations out) override {
    norm(x);
    times_.divide(Operation::kNorm);
    multiply(w, x.normed, bias, out);
  }
  void gated_multiply(const Matrix& gate_up, Activations x, const Vector* bias, Activations out) override;
  void gated_multiply(const Matrix& gate_up, const NormedInput& x, const Vector* bias, Activations out) override {
    norm(x);
    times_.divide(Operation::kNorm);
    gated_multiply(gate_up, x.normed, bias, out);
  }
  void append_and_attend(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer,
                         Activations out) override;
  void select_rows(Activations x, Activations out) override;
  void prepare_candidates(Activations, int64_t, int64_t) override {}
  int64_t top_candidates(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                         std::span<Candidate> out) override;
  Candidate draw(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                 const Noise& noise) override {
    require(valid_columns >= 0 && valid_columns <= logits.columns, "draw: more valid columns than columns");
    return noisiest(host_logits(logits, row).first(static_cast<size_t>(valid_columns)), first_id, noise);
  }
  std::span<float> host_logits(Activations logits, int64_t row) override {
    check_view(logits, "host_logits: logits are not a view");
    require(row >= 0 && row < logits.rows, "host_logits: no such row");
    return {logits.floats() + row * logits.stride, static_cast<size_t>(logits.columns)};
  }
  uint64_t read_all(std::span<const Matrix* const> matrices, const KvCache* cache, const KvPart& kv) override;
  void synchronize() override {}
  bool note_times(bool on) override {
    times_.note(on);
    return true;
  }
  void begin_operation(Operation operation) override { times_.begin(operation); }
  void end_operation() override { times_.end(); }
  std::span<const OperationTimes> step_times() override { return times_.times(); }

 private:
  struct Token {
    int64_t slot;
    int64_t position;
  };

  void begin_step(const Step& step);
  void norm(const NormedInput& input);
  void product(const PackedMatrix& w, Activations x, const Vector* bias, Activations out, bool gated);
  const CpuKvCache& checked_cache(const Activations& qkv, const HeadLayout& heads, const KvCache& cache,
                                  int64_t layer) const;
  void append(Activations qkv, const HeadLayout& heads, const CpuKvCache& cache, int64_t layer, int64_t token) const;

  /// work(range of rows), by all members where there is enough to do.
  template <typename Work>
  void for_rows(int64_t rows, int64_t columns, const Work& work) {
    constexpr int64_t kWorthwhileElements = 16384;  // some microseconds: what waking a thread costs
    if (rows * columns < kWorthwhileElements) {
      work(Range{0, rows});
    } else {
      team_.run([&](int member) { work(even_share(rows, member, team_.size())); });
    }
  }

  ThreadTeam team_;
  bool int8_;
  ProductScratch product_scratch_;
  AttentionRunner attention_;
  HostOperationTimes times_;
  Step step_;
  std::vector<Token> tokens_;
  std::vector<float> cosines_;  // [token][rotary_dims / 2]
  std::vector<float> sines_;
};

void CpuBackend::begin_step(const Step& step) {
  step_ = step;
  tokens_.clear();
  for (const StepSequence& sequence : step.sequences) {
    require(sequence.count >= 0 && sequence.first_position >= 0, "begin_step: a negative count or position");
    for (int64_t i = 0; i < sequence.count; ++i) tokens_.push_back({sequence.slot, sequence.first_position + i});
  }
  require(tokens_.size() == step.token_ids.size(), "begin_step: counts of sequences do not sum to the tokens");
  const auto half = static_cast<int64_t>(step.inverse_frequencies.size());
  const auto tokens = static_cast<int64_t>(tokens_.size());
  cosines_.resize(static_cast<size_t>(tokens * half));
  sines_.resize(static_cast<size_t>(tokens * half));
  for_rows(tokens, half * 16, [&](Range rows) {  // a sine is worth some 16 simple elements
    for (int64_t token = rows.begin; token < rows.end; ++token) {
      for (int64_t i = 0; i < half; ++i) {
        // The product in fp32, as in the models' training code; its sine exactly.
        const double angle = static_cast<float>(tokens_[token].position) * step.inverse_frequencies[i];
        cosines_[token * half + i] = static_cast<float>(std::cos(angle)) * step.rotary_scale;
        sines_[token * half + i] = static_cast<float>(std::sin(angle)) * step.rotary_scale;
      }
    }
  });
}

void CpuBackend::embed(const Matrix& table, int64_t first_id, Activations out) {
  const auto& packed = own<PackedMatrix>(table);
  check_view(out, "embed: out is not a view");
  require(out.rows == std::ssize(step_.token_ids) && out.columns == table.columns(), "embed: out's shape");
  for_rows(out.rows, out.columns * 4, [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t row = step_.token_ids[i] - first_id;
      float* to = out.floats() + i * out.stride;
      if (row >= 0 && row < packed.rows()) {
        packed.unpack_row(row, to);
      } else {
        std::fill(to, to + out.columns, 0.0F);
      }
    }
  });
}

void CpuBackend::norm(const NormedInput& input) {
  const Activations& x = input.residual;
  const Activations& out = input.normed;
  check_view(x, "norm: the residual is not a view");
  check_view(out, "norm: normed is not a view");
  require(x.rows == out.rows && x.columns == out.columns && input.weight->size() == x.columns, "norm: shapes disagree");
  const Activations* addend = input.addend;
  if (addend != nullptr) {
    check_view(*addend, "norm: the addend is not a view");
    check_view(input.sum, "norm: the sum is not a view");
    require(addend->rows == x.rows && addend->columns == x.columns, "norm: addend's shape");
    require(input.sum.rows == x.rows && input.sum.columns == x.columns, "norm: sum's shape");
  }
  const float* scales = own<CpuVector>(*input.weight).data();
  for_rows(x.rows, x.columns, [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      norm_row({.x = x.floats() + i * x.stride,
                .addend = addend == nullptr ? nullptr : addend->floats() + i * addend->stride,
                .sum = addend == nullptr ? nullptr : input.sum.floats() + i * input.sum.stride,
                .weight = scales,
                .out = out.floats() + i * out.stride,
                .columns = x.columns,
                .epsilon = input.epsilon});
    }
  });
}

void CpuBackend::multiply(const Matrix& w, Activations x, const Vector* bias, Activations out) {
  require(out.columns == w.rows(), "multiply: out's columns are not the weights' rows");
  product(own<PackedMatrix>(w), x, bias, out, false);
}

void CpuBackend::gated_multiply(const Matrix& gate_up, Activations x, const Vector* bias, Activations out) {
  const auto& packed = own<PackedMatrix>(gate_up);
  require(packed.parts().size() == 2 && packed.parts()[0].rows == packed.parts()[1].rows,
          "gated_multiply: the weights are not two parts of equal rows");
  require(out.columns * 2 == gate_up.rows(), "gated_multiply: out's columns are not the rows of a part");
  product(packed, x, bias, out, true);
}

void CpuBackend::product(const PackedMatrix& w, Activations x, const Vector* bias, Activations out, bool gated) {
  check_view(x, "multiply: x is not a view");
  check_view(out, "multiply: out is not a view");
  require(x.columns == w.columns(), "multiply: x's columns are not the weights' columns");
  require(x.rows == out.rows, "multiply: x and out have different rows");
  require(bias == nullptr || bias->size() == w.rows(), "multiply: the bias is not one value per row of the weights");
  run_product({.weights = &w,
               .x = x,
               .bias = bias == nullptr ? nullptr : own<CpuVector>(*bias).data(),
               .out = out,
               .int8 = int8_,
               .gated = gated},
              team_, product_scratch_);
}

const CpuKvCache& CpuBackend::checked_cache(const Activations& qkv, const HeadLayout& heads, const KvCache& cache,
                                            int64_t layer) const {
  const auto& own_cache = own<CpuKvCache>(cache);
  const KvShape& shape = own_cache.shape();
  check_view(qkv, "attention: qkv is not a view");
  require(qkv.rows == std::ssize(tokens_), "attention: qkv has not one row per token of the step");
  require(qkv.columns == heads.query_columns() + 2 * heads.kv_columns(), "attention: qkv's columns");
  require(shape.kv_heads == heads.kv_heads.size() && shape.head_dim == heads.head_dim, "attention: the cache's heads");
  require(heads.queries_per_kv > 0, "attention: queries_per_kv is not positive");
  require(heads.query_heads.empty() || (heads.kv_heads.contains(heads.query_heads.begin / heads.queries_per_kv) &&
                                        heads.kv_heads.contains((heads.query_heads.end - 1) / heads.queries_per_kv)),
          "attention: a query head without its KV head");
  require(layer >= 0 && layer < shape.layers, "attention: no such layer in the cache");
  for (const StepSequence& sequence : step_.sequences) {
    require(sequence.slot >= 0 && sequence.slot < shape.slots, "attention: no such slot in the cache");
    require(sequence.first_position + sequence.count <= shape.positions, "attention: a position beyond the cache");
  }
  return own_cache;
}

void CpuBackend::append(Activations qkv, const HeadLayout& heads, const CpuKvCache& cache, int64_t layer,
                        int64_t token) const {
  const int64_t half = heads.rotary_dims / 2;
  const int64_t dims = heads.head_dim;
  float* row = qkv.floats() + token * qkv.stride;
  for (int64_t head = 0; head < heads.query_heads.size() + heads.kv_heads.size(); ++head) {
    rotate_head(row + head * dims, cosines_.data() + token * half, sines_.data() + token * half, half);
  }
  const Token& place = tokens_[token];
  const int64_t block = place.position / kKeyBlock;
  const int64_t step = cache.block_positions(block);
  for (int64_t head = 0; head < heads.kv_heads.size(); ++head) {
    const float* key = row + heads.query_columns() + head * dims;
    const float* value = key + heads.kv_columns();
    float* keys = cache.keys(layer, place.slot, head) + block * kKeyBlock * dims + place.position % kKeyBlock;
    for (int64_t dim = 0; dim < dims; ++dim) keys[dim * step] = key[dim];
    std::copy(value, value + dims, cache.values(layer, place.slot, head) + place.position * dims);
  }
}

void CpuBackend::append_and_attend(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer,
                                   Activations out) {
  const CpuKvCache& own_cache = checked_cache(qkv, heads, cache, layer);
  check_view(out, "attention: out is not a view");
  require(out.rows == qkv.rows && out.columns == heads.query_columns(), "attention: out's shape");
  require(heads.rotary_dims >= 0 && heads.rotary_dims <= heads.head_dim, "attention: rotary_dims");
  require(heads.rotary_dims == 2 * std::ssize(step_.inverse_frequencies),
          "attention: rotary_dims is not twice the step's frequencies");
  for_rows(qkv.rows, qkv.columns, [&](Range rows) {
    for (int64_t token = rows.begin; token < rows.end; ++token) append(qkv, heads, own_cache, layer, token);
  });
  attention_.run({qkv, &heads, &own_cache, layer, step_.sequences, out}, team_);
}

void CpuBackend::select_rows(Activations x, Activations out) {
  const std::span<const int32_t> rows = step_.selected_rows;
  check_view(x, "select_rows: x is not a view");
  check_view(out, "select_rows: out is not a view");
  require(out.rows == std::ssize(rows) && out.columns == x.columns, "select_rows: out's shape");
  for (int64_t i = 0; i < out.rows; ++i) {
    require(rows[i] >= 0 && rows[i] < x.rows, "select_rows: no such row");
    std::memmove(out.floats() + i * out.stride, x.floats() + rows[i] * x.stride,
                 static_cast<size_t>(x.columns) * sizeof(float));
  }
}

int64_t CpuBackend::top_candidates(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                                   std::span<Candidate> out) {
  check_view(logits, "top_candidates: logits are not a view");
  require(row >= 0 && row < logits.rows, "top_candidates: no such row");
  require(valid_columns >= 0 && valid_columns <= logits.columns, "top_candidates: more valid columns than columns");
  const int64_t count = std::min<int64_t>(std::ssize(out), valid_columns);
  if (count == 0) return 0;
  const float* values = logits.floats() + row * logits.stride;
  if (count == 1) {
    const int64_t column = largest(values, valid_columns);
    out[0] = {logit_rank(values[column]), static_cast<int32_t>(first_id + column)};
    return 1;
  }
  // A heap of the best so far, the worst of them on top.
  const auto begin = out.begin();
  const auto end = begin + count;
  for (int64_t column = 0; column < count; ++column) {
    out[column] = {logit_rank(values[column]), static_cast<int32_t>(first_id + column)};
  }
  std::make_heap(begin, end, better);
  for (int64_t column = first_above(values, count, valid_columns, out[0].logit); column < valid_columns;
       column = first_above(values, column + 1, valid_columns, out[0].logit)) {
    std::pop_heap(begin, end, better);
    *(end - 1) = {logit_rank(values[column]), static_cast<int32_t>(first_id + column)};
    std::push_heap(begin, end, better);
  }
  std::sort_heap(begin, end, better);
  return count;
}

uint64_t CpuBackend::read_all(std::span<const Matrix* const> matrices, const KvCache* cache, const KvPart& kv) {
  const CpuKvCache* own_cache = cache == nullptr ? nullptr : &own<CpuKvCache>(*cache);
  require(kv.positions >= 0 && kv.slots >= 0, "read_all: a negative part of the cache");
  require(cache == nullptr || (kv.positions <= cache->shape().positions && kv.slots <= cache->shape().slots),
          "read_all: more than the cache has");
  for (const Matrix* matrix : matrices) own<PackedMatrix>(*matrix);
  std::atomic<uint64_t> sum{0};
  team_.run([&](int member) {
    uint64_t mine = 0;
    const auto read = [&](const std::byte* data, int64_t bytes) {
      const Range words = even_share(bytes / 8, member, team_.size());
      const int64_t end = member + 1 == team_.size() ? bytes : words.end * 8;
      mine += checksum({data + words.begin * 8, static_cast<size_t>(end - words.begin * 8)});
    };
    for (const Matrix* matrix : matrices) {
      for (const PackedPart& part : static_cast<const PackedMatrix*>(matrix)->parts()) {
        read(part.values, part.rows * part.value_row_bytes);
        read(part.scales, part.rows * part.scale_row_bytes);
      }
    }
    if (own_cache != nullptr) {
      const KvShape& shape = own_cache->shape();
      const int64_t bytes = kv.positions * shape.head_dim * static_cast<int64_t>(sizeof(float));
      for (int64_t i = 0; i < shape.layers * shape.slots * shape.kv_heads; ++i) {
        if (i / shape.kv_heads % shape.slots >= kv.slots) continue;
        // consecutive heads lie one after another
        const int64_t offset = i * shape.positions * shape.head_dim;
        read(reinterpret_cast<const std::byte*>(own_cache->keys(0, 0, 0) + offset), bytes);
        read(reinterpret_cast<const std::byte*>(own_cache->values(0, 0, 0) + offset), bytes);
      }
    }
    sum.fetch_add(mine, std::memory_order_relaxed);
  });
  return sum.load();
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace shardscope::kernels
