// NCCL's data types and reductions: names, sizes, and sums over ranks in the orders and roundings of
// NcclOptions::reduction.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "tests/emulation/emulation.hpp"

namespace shardscope::emulation::nccl {

/// "ncclFloat16"; "data type 99" is no type.
const char* type_name(ncclDataType_t type);
const char* reduction_name(ncclRedOp_t reduction);
/// 0: no such type.
int64_t type_bytes(ncclDataType_t type);
/// False for the 8-bit floating-point types, which are only moved here.
bool can_reduce(ncclDataType_t type);

/// What to reduce. All ranks have to give the same but for pointers.
struct Sum {
  ncclDataType_t type{};
  ncclRedOp_t reduction{};
  Reduction order{};
  int ranks = 0;
  int64_t first = 0;  // index of the first element in the whole operation
  int64_t all = 0;    // elements of the whole operation
};

/// Reduces `count` elements of each rank. inputs [ranks]; out may be one of them.
void reduce(const Sum& sum, const std::byte* const* inputs, int64_t count, std::byte* out);

}  // namespace shardscope::emulation::nccl
