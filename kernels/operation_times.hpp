// When the operations of a step ran, for an instrument: what a backend notes of its own and of collectives in its
// stream, and on a backend in the host's memory the clock that notes it. Nothing is noted unless it is asked for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace shardscope::kernels {

/// What an operation of a step does.
enum class Operation : uint8_t {
  kEmbedding,   // looks the tokens' rows up
  kNorm,        // a norm that is not fused with a product or a sum
  kProduct,     // of weights, but for the head's; with what is fused to it
  kAttention,   // rotary, append to the KV cache, attention
  kRows,        // picks rows
  kHead,        // the product of the LM head
  kCandidates,  // the best of each row of logits
  kSum,         // an all-reduce over the ranks; with what is fused to it
  kExchange,    // of candidates between the ranks
};
inline constexpr std::array kOperations = {Operation::kEmbedding,  Operation::kNorm, Operation::kProduct,
                                           Operation::kAttention,  Operation::kRows, Operation::kHead,
                                           Operation::kCandidates, Operation::kSum,  Operation::kExchange};

/// Whether it waits for other ranks.
constexpr bool is_collective(Operation operation) {
  return operation == Operation::kSum || operation == Operation::kExchange;
}

/// On the clock of the device, or of the host for a backend in its memory.
struct OperationTimes {
  Operation operation = Operation::kProduct;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t arrived_ns = -1;  // of a collective that knows it: when the last rank had come; else -1
};

/// Notes operations by the host's steady clock, which the ranks of one host share. Allocates only where a step has more
/// operations than any before it.
class HostOperationTimes {
 public:
  void note(bool on) { on_ = on; }
  void clear() { times_.clear(); }
  void begin(Operation operation);
  /// What ran of the open operation so far was `first`; the rest is what it was opened as.
  void divide(Operation first);
  void end();
  std::span<const OperationTimes> times() const { return times_; }

 private:
  bool on_ = false;
  bool open_ = false;
  std::vector<OperationTimes> times_;
};

}  // namespace shardscope::kernels
