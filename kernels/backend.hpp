// The seam between the model and a device: owned memory and the operations of a decoder layer. The model is written
// once against this interface; cpu/ and cuda/ implement it. Everything is enqueued in order; only host_logits,
// top_candidates, read_all and synchronize wait. Nothing here allocates except expect_weights, the make_* and load_*
// calls, and the first steps of a shape. One thread drives a backend. It knows tensors and tokens' places; it leaves
// models, ranks and files to others.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/range.hpp"
#include "kernels/dtype.hpp"
#include "kernels/operation_times.hpp"

namespace shardscope::kernels {

/// Element types of what is not weights.
struct Precision {
  DType activations = DType::kF32;  // fp32, fp16 or bf16; logits are fp32 always
  DType kv = DType::kF32;           // of the KV cache: fp32, fp16 or bf16
  bool operator==(const Precision&) const = default;
};

/// Activations [rows, columns] in device memory, row-major, rows `stride` elements apart. A view; owns nothing.
struct Activations {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  DType dtype = DType::kF32;  // a plain one

  /// Where they are fp32 in the host's memory: on the CPU.
  float* floats() const { return static_cast<float*>(data); }
  Activations first_rows(int64_t count) const { return {data, count, columns, stride, dtype}; }
  Activations column_range(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + begin * facts(dtype).block_bytes, rows, count, stride, dtype};
  }
};

/// Owns memory for activations, zero-filled at birth. Move-only; must not outlive its backend.
class ActivationBuffer {
 public:
  virtual ~ActivationBuffer() = default;
  virtual Activations view() const = 0;
  virtual int64_t bytes() const = 0;
};

/// A resident weight matrix [rows, columns]: one or several stacked tensors with equal columns (q, k, v; gate, up).
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t columns() const = 0;
  virtual int64_t bytes() const = 0;  // what one product reads: the stored bytes of all parts, padding included
};

/// A resident fp32 vector (norm weights, biases).
class Vector {
 public:
  virtual ~Vector() = default;
  virtual int64_t size() const = 0;
};

/// One tensor of a stacked matrix, as stored: `rows` rows of row_bytes(dtype, columns) bytes.
struct MatrixPart {
  std::string name;  // for errors
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// Fills `out` with rows `rows` of part `part`, back to back as stored. Called in order, in chunks of bounded size.
using RowReader = std::function<void(int64_t part, Range rows, std::span<std::byte> out)>;

/// What load_matrix and load_vector will be asked for.
struct ExpectedWeights {
  std::vector<std::vector<MatrixPart>> matrices;  // the parts of each
  std::vector<int64_t> vectors;                   // the size of each, in floats
};

/// Which heads of the model a rank holds. Query head h uses KV head h / queries_per_kv (global numbers), so a rank's
/// groups may be ragged at both ends.
struct HeadLayout {
  int64_t head_dim = 0;
  Range query_heads;  // global
  Range kv_heads;     // global; covers every KV head that query_heads need
  int64_t queries_per_kv = 1;
  float scale = 0;          // of the scores, usually 1 / sqrt(head_dim)
  int64_t rotary_dims = 0;  // the first dims of a head that are rotated, pairs (i, i + rotary_dims / 2)

  int64_t query_columns() const { return query_heads.size() * head_dim; }
  int64_t kv_columns() const { return kv_heads.size() * head_dim; }
};

struct KvShape {
  int64_t layers = 0;
  int64_t slots = 0;      // sequences held at once
  int64_t kv_heads = 0;   // of this rank
  int64_t positions = 0;  // longest sequence
  int64_t head_dim = 0;
};

/// Keys (already rotated) and values of every layer and slot.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvShape& shape() const = 0;
  virtual int64_t bytes() const = 0;
  virtual int64_t bytes_per_position() const = 0;  // keys and values of all layers, one slot
};

/// The tokens of one sequence within a step: `count` tokens at positions first_position, first_position + 1, …
struct StepSequence {
  int64_t slot = 0;
  int64_t first_position = 0;
  int64_t count = 0;
};

/// One forward pass over the tokens of several sequences, sequence after sequence. Views; kept until the end of
/// run_step.
struct Step {
  std::span<const int32_t> token_ids;          // [tokens]
  std::span<const StepSequence> sequences;     // counts sum to tokens
  std::span<const float> inverse_frequencies;  // [rotary_dims / 2], angle = position * inverse_frequencies[i]; the same
                                               // in every step with the same recordings
  float rotary_scale = 1;                      // multiplies cos and sin
  std::span<const int32_t> selected_rows = {};  // the tokens that select_rows picks

