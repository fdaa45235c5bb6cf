// Products of block-quantised weights with int8 activations.
// Algorithm: a 32-bit lane holds 4 columns of one row; the matching 4 activations are broadcast to all lanes, and an
// integer dot product adds up a block of 32 columns exactly. Then one fp32 multiply-add with weight and activation
// scale. Moves the stored bytes of the weights once per tile of tokens; activations come from L1.
// AVX3_DL has a dot instruction (VNNI, u8 x s8); SSSE3 to AVX3 multiply to 16-bit pairs (maddubs); others go by bytes.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/products.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products_int8.cpp"
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
constexpr int64_t kRecordBytes = kBlockColumns + 12;        // of one token and block in a tile
#if HWY_TARGET == HWY_AVX3_DL
constexpr bool kDotOfUnsigned = true;  // signed weights are taken as w + 128
#else
constexpr bool kDotOfUnsigned = false;
#endif
constexpr bool kManyRegisters = kLanes == 16;

struct Q4_0 {
  static constexpr bool kNibbles = true;
  static constexpr bool kMinimum = false;
  static constexpr int kOffsetBits = 3;  // values are nibble - 8
};
struct Q4_1 {
  static constexpr bool kNibbles = true;
  static constexpr bool kMinimum = true;
  static constexpr int kOffsetBits = 0;
};
struct Q8_0 {
  static constexpr bool kNibbles = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffsetBits = kDotOfUnsigned ? 7 : 0;
};

HWY_INLINE VI broadcast_quad(const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof(quad));
  return hn::Set(DI(), quad);
}

#if HWY_TARGET == HWY_AVX3_DL

// Assembly, because Highway 1.0.3 compiles this target without avx512vnni, and for the broadcast from memory.
HWY_INLINE VI vnni_dot(VI sum, VI w, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "m"(*reinterpret_cast<const char(*)[4]>(x)));
  return sum;
}
HWY_INLINE VI dot_nibbles(VI sum, VI w, const int8_t* x) {
  return vnni_dot(sum, w, x);
}
HWY_INLINE VI finish_nibbles(VI sum) {
  return sum;
}
HWY_INLINE VI signed_weights(VI w) {
  return hn::Xor(w, hn::Set(DI(), static_cast<int32_t>(0x80808080U)));
}
HWY_INLINE VI dot_bytes(VI sum, VI w, const int8_t* x) {
  return vnni_dot(sum, w, x);
}

#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3

#if HWY_TARGET == HWY_AVX3
HWY_INLINE VI multiply_pairs(VI u8, VI s8) {
  return VI{_mm512_maddubs_epi16(u8.raw, s8.raw)};
}
HWY_INLINE VI add_words(VI a, VI b) {
  return VI{_mm512_add_epi16(a.raw, b.raw)};
}
HWY_INLINE VI sum_words(VI a) {
  return VI{_mm512_madd_epi16(a.raw, _mm512_set1_epi16(1))};
}
HWY_INLINE VI magnitude(VI a) {
  return VI{_mm512_abs_epi8(a.raw)};
}
HWY_INLINE VI copy_sign(VI a, VI sign) {
  return VI{_mm512_mask_sub_epi8(a.raw, _mm512_movepi8_mask(sign.raw), _mm512_setzero_si512(), a.raw)};
}
#elif HWY_TARGET == HWY_AVX2
HWY_INLINE VI multiply_pairs(VI u8, VI s8) {
  return VI{_mm256_maddubs_epi16(u8.raw, s8.raw)};
}
HWY_INLINE VI add_words(VI a, VI b) {
  return VI{_mm256_add_epi16(a.raw, b.raw)};
}
HWY_INLINE VI sum_words(VI a) {
  return VI{_mm256_madd_epi16(a.raw, _mm256_set1_epi16(1))};
}
HWY_INLINE VI magnitude(VI a) {
  return VI{_mm256_abs_epi8(a.raw)};
}
HWY_INLINE VI copy_sign(VI a, VI sign) {
  return VI{_mm256_sign_epi8(a.raw, sign.raw)};
}
#else
HWY_INLINE VI multiply_pairs(VI u8, VI s8) {
  return VI{_mm_maddubs_epi16(u8.raw, s8.raw)};
}
HWY_INLINE VI add_words(VI a, VI b) {
  return VI{_mm_add_epi16(a.raw, b.raw)};
}
HWY_INLINE VI sum_words(VI a) {
  return VI{_mm_madd_epi16(a.raw, _mm_set1_epi16(1))};
}
HWY_INLINE VI magnitude(VI a) {
  return VI{_mm_abs_epi8(a.raw)};
}
HWY_INLINE VI copy_sign(VI a, VI sign) {
  return VI{_mm_sign_epi8(a.raw, sign.raw)};
}
#endif

