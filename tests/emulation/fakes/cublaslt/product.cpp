// Each element of D is one sum over k; several of them are made side by side in the lanes of vectors, never one sum in
// several lanes, so that the order of its terms is that of the algorithm. The larger operand is converted row by row
// and used from there; the smaller one is packed into panels of neighbouring columns, k by k.
#include "tests/emulation/fakes/cublaslt/product.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

namespace shardscope::emulation::cublaslt {
namespace {

constexpr int64_t kLanes = 4;
using Lanes [[gnu::vector_size(16)]] = float;

using Halves [[gnu::vector_size(8)]] = uint16_t;
using Words [[gnu::vector_size(16)]] = uint32_t;
using Masks [[gnu::vector_size(16)]] = int32_t;

/// Exact; also for the smallest numbers, infinities and NaN. By vectors of our own: g++ makes none of the loop.
Lanes from_halves(Halves halves) {
  constexpr float kRebias = 0x1p112f;
  constexpr int32_t kInfinity = 0x7C00 << 13;
  const Words words = __builtin_convertvector(halves, Words);
  const Words magnitude = (words & 0x7FFFu) << 13;
  const auto finite = std::bit_cast<Words>(std::bit_cast<Lanes>(magnitude) * kRebias);
  const auto not_finite = std::bit_cast<Words>(std::bit_cast<Masks>(magnitude) >= kInfinity);
  return std::bit_cast<Lanes>(finite | (not_finite & 0x7F800000u) | (words & 0x8000u) << 16);
}

void convert_halves(const uint16_t* from, int64_t count, int64_t step, float* target) {
  constexpr int64_t kSome = 256;
  uint16_t gathered[kSome];
  for (int64_t begin = 0; begin < count; begin += kSome) {
    const int64_t some = std::min(kSome, count - begin);
    const uint16_t* halves_begin = &from[begin * step];
    if (step != 1) {
      for (int64_t i = 0; i < some; ++i) gathered[i] = from[(begin + i) * step];
      halves_begin = gathered;
    }
    for (int64_t i = 0; i < some; i += kLanes) {
      const auto lanes = static_cast<size_t>(std::min(kLanes, some - i));
      Halves halves = {};
      if (lanes == kLanes) {
        std::memcpy(&halves, &halves_begin[i], sizeof halves);
      } else {
        std::memcpy(&halves, &halves_begin[i], lanes * sizeof(uint16_t));
      }
      const Lanes values = from_halves(halves);
      if (lanes == kLanes) {
        std::memcpy(&target[begin + i], &values, sizeof values);
      } else {
        std::memcpy(&target[begin + i], &values, lanes * sizeof(float));
      }
    }
  }
}

inline float from_bfloat(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

/// `count` elements, `step` elements apart.
void convert(const std::byte* source, int32_t type, int64_t count, int64_t step, float* target) {
  const auto each = [&](const auto* from, const auto& conversion) {
    if (step == 1) {
      for (int64_t i = 0; i < count; ++i) target[i] = conversion(from[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) target[i] = conversion(from[i * step]);
    }
  };
  if (type == CUDA_R_16F) {
    convert_halves(reinterpret_cast<const uint16_t*>(source), count, step, target);
  } else if (type == CUDA_R_16BF) {
    each(reinterpret_cast<const uint16_t*>(source), [](uint16_t value) { return from_bfloat(value); });
  } else {
    each(reinterpret_cast<const float*>(source), [](float value) { return value; });
  }
}

void store(std::byte* target, int32_t type, float value) {
  if (type == CUDA_R_16F) {
    const __half rounded = __float2half_rn(value);
    std::memcpy(target, &rounded, sizeof rounded);
  } else if (type == CUDA_R_16BF) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    std::memcpy(target, &rounded, sizeof rounded);
  } else {
    std::memcpy(target, &value, sizeof value);
  }
}

/// An operand of one product as [lines, terms]: the rows of op(A), or the columns of op(B).
struct Operand {
  const std::byte* data;
  int32_t type;
  int64_t lines;
  int64_t line_step;  // elements from one line to the next
  int64_t term_step;

  int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  const std::byte* line(int64_t number) const { return data + number * line_step * element_bytes(); }
};

Operand operand(const Matrix& matrix, const std::byte* data, int64_t batch, bool lines_are_rows) {
  const bool row_major = matrix.order == CUBLASLT_ORDER_ROW;
  const int64_t row_step = row_major ? matrix.ld : 1;
  const int64_t column_step = row_major ? 1 : matrix.ld;
  return {.data = data + batch * matrix.batch_stride * matrix.element_bytes(),
          .type = matrix.type,
          .lines = lines_are_rows ? matrix.rows : matrix.columns,
          .line_step = lines_are_rows ? row_step : column_step,
          .term_step = lines_are_rows ? column_step : row_step};
}

/// sums[row][column] over the terms [begin, end): `rows` [kRows][terms] times the panel [terms][kVectors * kLanes].
template <int kRows, int kVectors>
void add_chunk(const float* rows, int64_t terms, const float* panel, int64_t begin, int64_t end,
               float (&sums)[kRows][kVectors * kLanes]) {
  Lanes sum[kRows][kVectors] = {};
  for (int64_t k = begin; k < end; ++k) {
    Lanes columns[kVectors];
    std::memcpy(columns, &panel[k * kVectors * kLanes], sizeof columns);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float factor = rows[row * terms + k];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[row][v] += columns[v] * factor;
    }
  }
  std::memcpy(sums, sum, sizeof sums);
}

/// One product of the batch.
class Multiplication {
 public:
  Multiplication(const Problem& problem, const Algorithm& algorithm, const Operands& operands, int64_t batch)
      : problem_(problem), algorithm_(algorithm), operands_(operands), batch_(batch) {}