  /// One token of every sequence, and every one selected: a step that replays what an earlier one recorded.
  bool decodes() const;
};

/// A root-mean-square norm in front of a product: s / sqrt(mean(s^2) + epsilon) * weight, row by row, where
/// s = residual + addend.  Source: arXiv:1910.07467.
struct NormedInput {
  Activations residual;
  const Activations* addend = nullptr;  // or null: s is the residual
  const Vector* weight = nullptr;
  float epsilon = 0;
  Activations sum;     // receives s where there is an addend; no memory of the residual or the addend
  Activations normed;  // receives the norm where the product is not fused with it; else its content is undefined
  bool ready = false;  // sum and normed hold that already: a collective filled them in
};

/// What a backend has recorded of steps, to replay it. Lives no longer than the buffers, caches, weights and
/// communicators that those steps used; one for each of their sets.
class StepRecordings {
 public:
  virtual ~StepRecordings() = default;
};

/// The first `positions` positions of the first `slots` slots of a cache, all layers and heads.
struct KvPart {
  int64_t slots = 0;
  int64_t positions = 0;
};

struct Candidate {
  float logit = 0;
  int32_t token_id = -1;
};

/// How a token is drawn from the whole vocabulary: the one with the largest (logit - reference) / temperature + Gumbel
/// noise of (key, token id), which draws from the softmax of logit / temperature.
struct Noise {
  uint64_t key = 0;
  double temperature = 1;
  float reference = 0;  // the largest logit of the vocabulary, so that a tiny temperature makes nothing infinite
  double lowest_score = -std::numeric_limits<double>::infinity();  // tokens with less, before the noise, are left out
};

/// Gumbel noise -ln(-ln u) with u uniform in (0, 1): argmax(score + noise) draws from softmax(score).
double gumbel(uint64_t key, int32_t token_id);

/// The best of row [vocabulary slice] by its noisy score, NaN as +inf; `logit` is that score, token_id -1 if none is.
Candidate noisiest(std::span<const float> row, int64_t first_id, const Noise& noise);

class Backend {
 public:
  virtual ~Backend() = default;
  /// One line for people: kind, instruction set or device, threads.
  virtual std::string description() const = 0;

