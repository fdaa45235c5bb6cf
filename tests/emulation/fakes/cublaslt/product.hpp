// The arithmetic of the cuBLASLt stand-in: sums in fp32, in the order that the algorithm says, on a host's core.
#pragma once

#include <cstddef>

#include "tests/emulation/fakes/cublaslt/problem.hpp"

namespace shardscope::emulation::cublaslt {

/// Where the matrices of a product lie.
struct Operands {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  const std::byte* c = nullptr;  // not read if beta is 0
  std::byte* d = nullptr;
  std::byte* workspace = nullptr;  // of algorithm.workspace_bytes; what it holds afterwards is of no use
  float alpha = 1;
  float beta = 0;
};

/// D = alpha op(A) op(B) + beta C. The same bits for the same problem, algorithm and contents, always.
void multiply(const Problem& problem, const Algorithm& algorithm, const Operands& operands);

}  // namespace shardscope::emulation::cublaslt
