#include "kernels/cuda/products.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/mat_vec.hpp"
#include "kernels/cuda/rms_norm.hpp"
#include "kernels/cuda/rows.hpp"

namespace shardscope::cuda {

using kernels::Activations;
using kernels::DType;

namespace {

constexpr int64_t kAlignment = 16;  // bytes, that cuBLASLt's operands need here
// cuBLASLt's documentation recommends 32 MiB on Hopper and later.
constexpr int64_t kMatMulWorkspaceBytes = int64_t{32} << 20;
// Rows up to which weights that cuBLASLt cannot take as they are go through the matrix-vector kernels. Converted to 16
// bits, a weight is read, written and read again. fp32: 8 bytes for 4, as much as 2 launches of 8 rows. Q8_0: 5.1 for
// 1.06, as 5 launches of 4 rows. Q4_0: 4.6 for 0.56, as 7 launches of 4 rows, which take 1.2 times what reading takes
// (mat_vec.cpp). So from 16, 19 and 27 rows on conversion pays.
constexpr int64_t kFewRows = 16;
// Rows of one launch on block formats: beyond it the kernel reads x from shared memory more slowly than weights arrive,
// and two launches of half the rows take less time, or as much.
constexpr int64_t kMostBlockRows = 4;

const float* floats_of(const kernels::Vector* vector) {
  return vector == nullptr ? nullptr : own<const CudaVector>(*vector).data();
}

int64_t element_bytes(DType dtype) {
  return kernels::facts(dtype).block_bytes;
}

/// Rows [begin, begin + count) of a view.
Activations some_rows(const Activations& view, int64_t begin, int64_t count) {
  return {static_cast<std::byte*>(view.data) + begin * view.stride * element_bytes(view.dtype), count, view.columns,
          view.stride, view.dtype};
}

bool aligned(const Activations& view) {
  return reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0 &&
         view.stride * element_bytes(view.dtype) % kAlignment == 0;
}

std::string shape_text(const DeviceMatrix& matrix, const Activations& x) {
  return fmt::format("[{}, {}] {} x {} rows of {}", matrix.rows, matrix.columns, kernels::facts(matrix.dtype).name,
                     x.rows, kernels::facts(x.dtype).name);
}

}  // namespace

Products::Products(Device& device, StepTimer& timer, int64_t scratch_bytes)
    : device_(device),
      timer_(timer),
      half_bytes_(scratch_bytes / 2),
      outputs_(half_bytes_, "intermediate results", device.where()),
      weights_(half_bytes_, "converted weights", device.where()),
      workspace_(std::min(kMatMulWorkspaceBytes, scratch_bytes), "matrix products", device.where()),
      matmul_(
          {workspace_.data(), workspace_.bytes()},
          [&device](cudaEvent_t event) { device.wait(event, "choosing an algorithm"); }, device.where()) {}

/// Whether the matrix-vector kernels are to multiply: also what cuBLASLt cannot take, whose rows or columns begin at
/// odd places (blocks that straddle a cut) or that has no columns.
bool Products::few(const Part& part, const Activations& x) const {
  const int64_t most = part.matrix.dtype == x.dtype ? kMaxMatVecBatch : kFewRows;
  return x.rows <= most || part.matrix.columns == 0 || !aligned(x) || !aligned(part.out);
}

void Products::multiply(const CudaMatrix& w, const ProductInput& input, const kernels::Vector* bias, Activations out) {
  require(out.columns == w.rows(), "multiply: out's columns are not the weights' rows");
  require(input.x.columns == w.columns(), "multiply: x's columns are not the weights' columns");
  require(input.x.rows == out.rows, "multiply: x and out have different rows");
  require(bias == nullptr || bias->size() == w.rows(), "multiply: the bias is not one value per row of the weights");
  if (w.rows() == 0) {  // the share of a rank without any
    keep_sum(input);
    return;
  }
  const float* biases = floats_of(bias);
  const auto part_of = [&](const CudaMatrix::Piece& piece) -> Part {
    return {.matrix = piece.matrix,
            .bias = biases == nullptr ? nullptr : biases + piece.first_row,
            .out = out.column_range(piece.first_row, piece.matrix.rows)};
  };
  const auto apart = [&](const CudaMatrix::Piece& piece) {  // from the norm
    return piece.matrix.rows > 0 && !few(part_of(piece), input.x);
  };
  const bool any_apart = std::any_of(w.pieces().begin(), w.pieces().end(), apart);
  const Activations x = any_apart ? normed(input) : Activations{};
  for (const CudaMatrix::Piece& piece : w.pieces()) {
    if (piece.matrix.rows == 0) continue;
    if (apart(piece)) {
      timer_.around([&] { by_matrices(part_of(piece), x); });
    } else {
      by_vectors(part_of(piece), input);
    }
  }
}

void Products::gated_multiply(const CudaMatrix& gate_up, const ProductInput& input, const kernels::Vector* bias,
                              Activations out) {
  require(gate_up.parts() == 2 && gate_up.rows() == 2 * out.columns,
          "gated_multiply: the weights are not two parts of out's columns");
  require(input.x.columns == gate_up.columns() && input.x.rows == out.rows, "gated_multiply: shapes disagree");
  require(bias == nullptr || bias->size() == gate_up.rows(),
          "gated_multiply: the bias is not one value per row of the weights");
  const int64_t columns = out.columns;
  if (columns == 0) {
    keep_sum(input);
    return;
  }
  const float* biases = floats_of(bias);
  const Part whole{.matrix = gate_up.pieces().front().matrix, .bias = biases, .out = out, .gated = true};
  if (gate_up.pieces().size() == 1 && few(whole, input.x)) {
    by_vectors(whole, input);
    return;
  }
  const Activations x = normed(input);
  // As many columns at once as there is room for of both.
  const int64_t granule = kAlignment / element_bytes(out.dtype);
  const int64_t room = half_bytes_ / (2 * x.rows * element_bytes(out.dtype)) / granule * granule;
  require(room > 0, "gated_multiply: more rows than the scratch memory holds");
  for (int64_t begin = 0; begin < columns; begin += room) {
    const int64_t count = std::min(room, columns - begin);
    const int64_t stride = (2 * count + granule - 1) / granule * granule;
    const Activations both{outputs_.data(), x.rows, 2 * count, stride, out.dtype};
    for (const int64_t half : {0, 1}) {
      const int64_t row = half * columns + begin;
      const Part part{.matrix = gate_up.rows_view(row, row + count),
                      .bias = biases == nullptr ? nullptr : biases + row,
                      .out = both.column_range(half * count, count)};
      if (few(part, x)) {
        by_vectors(part, {x});
      } else {
        timer_.around([&] { by_matrices(part, x); });
      }
    }
    timer_.around([&] { gate(both, out.column_range(begin, count)); });
  }
}

Activations Products::normed(const ProductInput& input) {
  if (input.norm == nullptr) return input.x;
  const kernels::NormedInput& norm = *input.norm;
  require(norm.weight != nullptr && norm.weight->size() == input.x.columns, "norm: not one weight per column");
  const bool adds = norm.addend != nullptr;
  timer_.around([&] {
    device_.check(rms_norm({.dtype = input.x.dtype,
                            .weight_dtype = DType::kF32,
                            .rows = input.x.rows,
                            .columns = input.x.columns,
                            .x = input.x.data,
                            .x_stride = input.x.stride,
                            .addend = adds ? norm.addend->data : nullptr,
                            .addend_stride = adds ? norm.addend->stride : 0,
                            .sum = adds ? norm.sum.data : nullptr,
                            .sum_stride = adds ? norm.sum.stride : 0,
                            .weight = floats_of(norm.weight),
                            .out = norm.normed.data,
                            .out_stride = norm.normed.stride,
                            .epsilon = norm.epsilon,
                            .programmatic = device_.programmatic()},
                           device_.stream()),
                  "rms_norm", [&] { return fmt::format("[{}, {}]", input.x.rows, input.x.columns); });
  });
  timer_.divide(kernels::Operation::kNorm);
  return norm.normed.first_rows(input.x.rows);
}

/// A product of no rows is not launched, and so would not add up either.
void Products::keep_sum(const ProductInput& input) {
  if (input.norm != nullptr && input.norm->addend != nullptr) normed(input);
}

void Products::by_vectors(const Part& part, const ProductInput& input) {
  const int64_t rows = input.x.rows;
  const int64_t most = kernels::facts(part.matrix.dtype).block_quantised ? kMostBlockRows : kMaxMatVecBatch;
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t count = std::min(most, rows - begin);
    const Activations x = some_rows(input.x, begin, count);
    const Activations y = some_rows(part.out, begin, count);
    InputNorm norm;
    if (input.norm != nullptr) {
      norm.weight = floats_of(input.norm->weight);
      norm.epsilon = input.norm->epsilon;
      if (input.norm->addend != nullptr) {
        const Activations addend = some_rows(*input.norm->addend, begin, count);
        const Activations sum = some_rows(input.norm->sum, begin, count);
        norm.addend = addend.data;
        norm.addend_stride = addend.stride;
        norm.sum = sum.data;
        norm.sum_stride = sum.stride;
      }
    }
    device_.check(mat_vec({.weights = part.matrix,
                           .gated = part.gated,
                           .batch = count,
                           .dtype = x.dtype,
                           .x = x.data,
                           .x_stride = x.stride,
                           .norm = norm,
                           .bias = part.bias,
                           .y_dtype = y.dtype,
                           .y = y.data,
                           .y_stride = y.stride,
                           .read_again = begin + most < rows,
                           .stamps = timer_.stamps(),
                           .programmatic = device_.programmatic()},
                          device_.stream()),
                  "mat_vec", [&] { return shape_text(part.matrix, x); });
  }
}