// A block's 8 pair sums of nibbles fit 16 bits: 8 * 2 * 15 * 127 = 30480.
HWY_INLINE VI dot_nibbles(VI sum, VI w, const int8_t* x) {
  return add_words(sum, multiply_pairs(w, broadcast_quad(x)));
}
HWY_INLINE VI finish_nibbles(VI sum) {
  return sum_words(sum);
}
HWY_INLINE VI signed_weights(VI w) {
  return w;
}
// |w| <= 128, |x| <= 127: a pair sum is at most 32512.
HWY_INLINE VI dot_bytes(VI sum, VI w, const int8_t* x) {
  return hn::Add(sum, sum_words(multiply_pairs(magnitude(w), copy_sign(broadcast_quad(x), w))));
}

#else

template <int kByte>
HWY_INLINE VI dot_byte(VI sum, VI w, const int8_t* x) {
  const VI signed_byte = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(w));
  return hn::Add(sum, hn::Mul(signed_byte, hn::Set(DI(), x[kByte])));
}
HWY_INLINE VI dot_bytes(VI sum, VI w, const int8_t* x) {
  return dot_byte<3>(dot_byte<2>(dot_byte<1>(dot_byte<0>(sum, w, x), w, x), w, x), w, x);
}
HWY_INLINE VI dot_nibbles(VI sum, VI w, const int8_t* x) {
  return dot_bytes(sum, w, x);
}
HWY_INLINE VI finish_nibbles(VI sum) {
  return sum;
}
HWY_INLINE VI signed_weights(VI w) {
  return w;
}

#endif

/// dots[t] = integer dot of one block of a vector of rows with token t, the format's offset left out.
/// values: quads, `step` bytes apart. x: the int8 values of the block's record.
template <class Format, int kTokens>
HWY_INLINE void block_dots(const std::byte* values, int64_t step, const int8_t* x, VI* dots) {
  VI high[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) dots[t] = high[t] = hn::Zero(DI());
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    VI first, second;
    if constexpr (Format::kNibbles) {
      const VI mask = hn::Set(DI(), 0x0f0f0f0f);
      const VI pairs = hn::LoadU(DI(), reinterpret_cast<const int32_t*>(values + i * step));
      first = hn::And(pairs, mask);
      second = hn::And(hn::ShiftRight<4>(pairs), mask);
    } else {
      first = signed_weights(hn::LoadU(DI(), reinterpret_cast<const int32_t*>(values + i * step)));
      second = signed_weights(hn::LoadU(DI(), reinterpret_cast<const int32_t*>(values + (i + 4) * step)));
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* quad = x + t * kBlockColumns + 4 * i;
      VI& sum = kTokens == 1 ? high[t] : dots[t];  // two shorter chains for a lone token
      if constexpr (Format::kNibbles) {
        dots[t] = dot_nibbles(dots[t], first, quad);
        sum = dot_nibbles(sum, second, quad + 16);
      } else {
        dots[t] = dot_bytes(dots[t], first, quad);
        sum = dot_bytes(sum, second, quad + 16);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (Format::kNibbles) {
      if (kTokens == 1) high[t] = finish_nibbles(high[t]);
      dots[t] = finish_nibbles(dots[t]);
    }
    if (kTokens == 1) dots[t] = hn::Add(dots[t], high[t]);
  }
}

HWY_INLINE VF load_scales(const std::byte* from) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <class Format, int kPanels, int kTokens>
void int8_tile(const PanelGroup& panels, int64_t columns, int64_t lanes, const std::byte* tile, float* out) {
  const DF df;
  constexpr int64_t kQuads = Format::kNibbles ? 4 : 8;
  constexpr int64_t kScales = Format::kMinimum ? 2 : 1;
  constexpr int kCount = static_cast<int>(kPanels * kSweep);
  const int64_t blocks = columns / kBlockColumns;
  for (int64_t sweep = 0; sweep < kVectors; sweep += kSweep) {
    VF sums[kCount][kTokens];
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sums[v][t] = hn::Zero(df);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      const std::byte* record = tile + block * kTokens * kRecordBytes;
      const auto* x = reinterpret_cast<const int8_t*>(record);
      const auto* x_scales = reinterpret_cast<const float*>(record + kTokens * kBlockColumns);
      const float* x_sums = x_scales + kTokens;
      const auto* x_negated = reinterpret_cast<const int32_t*>(x_sums + kTokens);
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) {
        const int64_t lane = (sweep + v % kSweep) * kLanes;
        const std::byte* values = panels.values[v / kSweep] + (block * kQuads * lanes + lane) * 4;
        const std::byte* scales = panels.scales[v / kSweep] + (block * kScales * lanes + lane) * 2;
        VI dots[kTokens];
        block_dots<Format, kTokens>(values, lanes * 4, x, dots);
        const VF d = load_scales(scales);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          if constexpr (Format::kOffsetBits > 0) {
            dots[t] = hn::Add(dots[t], hn::ShiftLeft<Format::kOffsetBits>(hn::Set(DI(), x_negated[t])));
          }
          const VF scale = hn::Mul(d, hn::Set(df, x_scales[t]));
          sums[v][t] = hn::MulAdd(hn::ConvertTo(df, dots[t]), scale, sums[v][t]);
        }
        if constexpr (Format::kMinimum) {
          const VF m = load_scales(scales + lanes * 2);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) sums[v][t] = hn::MulAdd(m, hn::Set(df, x_sums[t]), sums[v][t]);
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
      const int64_t lane = (sweep + v % kSweep) * kLanes;
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
        hn::StoreU(sums[v][t], df, out + (v / kSweep * kTokens + t) * kPanelRows + lane);
    }
  }
}

