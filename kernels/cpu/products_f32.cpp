// Products with fp32 activations: plain weights (fp32, fp16, bf16), and block-quantised ones that are expanded in
// registers.
// Algorithm: a vector holds 16 (8, 4) rows at one column, converted to fp32; it is multiplied with each token's value
// of that column, broadcast, and added to that token's sums. Moves the stored bytes of the weights once per tile of
// tokens. Exact up to the fp32 rounding of the sums.
#include <hwy/base.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/products.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products_f32.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace shardscope::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanelRows>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
constexpr int64_t kVectors = kPanelRows / kLanes;           // of a panel
constexpr int64_t kSweep = std::min<int64_t>(kVectors, 4);  // vectors of a panel that one sweep works on
constexpr bool kManyRegisters = kLanes == 16;
constexpr int kSums = kManyRegisters ? 16 : 8;  // registers for sums

struct F32 {
  static constexpr int64_t kBytes = 4;
  static HWY_INLINE VF load(const std::byte* from) { return hn::LoadU(DF(), reinterpret_cast<const float*>(from)); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static HWY_INLINE VF load(const std::byte* from) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  }
};
struct BF16 {
  static constexpr int64_t kBytes = 2;
  static HWY_INLINE VF load(const std::byte* from) {
    const hn::Rebind<hwy::bfloat16_t, DF> dh;
    return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::bfloat16_t*>(from)));
  }
};

/// sums[v][t] += vector v of weights * value of token t, at one column. x [tokens] of that column.
template <int kCount, int kTokens>
HWY_INLINE void add_column(const VF (&weights)[kCount], const float* x, VF (&sums)[kCount][kTokens]) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const VF value = hn::Set(DF(), x[t]);
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) sums[v][t] = hn::MulAdd(weights[v], value, sums[v][t]);
  }
}

template <int kCount, int kTokens>
HWY_INLINE void store_sums(const VF (&sums)[kCount][kTokens], int64_t sweep, float* out) {
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) {
    const int64_t lane = (sweep + v % kSweep) * kLanes;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      hn::StoreU(sums[v][t], DF(), out + (v / kSweep * kTokens + t) * kPanelRows + lane);
    }
  }
}

template <class Format, int kPanels, int kTokens>
void plain_tile(const PanelGroup& panels, int64_t columns, int64_t lanes, const std::byte* tile, float* out) {
  constexpr int kCount = static_cast<int>(kPanels * kSweep);
  constexpr int kChains = std::clamp(kSums / (kCount * kTokens), 1, 4);  // independent sums, to hide latency
  const auto* x = reinterpret_cast<const float*>(tile);
  const int64_t step = lanes * Format::kBytes;
  for (int64_t sweep = 0; sweep < kVectors; sweep += kSweep) {
    VF sums[kChains][kCount][kTokens];
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) sums[c][v][t] = hn::Zero(DF());
      }
    }
    const std::byte* from[kCount];
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
      from[v] = panels.values[v / kSweep] + (sweep + v % kSweep) * kLanes * Format::kBytes;
    }
    int64_t column = 0;
    for (; column + kChains <= columns; column += kChains) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        VF weights[kCount];
#pragma GCC unroll 8
        for (int v = 0; v < kCount; ++v) weights[v] = Format::load(from[v] + (column + c) * step);
        add_column<kCount, kTokens>(weights, x + (column + c) * kTokens, sums[c]);
      }
    }
    for (; column < columns; ++column) {
      VF weights[kCount];
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) weights[v] = Format::load(from[v] + column * step);
      add_column<kCount, kTokens>(weights, x + column * kTokens, sums[0]);
    }
#pragma GCC unroll 4
    for (int c = 1; c < kChains; ++c) {
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) sums[0][v][t] = hn::Add(sums[0][v][t], sums[c][v][t]);
      }
    }
    store_sums<kCount, kTokens>(sums[0], sweep, out);
  }
}

struct Q4_0 {
  static constexpr bool kNibbles = true;
  static constexpr bool kMinimum = false;
};
struct Q4_1 {
  static constexpr bool kNibbles = true;
  static constexpr bool kMinimum = true;
};
struct Q8_0 {
  static constexpr bool kNibbles = false;
  static constexpr bool kMinimum = false;
};

HWY_INLINE VF load_scales(const std::byte* from) {
  return F16::load(from);
}

/// The weights of byte kByte of each lane's quad; high: the upper nibble. d and m as in quant * d + m.
template <class Format, int kByte, bool kHigh>
HWY_INLINE VF expand(VI quads, VF d, VF m) {
  if constexpr (Format::kNibbles) {
    const VI nibbles = hn::And(hn::ShiftRight<8 * kByte + (kHigh ? 4 : 0)>(quads), hn::Set(DI(), 15));
    return hn::MulAdd(hn::ConvertTo(DF(), nibbles), d, m);
  } else {
    return hn::Mul(hn::ConvertTo(DF(), hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(quads))), d);
  }
}

template <class Format, int kByte, bool kHigh, int kCount, int kTokens>
HWY_INLINE void add_quad_column(const VI (&quads)[kCount], const VF (&d)[kCount], const VF (&m)[kCount], const float* x,
                                VF (&sums)[kCount][kTokens]) {
  VF weights[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) weights[v] = expand<Format, kByte, kHigh>(quads[v], d[v], m[v]);
  add_column<kCount, kTokens>(weights, x + (kByte + (kHigh ? 16 : 0)) * kTokens, sums);
}