  virtual std::unique_ptr<ActivationBuffer> make_activations(int64_t rows, int64_t columns) = 0;
  virtual std::unique_ptr<ActivationBuffer> make_logits(int64_t rows, int64_t columns) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) = 0;
  /// Announces the weights of one model, before the first of them is loaded: a backend may keep them in one allocation,
  /// matrices in order of loading. What was not announced, or comes beyond it, is loaded all the same.
  virtual void expect_weights(const ExpectedWeights& /*weights*/) {}
  virtual std::unique_ptr<Vector> load_vector(std::span<const float> values) = 0;
  /// Reads the parts into resident memory, each in its own stored dtype (block formats stay quantised).
  virtual std::unique_ptr<Matrix> load_matrix(std::span<const MatrixPart> parts, const RowReader& read) = 0;

  virtual Precision precision() const = 0;
  /// For steps of at most so many tokens.
  virtual std::unique_ptr<StepRecordings> make_recordings(int64_t most_tokens) = 0;

  /// How many rows the operations of a step with so many tokens work on: `tokens`, or more where the backend rounds a
  /// step that decodes up to one that it records. Buffers of a decoder hold padded_tokens(its most tokens, …) rows.
  virtual int64_t padded_tokens(int64_t tokens, bool decodes) const = 0;

  /// Announces the tokens that the operations in `enqueue` work on, and has them enqueued: by calling it, or by
  /// replaying what it enqueued, through this backend and communicators on its stream, in an earlier step with the same
  /// recordings, as many padded tokens and step.decodes().
  virtual void run_step(const Step& step, StepRecordings& recordings, const std::function<void()>& enqueue) = 0;

  /// out [rows, columns]: row token_id - first_id of `table`; zeros where that is not a row of it, and for padding.
  virtual void embed(const Matrix& table, int64_t first_id, Activations out) = 0;

  /// out [x.rows, w.rows] = x [x.rows, w.columns] * w^T (+ bias [w.rows] where not null).
  virtual void multiply(const Matrix& w, Activations x, const Vector* bias, Activations out) = 0;
  virtual void multiply(const Matrix& w, const NormedInput& x, const Vector* bias, Activations out) = 0;

  /// gate_up holds two parts of equal rows f: out [x.rows, f] = silu(x * gate^T + b_gate) * (x * up^T + b_up);
  /// bias [2 f] or null.
  virtual void gated_multiply(const Matrix& gate_up, Activations x, const Vector* bias, Activations out) = 0;
  virtual void gated_multiply(const Matrix& gate_up, const NormedInput& x, const Vector* bias, Activations out) = 0;

  /// qkv [rows, query_columns + 2 * kv_columns]: rotates queries and keys, appends keys and values of every token to
  /// the cache of `layer` at its slot and position, and attends: causal attention of every token over its sequence's
  /// cache, itself included; each KV head is read once for all its query heads. out [rows, query_columns]. What qkv
  /// holds afterwards is undefined.
  virtual void append_and_attend(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer,
                                 Activations out) = 0;

  /// out row i = x row selected_rows[i] of the step.
  virtual void select_rows(Activations x, Activations out) = 0;

  /// Announces that top_candidates will be asked for the best of each row of these logits, with these arguments: the
  /// last operation of a step.
  virtual void prepare_candidates(Activations logits, int64_t valid_columns, int64_t first_id) = 0;

  /// The best of each of the first out.size() rows over all ranks of the group, where a communicator on the devices
  /// exchanged what prepare_candidates prepared; token_id -1 where no rank has any. False: none did. Waits.
  virtual bool best_of_group(const Activations& /*logits*/, std::span<Candidate> /*out*/) { return false; }

  /// The k largest of logits[row], descending, ties to the smaller column, NaN as +inf; token_id = first_id + column.
  /// None from `valid_columns` on is ever chosen. Fills min(k, valid_columns) entries and returns that count. Waits.
  virtual int64_t top_candidates(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                                 std::span<Candidate> out) = 0;

  /// The noisiest of the first valid_columns of logits[row]. Waits.
  virtual Candidate draw(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                         const Noise& noise) = 0;

  /// Host-visible, writable logits of one row; what is written is what top_candidates and draw then see. Waits. Valid
  /// until the next step.
  virtual std::span<float> host_logits(Activations logits, int64_t row) = 0;

  /// Reads every byte of the matrices and of the cache's part `kv` once, with all threads and
  /// several streams a thread, and returns a checksum (so that nothing is optimised away). For bandwidth measurement.
  virtual uint64_t read_all(std::span<const Matrix* const> matrices, const KvCache* cache, const KvPart& kv) = 0;

  virtual void synchronize() = 0;

  // Times of operations. begin_operation and end_operation stand around everything that belongs to one operation of a
  // step, and around what follows the step on the host (sampling): they cost nothing unless times are noted.

  /// Whether the steps from now on note when each of their operations began and ended. Recordings of steps that do are
  /// others than of those that do not. False: this backend cannot.
  virtual bool note_times(bool /*on*/) { return false; }
  virtual void begin_operation(Operation /*operation*/) {}
  virtual void end_operation() {}
  /// Of the operations since the latest run_step began, in the order in which they were enqueued; empty where nothing
  /// was noted. Waits. Valid until the next step.
  virtual std::span<const OperationTimes> step_times() { return {}; }
  /// How far the clock of those times goes on at once: measured by the first note_times(true), where it may be more
  /// than a nanosecond.
  virtual int64_t time_step_ns() const { return 1; }
};

/// An operation, from here to the end of the scope.
class TimedOperation {
 public:
  TimedOperation(Backend& backend, Operation operation) : backend_(backend) { backend_.begin_operation(operation); }
  TimedOperation(const TimedOperation&) = delete;
  TimedOperation& operator=(const TimedOperation&) = delete;
  ~TimedOperation() { backend_.end_operation(); }

 private:
  Backend& backend_;
};

enum class ActivationMode : uint8_t { kAuto, kF32, kInt8 };

struct CpuBackendOptions {
  int threads = 1;
  std::vector<int> cores;                              // one per thread, or empty: threads are not pinned
  ActivationMode activations = ActivationMode::kAuto;  // inputs of products on block-quantised weights
};

/// The CPU backend. Threads live as long as it does; they are created here, after the caller has set its core mask.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace shardscope::kernels
