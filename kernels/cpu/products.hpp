// Products of resident matrices with activations: what the driver (products.cpp) and the kernels agree on. Activations
// are first rearranged ("prepared") into tiles of 1, 2, 4 or 8 tokens; a kernel multiplies some panels of 16 weight
// rows with one tile. Kernels know no threads, no bias and no output layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/thread_team.hpp"

namespace shardscope::kernels::cpu {

inline constexpr int64_t kMaxPanels = 4;  // of one kernel call: so many streams of weights
inline constexpr int64_t kMaxTileTokens = 8;
inline constexpr int64_t kTileWidths = 4;  // 1, 2, 4, 8 tokens
inline constexpr int64_t kDTypes = 6;

/// Panels of the same part, all with the same number of rows.
struct PanelGroup {
  std::array<const std::byte*, kMaxPanels> values;
  std::array<const std::byte*, kMaxPanels> scales;
};

/// out [panel][token of the tile][16] = weights * tile. lanes: rows of each panel; lanes beyond get garbage.
using TileFunction = void (*)(const PanelGroup& panels, int64_t columns, int64_t lanes, const std::byte* tile,
                              float* out);

struct TileKernel {
  int64_t panels = 0;  // of `wide`; `single` takes one
  TileFunction wide = nullptr;
  TileFunction single = nullptr;
};

/// One way to hold activations, with its kernels for the running CPU.
struct ProductKernels {
  int64_t tile_tokens = 0;    // the widest tile
  int64_t group_columns = 0;  // a tile takes group_bytes for each token and each so many columns
  int64_t group_bytes = 0;
  /// Writes row `row` [columns] as token `token` of a tile of `width`; zeros where row is null.
  void (*prepare)(const float* row, int64_t columns, int64_t width, int64_t token, std::byte* tile) = nullptr;
  std::array<std::array<TileKernel, kTileWidths>, kDTypes> tiles;  // [dtype][log2 of the width]

  int64_t row_bytes(int64_t columns) const { return columns / group_columns * group_bytes; }
};

/// fp32 activations, every dtype of weights. Tile: [column][token] floats.
const ProductKernels& f32_products();
/// int8 activations with a scale per 32 columns, block formats of weights.
/// Tile: [block] of {[token][32] int8; [token] fp32 scale; [token] fp32 scale * sum; [token] int32 -sum}.
const ProductKernels& int8_products();

/// x [count] = silu(gate) * up, in place of gate.
void silu_multiply(float* gate, const float* up, int64_t count);

/// Prepared activations: of all members together, and of each alone where a barrier would cost more.
struct ProductScratch {
  std::array<AlignedBytes, 2> shared;  // fp32, int8
  std::vector<std::array<AlignedBytes, 2>> own;
};

struct Product {
  const PackedMatrix* weights = nullptr;
  Activations x;
  const float* bias = nullptr;  // readable for 15 floats beyond the last row, or null
  Activations out;
  bool int8 = false;   // for block formats
  bool gated = false;  // silu(part 0) * part 1
};

/// One parallel region. Shapes were checked by the caller.
void run_product(const Product& product, ThreadTeam& team, ProductScratch& scratch);

}  // namespace shardscope::kernels::cpu
