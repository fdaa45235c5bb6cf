// The seam between the model and a device: owned memory and the operations of a decoder layer. The model is written
// once against this interface; cpu/ implements it. Everything is enqueued in order; only host_logits, top_candidates
// and synchronize wait. Nothing here allocates except the make_* and load_* calls. One thread drives a backend.
// It knows tensors and tokens' places; it leaves models, ranks and files to others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/range.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::kernels {

/// Activations [rows, columns] in device memory, fp32, row-major, rows `stride` elements apart. A view; owns nothing.
struct Activations {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  Activations first_rows(int64_t count) const { return {data, count, columns, stride}; }
  Activations column_range(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
};

/// Owns device memory for activations, zero-filled at birth. Move-only; must not outlive its backend.
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

/// Keys (already rotated) and values of every layer and slot, fp32 on the CPU.
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

/// One forward pass over the tokens of several sequences, sequence after sequence. Views; kept until the next
/// begin_step.
struct Step {
  std::span<const int32_t> token_ids;          // [tokens]
  std::span<const StepSequence> sequences;     // counts sum to tokens
  std::span<const float> inverse_frequencies;  // [rotary_dims / 2], angle = position * inverse_frequencies[i]
  float rotary_scale = 1;                      // multiplies cos and sin
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

class Backend {
 public:
  virtual ~Backend() = default;
  /// One line for people: kind, instruction set or device, threads.
  virtual std::string description() const = 0;

  virtual std::unique_ptr<ActivationBuffer> make_activations(int64_t rows, int64_t columns) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) = 0;
  virtual std::unique_ptr<Vector> load_vector(std::span<const float> values) = 0;
  /// Reads the parts into resident memory, each in its own stored dtype (block formats stay quantised).
  virtual std::unique_ptr<Matrix> load_matrix(std::span<const MatrixPart> parts, const RowReader& read) = 0;

  /// Announces the tokens that the following operations work on; prepares rotary angles once for all layers.
  virtual void begin_step(const Step& step) = 0;

  /// out [tokens, columns]: row token_id - first_id of `table` in fp32; zeros where that is not a row of it.
  virtual void embed(const Matrix& table, int64_t first_id, Activations out) = 0;

  /// out = x / sqrt(mean(x^2) + epsilon) * weight, row by row.  Source: arXiv:1910.07467. out may alias x.
  virtual void rms_norm(Activations x, const Vector& weight, float epsilon, Activations out) = 0;

  /// residual += addend; then out = rms_norm(residual). One pass over each row.
  virtual void add_rms_norm(Activations residual, Activations addend, const Vector& weight, float epsilon,
                            Activations out) = 0;

  /// out [x.rows, w.rows] = x [x.rows, w.columns] * w^T (+ bias [w.rows] where not null).
  virtual void multiply(const Matrix& w, Activations x, const Vector* bias, Activations out) = 0;

  /// gate_up holds two parts of equal rows f: out [x.rows, f] = silu(x * gate^T + b_gate) * (x * up^T + b_up);
  /// bias [2 f] or null.
  virtual void gated_multiply(const Matrix& gate_up, Activations x, const Vector* bias, Activations out) = 0;

  /// qkv [tokens, query_columns + 2 * kv_columns]: rotates the query part in place, rotates keys, and appends keys and
  /// values of every token to the cache of `layer` at its slot and position.
  virtual void rope_append(Activations qkv, const HeadLayout& heads, KvCache& cache, int64_t layer) = 0;

  /// Causal attention of every token over its sequence's cache of `layer`, itself included; each KV head is read once
  /// for all its query heads. out [tokens, query_columns]. Rows of qkv as rope_append left them.
  virtual void attention(Activations qkv, const HeadLayout& heads, const KvCache& cache, int64_t layer,
                         Activations out) = 0;

  /// out row i = x row rows[i]: picks the positions whose logits are wanted.
  virtual void select_rows(Activations x, std::span<const int32_t> rows, Activations out) = 0;

  /// The k largest of logits[row], descending, ties to the smaller column; token_id = first_id + column. Columns at or
  /// beyond `valid_columns` are never chosen. Fills min(k, valid_columns) entries and returns that count. Waits.
  virtual int64_t top_candidates(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                                 std::span<Candidate> out) = 0;

  /// Host-visible, writable logits of one row. Waits.
  virtual std::span<float> host_logits(Activations logits, int64_t row) = 0;

  /// Reads every byte of the matrices and of the cache's part `kv` once, with all threads and
  /// several streams a thread, and returns a checksum (so that nothing is optimised away). For bandwidth measurement.
  virtual uint64_t read_all(std::span<const Matrix* const> matrices, const KvCache* cache, const KvPart& kv) = 0;

  virtual void synchronize() = 0;
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
