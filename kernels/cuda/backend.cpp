#include "kernels/cuda/backend.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/begin_step.hpp"
#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/logits.hpp"
#include "kernels/cuda/prefill_attention.hpp"
#include "kernels/cuda/products.hpp"
#include "kernels/cuda/recordings.hpp"
#include "kernels/cuda/resident.hpp"
#include "kernels/cuda/rope_append.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/step_timer.hpp"
#include "kernels/cuda/weight_memory.hpp"

namespace shardscope::cuda {

using kernels::Activations;
using kernels::HeadLayout;
using kernels::KvCache;
using kernels::Matrix;
using kernels::Vector;

namespace {

/// Workspaces of decode_attention, zero-filled once for each shape.
class AttentionWorkspaces {
 public:
  struct Entry {
    DecodeAttentionShape shape;
    DecodeAttentionPlan plan;
    DeviceBuffer memory;
  };

  const Entry& of(Device& device, const DecodeAttentionShape& shape) {
    for (const Entry& entry : entries_) {
      if (entry.shape == shape) return entry;
    }
    const DecodeAttentionPlan plan = plan_decode_attention(shape, device.multiprocessors());
    Entry entry{shape, plan, DeviceBuffer(plan.workspace_bytes, "attention", device.where())};
    if (plan.workspace_bytes > 0) {
      device.check(
          cudaMemsetAsync(entry.memory.data(), 0, static_cast<size_t>(plan.workspace_bytes), device.lend_stream()),
          "cudaMemsetAsync");
    }
    entries_.push_back(std::move(entry));
    return entries_.back();
  }

 private:
  std::vector<Entry> entries_;
};

/// The norm, unless a collective has made it.
ProductInput input_of(const kernels::NormedInput& x) {
  return x.ready ? ProductInput{x.normed} : ProductInput{x.residual, &x};
}

class Implementation final : public CudaBackend {
 public:
  explicit Implementation(const BackendOptions& options)
      : options_(options),
        device_(options),
        weight_memory_(device_),
        uploader_(device_, weight_memory_, options.upload_bytes),
        timer_(device_),
        products_(device_, timer_, options.scratch_bytes),
        logits_(device_, timer_),
        step_done_(make_event(device_.where())),
        checksum_(static_cast<int64_t>(sizeof(unsigned long long)), "a checksum", device_.where()),
        checksum_on_host_(static_cast<int64_t>(sizeof(unsigned long long)), "a checksum", device_.where()) {}

  std::string description() const override {
    return fmt::format("cuda, {} (device {}), {} activations, {} KV cache, {}", device_.name(), device_.ordinal(),
                       kernels::facts(options_.precision.activations).name, kernels::facts(options_.precision.kv).name,
                       options_.graphs ? "decode steps as graphs" : "no graphs");
  }
  cudaStream_t lend_stream() override { return device_.lend_stream(); }
  cudaStream_t stream() override { return device_.stream(); }
  bool programmatic() override { return device_.programmatic(); }
  OperationStamps* stamps() override { return timer_.stamps(); }
  int device() const override { return device_.ordinal(); }
  void watch(std::function<void()> check, std::function<void()> abort) override {
    device_.watch(std::move(check), std::move(abort));
  }
  void forget_watches() override { device_.forget_watches(); }
  void exchange_candidates_by(CandidatesExchange exchange) override { logits_.exchange_by(std::move(exchange)); }

  kernels::Precision precision() const override { return options_.precision; }
  std::unique_ptr<kernels::ActivationBuffer> make_activations(int64_t rows, int64_t columns) override {
    return std::make_unique<CudaActivations>(device_, rows, columns, options_.precision.activations);
  }
  std::unique_ptr<kernels::ActivationBuffer> make_logits(int64_t rows, int64_t columns) override {
    return std::make_unique<CudaActivations>(device_, rows, columns, kernels::DType::kF32);
  }
  std::unique_ptr<KvCache> make_kv_cache(const kernels::KvShape& shape) override {
    return std::make_unique<CudaKvCache>(device_, shape, options_.precision.kv);
  }
  void expect_weights(const kernels::ExpectedWeights& weights) override {
    if (options_.weights_together) weight_memory_.expect(weights);
  }
  std::unique_ptr<Vector> load_vector(std::span<const float> values) override { return uploader_.vector(values); }
  std::unique_ptr<Matrix> load_matrix(std::span<const kernels::MatrixPart> parts,
                                      const kernels::RowReader& read) override {
    return uploader_.matrix(parts, read);
  }
  std::unique_ptr<kernels::StepRecordings> make_recordings(int64_t most_tokens) override {
    if (most_tokens > kMostTokens) {
      throw UserError(fmt::format("{} sequences at once", most_tokens), "--batch",
                      fmt::format("the cuda backend takes {} at most", kMostTokens));
    }
    return std::make_unique<CudaRecordings>(device_, timer_, most_tokens);
  }
  int64_t padded_tokens(int64_t tokens, bool decodes) const override {
    return decodes ? std::max(tokens, bucket_of(tokens)) : tokens;
  }