template <class Format, int kPanels, int kTokens>
void block_tile(const PanelGroup& panels, int64_t columns, int64_t lanes, const std::byte* tile, float* out) {
  constexpr int kCount = static_cast<int>(kPanels * kSweep);
  constexpr int64_t kQuads = Format::kNibbles ? 4 : 8;
  constexpr int64_t kScales = Format::kMinimum ? 2 : 1;
  const DF df;
  const auto* x = reinterpret_cast<const float*>(tile);
  for (int64_t sweep = 0; sweep < kVectors; sweep += kSweep) {
    VF sums[kCount][kTokens];
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sums[v][t] = hn::Zero(df);
    }
    for (int64_t block = 0; block < columns / kBlockColumns; ++block) {
      VF d[kCount];
      VF m[kCount];
      const std::byte* values[kCount];
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) {
        const int64_t lane = (sweep + v % kSweep) * kLanes;
        const std::byte* scales = panels.scales[v / kSweep] + (block * kScales * lanes + lane) * 2;
        values[v] = panels.values[v / kSweep] + (block * kQuads * lanes + lane) * 4;
        d[v] = load_scales(scales);
        m[v] = Format::kMinimum ? load_scales(scales + lanes * 2) : hn::Mul(d[v], hn::Set(df, -8.0F));
      }
      for (int64_t quad = 0; quad < kQuads; ++quad) {
        VI quads[kCount];
#pragma GCC unroll 8
        for (int v = 0; v < kCount; ++v) {
          quads[v] = hn::LoadU(DI(), reinterpret_cast<const int32_t*>(values[v] + quad * lanes * 4));
        }
        const float* at = x + (block * kBlockColumns + quad * 4) * kTokens;
        add_quad_column<Format, 0, false, kCount, kTokens>(quads, d, m, at, sums);
        add_quad_column<Format, 1, false, kCount, kTokens>(quads, d, m, at, sums);
        add_quad_column<Format, 2, false, kCount, kTokens>(quads, d, m, at, sums);
        add_quad_column<Format, 3, false, kCount, kTokens>(quads, d, m, at, sums);
        if constexpr (Format::kNibbles) {
          add_quad_column<Format, 0, true, kCount, kTokens>(quads, d, m, at, sums);
          add_quad_column<Format, 1, true, kCount, kTokens>(quads, d, m, at, sums);
          add_quad_column<Format, 2, true, kCount, kTokens>(quads, d, m, at, sums);
          add_quad_column<Format, 3, true, kCount, kTokens>(quads, d, m, at, sums);
        }
      }
    }
    store_sums<kCount, kTokens>(sums, sweep, out);
  }
}

void prepare_f32(const float* row, int64_t columns, int64_t width, int64_t token, std::byte* tile) {
  float* out = reinterpret_cast<float*>(tile) + token;
  if (row == nullptr) {
    for (int64_t column = 0; column < columns; ++column) out[column * width] = 0;
  } else if (width == 1) {
    std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
  } else {
    for (int64_t column = 0; column < columns; ++column) out[column * width] = row[column];
  }
}

template <class Format>
std::array<TileKernel, kTileWidths> plain_tiles() {
  if constexpr (kManyRegisters) {
    return {{{4, plain_tile<Format, 4, 1>, plain_tile<Format, 1, 1>},
             {4, plain_tile<Format, 4, 2>, plain_tile<Format, 1, 2>},
             {4, plain_tile<Format, 4, 4>, plain_tile<Format, 1, 4>},
             {2, plain_tile<Format, 2, 8>, plain_tile<Format, 1, 8>}}};
  } else {
    return {{{2, plain_tile<Format, 2, 1>, plain_tile<Format, 1, 1>},
             {2, plain_tile<Format, 2, 2>, plain_tile<Format, 1, 2>},
             {1, plain_tile<Format, 1, 4>, plain_tile<Format, 1, 4>},
             {}}};
  }
}

template <class Format>
std::array<TileKernel, kTileWidths> block_tiles() {
  if constexpr (kManyRegisters) {
    return {{{4, block_tile<Format, 4, 1>, block_tile<Format, 1, 1>},
             {2, block_tile<Format, 2, 2>, block_tile<Format, 1, 2>},
             {2, block_tile<Format, 2, 4>, block_tile<Format, 1, 4>},
             {2, block_tile<Format, 2, 8>, block_tile<Format, 1, 8>}}};
  } else {
    return {{{1, block_tile<Format, 1, 1>, block_tile<Format, 1, 1>},
             {1, block_tile<Format, 1, 2>, block_tile<Format, 1, 2>},
             {1, block_tile<Format, 1, 4>, block_tile<Format, 1, 4>},
             {}}};
  }
}

ProductKernels f32_kernels() {
  ProductKernels kernels;
  kernels.tile_tokens = kManyRegisters ? 8 : 4;
  kernels.group_columns = 1;
  kernels.group_bytes = sizeof(float);
  kernels.prepare = prepare_f32;
  kernels.tiles[static_cast<size_t>(DType::kF32)] = plain_tiles<F32>();
  kernels.tiles[static_cast<size_t>(DType::kF16)] = plain_tiles<F16>();
  kernels.tiles[static_cast<size_t>(DType::kBF16)] = plain_tiles<BF16>();
  kernels.tiles[static_cast<size_t>(DType::kQ4_0)] = block_tiles<Q4_0>();
  kernels.tiles[static_cast<size_t>(DType::kQ4_1)] = block_tiles<Q4_1>();
  kernels.tiles[static_cast<size_t>(DType::kQ8_0)] = block_tiles<Q8_0>();
  return kernels;
}

const ProductKernels& f32_products() {
  static const ProductKernels kernels = f32_kernels();
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardscope::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardscope::kernels::cpu {

HWY_EXPORT(f32_products);

const ProductKernels& f32_products() {
  return HWY_DYNAMIC_DISPATCH(f32_products)();
}

}  // namespace shardscope::kernels::cpu
#endif