/// Rounds one block to int8: scale = max|x| / 127. A block with an inf or NaN gets the scale NaN, so that it shows.
HWY_INLINE void quantise_block(const float* x, int8_t* values, float* scale_out, float* sum_out, int32_t* negated_out) {
  const DF df;
  VF largest = hn::Zero(df);
  VF poison = hn::Zero(df);  // 0 * x: NaN for inf and NaN
  for (int64_t i = 0; i < kBlockColumns; i += kLanes) {
    const VF v = hn::LoadU(df, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(df), poison);
  }
  const float maximum = hn::GetLane(hn::MaxOfLanes(df, largest));
  constexpr float kTiny = 1e-35F;  // below, 127 / maximum would overflow
  const bool finite = hn::GetLane(hn::SumOfLanes(df, poison)) == 0.0F;
  const float inverse = finite && maximum > kTiny ? 127.0F / maximum : 0.0F;
  VI sum = hn::Zero(DI());
  for (int64_t i = 0; i < kBlockColumns; i += kLanes) {
    const VI rounded = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), hn::Set(df, inverse)));
    sum = hn::Add(sum, rounded);
    const hn::Rebind<int8_t, DI> d8;
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, values + i);
  }
  const int32_t total = finite ? hn::GetLane(hn::SumOfLanes(DI(), sum)) : 0;
  const float scale = maximum > kTiny ? maximum / 127.0F : 0.0F;
  *scale_out = finite ? scale : std::numeric_limits<float>::quiet_NaN();
  *sum_out = *scale_out * static_cast<float>(total);
  *negated_out = -total;
}

void prepare_int8(const float* row, int64_t columns, int64_t width, int64_t token, std::byte* tile) {
  for (int64_t block = 0; block < columns / kBlockColumns; ++block) {
    std::byte* record = tile + block * width * kRecordBytes;
    auto* values = reinterpret_cast<int8_t*>(record) + token * kBlockColumns;
    auto* scale = reinterpret_cast<float*>(record + width * kBlockColumns) + token;
    auto* negated = reinterpret_cast<int32_t*>(scale + 2 * width);
    if (row == nullptr) {
      std::memset(values, 0, kBlockColumns);
      scale[0] = scale[width] = 0;
      *negated = 0;
    } else {
      quantise_block(row + block * kBlockColumns, values, scale, scale + width, negated);
    }
  }
}

template <class Format>
std::array<TileKernel, kTileWidths> int8_tiles() {
  if constexpr (kManyRegisters) {
    return {{{4, int8_tile<Format, 4, 1>, int8_tile<Format, 1, 1>},
             {4, int8_tile<Format, 4, 2>, int8_tile<Format, 1, 2>},
             {2, int8_tile<Format, 2, 4>, int8_tile<Format, 1, 4>},
             {1, int8_tile<Format, 1, 8>, int8_tile<Format, 1, 8>}}};
  } else {
    return {{{2, int8_tile<Format, 2, 1>, int8_tile<Format, 1, 1>},
             {1, int8_tile<Format, 1, 2>, int8_tile<Format, 1, 2>},
             {1, int8_tile<Format, 1, 4>, int8_tile<Format, 1, 4>},
             {}}};
  }
}

ProductKernels int8_kernels() {
  ProductKernels kernels;
  kernels.tile_tokens = kManyRegisters ? 8 : 4;
  kernels.group_columns = kBlockColumns;
  kernels.group_bytes = kRecordBytes;
  kernels.prepare = prepare_int8;
  kernels.tiles[static_cast<size_t>(DType::kQ4_0)] = int8_tiles<Q4_0>();
  kernels.tiles[static_cast<size_t>(DType::kQ4_1)] = int8_tiles<Q4_1>();
  kernels.tiles[static_cast<size_t>(DType::kQ8_0)] = int8_tiles<Q8_0>();
  return kernels;
}

const ProductKernels& int8_products() {
  static const ProductKernels kernels = int8_kernels();
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardscope::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardscope::kernels::cpu {

HWY_EXPORT(int8_products);

const ProductKernels& int8_products() {
  return HWY_DYNAMIC_DISPATCH(int8_products)();
}

}  // namespace shardscope::kernels::cpu
#endif