  void run_step(const kernels::Step& step, kernels::StepRecordings& recordings,
                const std::function<void()>& enqueue) override;
  void embed(const Matrix& table, int64_t first_id, Activations out) override;
  void multiply(const Matrix& w, Activations x, const Vector* bias, Activations out) override {
    products_.multiply(own<const CudaMatrix>(w), {x}, bias, out);
  }
  void multiply(const Matrix& w, const kernels::NormedInput& x, const Vector* bias, Activations out) override {
    products_.multiply(own<const CudaMatrix>(w), input_of(x), bias, out);
  }
  void gated_multiply(const Matrix& gate_up, Activations x, const Vector* bias, Activations out) override {
    products_.gated_multiply(own<const CudaMatrix>(gate_up), {x}, bias, out);
  }
  void gated_multiply(const Matrix& gate_up, const kernels::NormedInput& x, const Vector* bias,
                      Activations out) override {
    products_.gated_multiply(own<const CudaMatrix>(gate_up), input_of(x), bias, out);
  }
  void append_and_attend(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer,
                         Activations out) override;
  void select_rows(Activations x, Activations out) override;
  void prepare_candidates(Activations logits, int64_t valid_columns, int64_t first_id) override {
    logits_.prepare(*recordings_, logits, valid_columns, first_id);
  }
  bool best_of_group(const Activations& logits, std::span<kernels::Candidate> out) override {
    require(recordings_ != nullptr, "best_of_group: no step has run");
    return logits_.best_of_group(*recordings_, logits, out);
  }
  int64_t top_candidates(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                         std::span<kernels::Candidate> out) override {
    require(recordings_ != nullptr, "top_candidates: no step has run");
    return logits_.top(*recordings_, logits, row, valid_columns, first_id, out);
  }
  kernels::Candidate draw(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                          const kernels::Noise& noise) override {
    return logits_.draw(logits, row, valid_columns, first_id, noise);
  }
  std::span<float> host_logits(Activations logits, int64_t row) override { return logits_.host_row(logits, row); }
  uint64_t read_all(std::span<const Matrix* const> matrices, const KvCache* cache, const kernels::KvPart& kv) override;
  void synchronize() override {
    device_.check(cudaEventRecord(step_done_.get(), device_.stream()), "cudaEventRecord");
    device_.wait(step_done_.get(), "the device's work");
  }
  bool note_times(bool on) override {
    timer_.note(on);
    return true;
  }
  void begin_operation(kernels::Operation operation) override { timer_.begin(operation); }
  void end_operation() override { timer_.end(); }
  std::span<const kernels::OperationTimes> step_times() override {
    if (timer_.operations().empty()) return {};
    device_.wait(step_done_.get(), "a step");
    return timer_.times();
  }
  int64_t time_step_ns() const override { return timer_.clock_step_ns(); }

 private:
  void check_attention(const Activations& qkv, const HeadLayout& heads, const CudaKvCache& cache,
                       const Activations& out);
  void decode(const Activations& qkv, const HeadLayout& heads, const KvView& kv, int64_t positions,
              const Activations& out);
  void prefill(const Activations& qkv, const HeadLayout& heads, const KvView& kv, const Activations& out);
  void read(const void* data, int64_t rows, int64_t row_bytes, int64_t stride_bytes);

