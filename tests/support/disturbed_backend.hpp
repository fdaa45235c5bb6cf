// A backend that does what another one does, and wastes time where a test says: busy, not asleep, so that the injected
// time is known to microseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/backend.hpp"

namespace shardscope::test {

/// Spins for so long; what it really took, in ns.
inline int64_t spin(std::chrono::nanoseconds time) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  while (now - start < time) now = Clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count();
}

class DisturbedBackend final : public kernels::Backend {
 public:
  explicit DisturbedBackend(kernels::Backend& inner) : inner_(inner) {}

  std::function<void(kernels::Operation)> before;  // an operation begins: time between operations
  std::function<void(kernels::Operation)> within;  // before an operation ends: time of its own

  void begin_operation(kernels::Operation operation) override {
    open_ = operation;
    if (before) before(operation);
    inner_.begin_operation(operation);
  }
  void end_operation() override {
    if (within) within(open_);
    inner_.end_operation();
  }

  std::string description() const override { return inner_.description(); }
  std::unique_ptr<kernels::ActivationBuffer> make_activations(int64_t rows, int64_t columns) override {
    return inner_.make_activations(rows, columns);
  }
  std::unique_ptr<kernels::ActivationBuffer> make_logits(int64_t rows, int64_t columns) override {
    return inner_.make_logits(rows, columns);
  }
  std::unique_ptr<kernels::KvCache> make_kv_cache(const kernels::KvShape& shape) override {
    return inner_.make_kv_cache(shape);
  }
  void expect_weights(const kernels::ExpectedWeights& weights) override { inner_.expect_weights(weights); }
  std::unique_ptr<kernels::Vector> load_vector(std::span<const float> values) override {
    return inner_.load_vector(values);
  }
  std::unique_ptr<kernels::Matrix> load_matrix(std::span<const kernels::MatrixPart> parts,
                                               const kernels::RowReader& read) override {
    return inner_.load_matrix(parts, read);
  }
  kernels::Precision precision() const override { return inner_.precision(); }
  std::unique_ptr<kernels::StepRecordings> make_recordings(int64_t most_tokens) override {
    return inner_.make_recordings(most_tokens);
  }
  int64_t padded_tokens(int64_t tokens, bool decodes) const override { return inner_.padded_tokens(tokens, decodes); }
  void run_step(const kernels::Step& step, kernels::StepRecordings& recordings,
                const std::function<void()>& enqueue) override {
    inner_.run_step(step, recordings, enqueue);
  }
  void embed(const kernels::Matrix& table, int64_t first_id, kernels::Activations out) override {
    inner_.embed(table, first_id, out);
  }
  void multiply(const kernels::Matrix& w, kernels::Activations x, const kernels::Vector* bias,
                kernels::Activations out) override {
    inner_.multiply(w, x, bias, out);
  }
  void multiply(const kernels::Matrix& w, const kernels::NormedInput& x, const kernels::Vector* bias,
                kernels::Activations out) override {
    inner_.multiply(w, x, bias, out);
  }
  void gated_multiply(const kernels::Matrix& gate_up, kernels::Activations x, const kernels::Vector* bias,
                      kernels::Activations out) override {
    inner_.gated_multiply(gate_up, x, bias, out);
  }
  void gated_multiply(const kernels::Matrix& gate_up, const kernels::NormedInput& x, const kernels::Vector* bias,
                      kernels::Activations out) override {
    inner_.gated_multiply(gate_up, x, bias, out);
  }
  void append_and_attend(kernels::Activations qkv, const kernels::HeadLayout& heads, kernels::KvCache& cache,
                         int64_t layer, kernels::Activations out) override {
    inner_.append_and_attend(qkv, heads, cache, layer, out);
  }
  void select_rows(kernels::Activations x, kernels::Activations out) override { inner_.select_rows(x, out); }
  void prepare_candidates(kernels::Activations logits, int64_t valid_columns, int64_t first_id) override {
    inner_.prepare_candidates(logits, valid_columns, first_id);
  }
  bool best_of_group(const kernels::Activations& logits, std::span<kernels::Candidate> out) override {
    return inner_.best_of_group(logits, out);
  }
  int64_t top_candidates(kernels::Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                         std::span<kernels::Candidate> out) override {
    return inner_.top_candidates(logits, row, valid_columns, first_id, out);
  }
  kernels::Candidate draw(kernels::Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                          const kernels::Noise& noise) override {
    return inner_.draw(logits, row, valid_columns, first_id, noise);
  }
  std::span<float> host_logits(kernels::Activations logits, int64_t row) override {
    return inner_.host_logits(logits, row);
  }
  uint64_t read_all(std::span<const kernels::Matrix* const> matrices, const kernels::KvCache* cache,
                    const kernels::KvPart& kv) override {
    return inner_.read_all(matrices, cache, kv);
  }
  void synchronize() override { inner_.synchronize(); }
  bool note_times(bool on) override { return inner_.note_times(on); }
  std::span<const kernels::OperationTimes> step_times() override { return inner_.step_times(); }

 private:
  kernels::Backend& inner_;
  kernels::Operation open_ = kernels::Operation::kProduct;
};

}  // namespace shardscope::test