void Products::by_matrices(const Part& part, const Activations& x) {
  const DeviceMatrix& matrix = part.matrix;
  if (matrix.dtype == x.dtype) {
    plain_product(matrix, x, part.out);
  } else {
    const int64_t stride = (matrix.columns + 7) / 8 * 8;  // multiples of 16 bytes in every plain type
    const int64_t granule = kAlignment / element_bytes(part.out.dtype);
    const int64_t room = half_bytes_ / (stride * element_bytes(x.dtype)) / granule * granule;
    require(room > 0, "multiply: a row of weights is larger than the scratch memory");
    for (int64_t begin = 0; begin < matrix.rows; begin += room) {
      const int64_t count = std::min(room, matrix.rows - begin);
      const Activations slab{weights_.data(), count, matrix.columns, stride, x.dtype};
      device_.check(dequantise(matrix, begin, rows_of(slab), device_.lend_stream()), "dequantise",
                    [&] { return shape_text(matrix, x); });
      plain_product({.dtype = x.dtype,
                     .rows = count,
                     .columns = matrix.columns,
                     .values = slab.data,
                     .row_bytes = stride * element_bytes(x.dtype)},
                    x, part.out.column_range(begin, count));
    }
  }
  if (part.bias != nullptr) {
    device_.check(add_bias(rows_of(part.out), part.bias, device_.lend_stream()), "add_bias",
                  [&] { return fmt::format("[{}, {}]", part.out.rows, part.out.columns); });
  }
}

void Products::plain_product(const DeviceMatrix& matrix, const Activations& x, const Activations& out) {
  const MatMulResult result = matmul_.run({.weights = matrix,
                                           .rows = x.rows,
                                           .x = x.data,
                                           .x_stride = x.stride,
                                           .out_dtype = out.dtype,
                                           .out = out.data,
                                           .out_stride = out.stride},
                                          device_.lend_stream());
  if (result.good()) return;
  const std::string detail = shape_text(matrix, x);
  check_cublas(result.status, result.operation, device_.where(detail));
  check_cuda(result.error, result.operation, device_.where(detail));
}

void Products::gate(const Activations& gate_up, const Activations& out) {
  device_.check(silu_gate(rows_of(gate_up), rows_of(out), device_.lend_stream()), "silu_gate",
                [&] { return fmt::format("[{}, {}]", out.rows, out.columns); });
}

}  // namespace shardscope::cuda