  void run() {
    const Operand a = operand(problem_.a, operands_.a, batch_, !problem_.product.transposed_a);
    const Operand b = operand(problem_.b, operands_.b, batch_, problem_.product.transposed_b);
    lines_are_rows_ = a.lines >= b.lines;
    const Operand& large = lines_are_rows_ ? a : b;
    const Operand& small = lines_are_rows_ ? b : a;
    if (small.lines <= kLanes) {
      multiply<8, 1>(large, small);
    } else {
      multiply<4, 2>(large, small);
    }
  }

 private:
  void convert_line(const Operand& from, int64_t line, float* target) const {
    const int64_t terms = problem_.terms();
    convert(from.line(line), from.type, terms, from.term_step, target);
    if (algorithm_.backwards) std::reverse(target, target + terms);
  }

  template <int kRows, int kVectors>
  void multiply(const Operand& large, const Operand& small) {
    constexpr int64_t kColumns = kVectors * kLanes;
    const int64_t terms = problem_.terms();
    const int64_t panels = (small.lines + kColumns - 1) / kColumns;
    std::vector<float> packed(static_cast<size_t>(panels * terms * kColumns));
    std::vector<float> line(static_cast<size_t>(terms));
    for (int64_t column = 0; column < small.lines; ++column) {
      convert_line(small, column, line.data());
      float* const panel = &packed[static_cast<size_t>(column / kColumns * terms * kColumns + column % kColumns)];
      for (int64_t k = 0; k < terms; ++k) panel[k * kColumns] = line[static_cast<size_t>(k)];
    }
    std::vector<float> rows(static_cast<size_t>(kRows * terms));
    for (int64_t first = 0; first < large.lines; first += kRows) {
      const int64_t count = std::min<int64_t>(kRows, large.lines - first);
      for (int64_t i = 0; i < count; ++i) convert_line(large, first + i, &rows[static_cast<size_t>(i * terms)]);
      for (int64_t panel = 0; panel < panels; ++panel) {
        float sums[kRows][kColumns];
        sum_up<kRows, kVectors>(rows.data(), &packed[static_cast<size_t>(panel * terms * kColumns)], sums);
        const int64_t columns = std::min(kColumns, small.lines - panel * kColumns);
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t j = 0; j < columns; ++j) finish(first + i, panel * kColumns + j, sums[i][j]);
        }
      }
    }
  }

  template <int kRows, int kVectors>
  void sum_up(const float* rows, const float* panel, float (&sums)[kRows][kVectors * kLanes]) const {
    const int64_t terms = problem_.terms();
    const int64_t chunk = algorithm_.chunk_terms;
    add_chunk<kRows, kVectors>(rows, terms, panel, 0, std::min(chunk, terms), sums);
    for (int64_t begin = chunk; begin < terms; begin += chunk) {
      float more[kRows][kVectors * kLanes];
      add_chunk<kRows, kVectors>(rows, terms, panel, begin, std::min(begin + chunk, terms), more);
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kVectors * kLanes; ++j) sums[i][j] += more[i][j];
      }
    }
  }

  static int64_t place(const Matrix& matrix, int64_t batch, int64_t row, int64_t column) {
    const bool row_major = matrix.order == CUBLASLT_ORDER_ROW;
    const int64_t element = row_major ? row * matrix.ld + column : column * matrix.ld + row;
    return (batch * matrix.batch_stride + element) * matrix.element_bytes();
  }

  void finish(int64_t line, int64_t other, float sum) const {
    const int64_t row = lines_are_rows_ ? line : other;
    const int64_t column = lines_are_rows_ ? other : line;
    float value = operands_.alpha * sum;
    if (operands_.beta != 0) {
      float old = 0;
      convert(operands_.c + place(problem_.c, batch_, row, column), problem_.c.type, 1, 1, &old);
      value += operands_.beta * old;
    }
    store(operands_.d + place(problem_.d, batch_, row, column), problem_.d.type, value);
  }

  const Problem& problem_;
  const Algorithm& algorithm_;
  const Operands& operands_;
  int64_t batch_;
  bool lines_are_rows_ = false;
};

}  // namespace

void multiply(const Problem& problem, const Algorithm& algorithm, const Operands& operands) {
  for (int64_t batch = 0; batch < problem.d.batches; ++batch) {
    Multiplication(problem, algorithm, operands, batch).run();
  }
}

}  // namespace shardscope::emulation::cublaslt