  BackendOptions options_;
  Device device_;
  WeightMemory weight_memory_;
  Uploader uploader_;
  PlaneRanges weight_ranges_;
  StepTimer timer_;
  Products products_;
  Logits logits_;
  AttentionWorkspaces workspaces_;
  Event step_done_;
  DeviceBuffer checksum_;
  PinnedBuffer checksum_on_host_;
  CudaRecordings* recordings_ = nullptr;  // of the step that ran last
  StepView step_;
};

void Implementation::run_step(const kernels::Step& step, kernels::StepRecordings& recordings,
                              const std::function<void()>& enqueue) {
  recordings_ = &own<CudaRecordings>(recordings);
  const bool decodes = step.decodes();
  step_ = recordings_->upload(step, padded_tokens(std::ssize(step.token_ids), decodes));
  const auto all = [&] {
    timer_.begin_step();
    recordings_->enqueue_angles(step_);
    enqueue();
    timer_.end_step();
  };
  try {
    recordings_->replay_or_record(step_.tokens, decodes && options_.graphs, std::ref(all));
  } catch (...) {
    device_.abort_watched();
    throw;
  }
  device_.check(cudaEventRecord(step_done_.get(), device_.stream()), "cudaEventRecord");
  logits_.begin(step_done_.get());
}

void Implementation::embed(const Matrix& table, int64_t first_id, Activations out) {
  const auto& matrix = own<const CudaMatrix>(table);
  require(out.rows == step_.tokens && out.columns == table.columns(), "embed: out's shape");
  require(matrix.pieces().size() == 1, "embed: a table of several formats");
  device_.check(cuda::embed({.table = matrix.pieces().front().matrix,
                             .first_id = first_id,
                             .tokens = step_.tokens,
                             .ids = step_.ids,
                             .dtype = out.dtype,
                             .out = out.data,
                             .out_stride = out.stride,
                             .stamps = timer_.stamps(),
                             .programmatic = device_.programmatic()},
                            device_.stream()),
                "embed", [&] { return fmt::format("{} of [{}, {}]", step_.tokens, table.rows(), table.columns()); });
}

void Implementation::check_attention(const Activations& qkv, const HeadLayout& heads, const CudaKvCache& cache,
                                     const Activations& out) {
  require(qkv.rows == step_.tokens && out.rows == step_.tokens, "attention: not one row per token of the step");
  require(qkv.columns == heads.query_columns() + 2 * heads.kv_columns(), "attention: qkv's columns");
  require(out.columns == heads.query_columns(), "attention: out's columns");
  require(cache.shape().kv_heads == heads.kv_heads.size() && cache.shape().head_dim == heads.head_dim,
          "attention: the cache's heads");
  require(heads.rotary_dims >= 0 && heads.rotary_dims <= heads.head_dim, "attention: rotary_dims");
  std::optional<CacheLimits>& limits = recordings_->limits;
  if (!limits) limits = CacheLimits{cache.shape().slots, cache.shape().positions};
  limits->slots = std::min(limits->slots, cache.shape().slots);
  limits->positions = std::min(limits->positions, cache.shape().positions);
}

void Implementation::append_and_attend(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer,
                                       Activations out) {
  const auto& own_cache = own<CudaKvCache>(cache);
  check_attention(qkv, heads, own_cache, out);
  if (!recordings_->recording()) device_.brake();  // once a layer
  if (heads.query_heads.empty()) return;
  const KvView kv = own_cache.layer(layer);
  if (step_.decodes) {
    decode(qkv, heads, kv, own_cache.shape().positions, out);
  } else {
    timer_.around([&] { prefill(qkv, heads, kv, out); });
  }
}

void Implementation::decode(const Activations& qkv, const HeadLayout& heads, const KvView& kv, int64_t positions,
                            const Activations& out) {
  const AttentionWorkspaces::Entry& workspace = workspaces_.of(device_, {.kv_dtype = kv.dtype,
                                                                         .dtype = qkv.dtype,
                                                                         .head_dim = heads.head_dim,
                                                                         .rotary_dims = heads.rotary_dims,
                                                                         .queries_per_kv = heads.queries_per_kv,
                                                                         .first_query_head = heads.query_heads.begin,
                                                                         .query_heads = heads.query_heads.size(),
                                                                         .first_kv_head = heads.kv_heads.begin,
                                                                         .kv_heads = heads.kv_heads.size(),
                                                                         .sequences = step_.sequences,
                                                                         .max_length = positions});
  device_.check(decode_attention({.shape = workspace.shape,
                                  .plan = workspace.plan,
                                  .scale = heads.scale,
                                  .qkv = qkv.data,
                                  .qkv_stride = qkv.stride,
                                  .rotary = step_.rotary,
                                  .kv = kv,
                                  .lengths = step_.lengths,
                                  .slots = step_.slots,
                                  .out = out.data,
                                  .out_stride = out.stride,
                                  .workspace = workspace.memory.data(),
                                  .stamps = timer_.stamps(),
                                  .programmatic = device_.programmatic()},
                                 device_.stream()),
                "decode_attention", [&] {
                  return fmt::format("{} sequences, {} query heads of {}", step_.sequences, heads.query_heads.size(),
                                     heads.head_dim);
                });
}

void Implementation::prefill(const Activations& qkv, const HeadLayout& heads, const KvView& kv,
                             const Activations& out) {
  const auto shape = [&] {
    return fmt::format("{} tokens, {} query heads of {}", step_.tokens, heads.query_heads.size(), heads.head_dim);
  };
  device_.lend_stream();  // neither kernel is launched programmatically, nor the one after them
  device_.check(cuda::rope_append({.dtype = qkv.dtype,
                                   .tokens = step_.tokens,
                                   .query_heads = heads.query_heads.size(),
                                   .kv_heads = heads.kv_heads.size(),
                                   .head_dim = heads.head_dim,
                                   .rotary_dims = heads.rotary_dims,
                                   .qkv = qkv.data,
                                   .qkv_stride = qkv.stride,
                                   .rotary = step_.rotary,
                                   .positions = step_.positions,
                                   .slots = step_.slots,
                                   .kv = kv},
                                  device_.stream()),
                "rope_append", shape);
  device_.check(prefill_attention({.dtype = qkv.dtype,
                                   .head_dim = heads.head_dim,
                                   .queries_per_kv = heads.queries_per_kv,
                                   .first_query_head = heads.query_heads.begin,
                                   .query_heads = heads.query_heads.size(),
                                   .first_kv_head = heads.kv_heads.begin,
                                   .kv_heads = heads.kv_heads.size(),
                                   .sequences = step_.sequences,
                                   .max_count = step_.most_tokens,
                                   .scale = heads.scale,
                                   .q = qkv.data,
                                   .q_stride = qkv.stride,
                                   .kv = kv,
                                   .first_tokens = step_.first_tokens,
                                   .first_positions = step_.first_positions,
                                   .slots = step_.sequence_slots,
                                   .out = out.data,
                                   .out_stride = out.stride},
                                  device_.stream()),
                "prefill_attention", shape);
}

void Implementation::select_rows(Activations x, Activations out) {
  require(!step_.decodes, "select_rows: a step that decodes has every row selected");
  timer_.around([&] {
    device_.check(cuda::select_rows(rows_of(x), step_.selected_rows, rows_of(out), device_.lend_stream()),
                  "select_rows", [&] { return fmt::format("{} of {} rows", out.rows, x.rows); });
  });
}

void Implementation::read(const void* data, int64_t rows, int64_t row_bytes, int64_t stride_bytes) {
  if (rows == 0 || row_bytes == 0) return;
  device_.check(read_bytes({.data = data, .rows = rows, .row_bytes = row_bytes, .stride_bytes = stride_bytes},
                           checksum_.as<unsigned long long>(), device_.lend_stream()),
                "read_bytes", [&] { return memory_text(rows * row_bytes); });
}

uint64_t Implementation::read_all(std::span<const Matrix* const> matrices, const KvCache* cache,
                                  const kernels::KvPart& kv) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(unsigned long long));
  device_.check(cudaMemsetAsync(checksum_.data(), 0, kBytes, device_.lend_stream()), "cudaMemsetAsync");
  weight_ranges_.clear();
  for (const Matrix* matrix : matrices) {
    for (const CudaMatrix::Piece& piece : own<const CudaMatrix>(*matrix).pieces()) {
      weight_ranges_.add(piece.values);
      weight_ranges_.add(piece.scales);
    }
  }
  for (const PlaneRange& range : weight_ranges_.merged()) {
    constexpr int64_t kPiece = 16;
    const int64_t whole = range.bytes / kPiece * kPiece;  // its last few bytes are left out
    read(range.begin, 1, whole, whole);
  }
  if (cache != nullptr) {
    const auto& own_cache = own<const CudaKvCache>(*cache);
    const kernels::KvShape& shape = own_cache.shape();
    require(kv.positions >= 0 && kv.positions <= shape.positions && kv.slots >= 0 && kv.slots <= shape.slots,
            "read_all: more than the cache has");
    const int64_t element = kernels::facts(own_cache.dtype()).block_bytes;
    const int64_t head = shape.positions * shape.head_dim * element;
    const int64_t plane = shape.slots * shape.kv_heads * head;
    for (int64_t i = 0; i < 2 * shape.layers; ++i) {  // keys and values of each layer
      read(own_cache.data() + i * plane, kv.slots * shape.kv_heads, kv.positions * shape.head_dim * element, head);
    }
  }
  device_.check(cudaMemcpyAsync(checksum_on_host_.data(), checksum_.data(), kBytes, cudaMemcpyDeviceToHost,
                                device_.lend_stream()),
                "cudaMemcpyAsync");
  synchronize();
  return *checksum_on_host_.as<const unsigned long long>();
}

}  // namespace

std::unique_ptr<CudaBackend> make_backend(const BackendOptions& options) {
  return std::make_unique<Implementation>(options);
}

}  // namespace shardscope::cuda
