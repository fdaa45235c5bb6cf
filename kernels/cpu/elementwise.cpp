// Operations that go over a row once or twice: norms, rotation, silu. Each moves its row in and out; rows of decode
// lie in L1.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/operations.hpp"
#include "kernels/cpu/products.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace shardscope::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

/// sum = x + addend where given; returns the sum of squares of that, or of x.
HWY_INLINE float add_and_square(const NormRow& row) {
  const DF df;
  VF sums[2] = {hn::Zero(df), hn::Zero(df)};
  int64_t i = 0;
  for (; i + 2 * kLanes <= row.columns; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < 2; ++j) {
      VF v = hn::LoadU(df, row.x + i + j * kLanes);
      if (row.addend != nullptr) {
        v = hn::Add(v, hn::LoadU(df, row.addend + i + j * kLanes));
        hn::StoreU(v, df, row.sum + i + j * kLanes);
      }
      sums[j] = hn::MulAdd(v, v, sums[j]);
    }
  }
  float rest = 0;
  for (; i < row.columns; ++i) {
    float v = row.x[i];
    if (row.addend != nullptr) {
      v += row.addend[i];
      row.sum[i] = v;
    }
    rest += v * v;
  }
  return rest + hn::GetLane(hn::SumOfLanes(df, hn::Add(sums[0], sums[1])));
}

void norm_row(const NormRow& row) {
  const DF df;
  const float squares = add_and_square(row);
  const float* from = row.addend == nullptr ? row.x : row.sum;
  const float factor = 1.0F / std::sqrt(squares / static_cast<float>(row.columns) + row.epsilon);
  int64_t i = 0;
  for (; i + kLanes <= row.columns; i += kLanes) {
    const VF scaled = hn::Mul(hn::LoadU(df, from + i), hn::Set(df, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(df, row.weight + i)), df, row.out + i);
  }
  for (; i < row.columns; ++i) row.out[i] = from[i] * factor * row.weight[i];
}

void rotate_head(float* head, const float* cosines, const float* sines, int64_t half) {
  const DF df;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VF first = hn::LoadU(df, head + i);
    const VF second = hn::LoadU(df, head + half + i);
    const VF c = hn::LoadU(df, cosines + i);
    const VF s = hn::LoadU(df, sines + i);
    hn::StoreU(hn::NegMulAdd(second, s, hn::Mul(first, c)), df, head + i);
    hn::StoreU(hn::MulAdd(first, s, hn::Mul(second, c)), df, head + half + i);
  }
  for (; i < half; ++i) {
    const float first = head[i];
    const float second = head[half + i];
    head[i] = first * cosines[i] - second * sines[i];
    head[half + i] = second * cosines[i] + first * sines[i];
  }
}

HWY_INLINE VF silu(VF x) {
  const DF df;
  const VF exponent = hn::Min(hn::Neg(x), hn::Set(df, 88.0F));  // exp stays finite; NaN comes through the numerator
  return hn::Div(x, hn::Add(hn::Exp(df, exponent), hn::Set(df, 1.0F)));
}

void silu_multiply(float* gate, const float* up, int64_t count) {
  const DF df;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(silu(hn::LoadU(df, gate + i)), hn::LoadU(df, up + i)), df, gate + i);
  }
  for (; i < count; ++i) gate[i] = hn::GetLane(silu(hn::Set(df, gate[i]))) * up[i];
}

const char* instruction_set() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace shardscope::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardscope::kernels::cpu {

HWY_EXPORT(norm_row);
HWY_EXPORT(rotate_head);
HWY_EXPORT(silu_multiply);
HWY_EXPORT(instruction_set);

void norm_row(const NormRow& row) {
  HWY_DYNAMIC_DISPATCH(norm_row)(row);
}

void rotate_head(float* head, const float* cosines, const float* sines, int64_t half) {
  HWY_DYNAMIC_DISPATCH(rotate_head)(head, cosines, sines, half);
}

void silu_multiply(float* gate, const float* up, int64_t count) {
  HWY_DYNAMIC_DISPATCH(silu_multiply)(gate, up, count);
}

const char* instruction_set() {
  return HWY_DYNAMIC_DISPATCH(instruction_set)();
}

}  // namespace shardscope::kernels::cpu
#endif
