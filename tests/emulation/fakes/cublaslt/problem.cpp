#include "tests/emulation/fakes/cublaslt/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shardscope::emulation::cublaslt {
namespace {

std::string_view type_name(int32_t type) {
  if (type == CUDA_R_16F) return "fp16";
  if (type == CUDA_R_16BF) return "bf16";
  if (type == CUDA_R_32F) return "fp32";
  return "";
}

/// Empty if it is a matrix that we can have.
Verdict check(const Matrix& matrix, std::string_view name) {
  const auto invalid = [&](const std::string& why) {
    return Verdict{CUBLAS_STATUS_INVALID_VALUE, fmt::format("{} is {}: {}", name, matrix.description(), why)};
  };
  if (type_name(matrix.type).empty()) {
    return {CUBLAS_STATUS_NOT_SUPPORTED,
            fmt::format("{} has cudaDataType {}: use CUDA_R_16F, CUDA_R_16BF or CUDA_R_32F", name, matrix.type)};
  }
  if (matrix.rows < 1 || matrix.columns < 1) return invalid("it has no elements, leave the product out");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (matrix.rows > kMost || matrix.columns > kMost) {
    return {CUBLAS_STATUS_NOT_SUPPORTED, invalid("rows and columns have to fit into 32 bits").why};
  }
  if (matrix.ld < matrix.stretch_elements()) {
    return invalid(fmt::format("the leading dimension is less than the {} elements that lie side by side",
                               matrix.stretch_elements()));
  }
  if (matrix.batches < 1) return invalid("a batch has at least one product");
  if (matrix.batch_stride < 0) {
    return {CUBLAS_STATUS_NOT_SUPPORTED, invalid("the batch stride is negative").why};
  }
  const double elements = static_cast<double>(matrix.stretches()) * static_cast<double>(matrix.ld) +
                          static_cast<double>(matrix.batches) * static_cast<double>(matrix.batch_stride);
  constexpr double kMostElements = 1e14;  // and no overflow below
  if (elements > kMostElements) return invalid("no device has so much memory");
  return {};
}

struct Shape {
  int64_t rows;
  int64_t columns;
};

Shape shape(const Matrix& matrix, bool transposed) {
  return transposed ? Shape{matrix.columns, matrix.rows} : Shape{matrix.rows, matrix.columns};
}

Verdict check_types(const Problem& problem) {
  const auto unsupported = [](const std::string& why) { return Verdict{CUBLAS_STATUS_NOT_SUPPORTED, why}; };
  if (problem.product.compute != CUBLAS_COMPUTE_32F) {
    return unsupported(fmt::format("compute type {}: only CUBLAS_COMPUTE_32F is modelled", problem.product.compute));
  }
  if (problem.product.scale != CUDA_R_32F) {
    return unsupported(fmt::format("scale type {}: CUBLAS_COMPUTE_32F takes CUDA_R_32F", problem.product.scale));
  }
  const std::string_view a = type_name(problem.a.type);
  const std::string_view d = type_name(problem.d.type);
  if (problem.a.type != problem.b.type) {
    return unsupported(fmt::format("A is {} and B is {}: they have to be of one type", a, type_name(problem.b.type)));
  }
  if (problem.c.type != problem.d.type) {
    return unsupported(fmt::format("C is {} and D is {}: they have to be of one type", type_name(problem.c.type), d));
  }
  if (problem.d.type != problem.a.type && problem.d.type != CUDA_R_32F) {
    return unsupported(fmt::format("A and B are {}, D is {}: D has to be the same or fp32", a, d));
  }
  // Stricter than the real library, whose documentation promises no mixture and whose heuristics refuse some.
  for (const Matrix* const matrix : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (matrix->order != CUBLASLT_ORDER_COL && matrix->order != CUBLASLT_ORDER_ROW) {
      return unsupported(fmt::format("order {}: use CUBLASLT_ORDER_COL or CUBLASLT_ORDER_ROW", matrix->order));
    }
    if (matrix->order != problem.d.order) {
      return unsupported("some matrices are column-major and some row-major: use one order, and transpose");
    }
  }
  return {};
}

}  // namespace

int64_t Matrix::extent_bytes() const {
  return ((stretches() - 1) * ld + stretch_elements() + (batches - 1) * batch_stride) * element_bytes();
}

std::vector<Range> Matrix::ranges(const void* begin, bool written) const {
  const auto* const bytes = static_cast<const std::byte*>(begin);
  const int64_t stretch_bytes = stretch_elements() * element_bytes();
  std::vector<Range> all;
  const auto add = [&](int64_t offset, int64_t count) {
    if (!all.empty() && static_cast<const std::byte*>(all.back().begin) + all.back().bytes == bytes + offset) {
      all.back().bytes += count;
    } else {
      all.push_back({bytes + offset, count, written});
    }
  };
  const int64_t distinct_batches = batch_stride == 0 ? 1 : batches;
  const int64_t distinct = ld == 0 ? 1 : stretches();
  for (int64_t batch = 0; batch < distinct_batches; ++batch) {
    const int64_t first = batch * batch_stride * element_bytes();
    if (ld == stretch_elements()) {
      add(first, distinct * stretch_bytes);
      continue;
    }
    for (int64_t i = 0; i < distinct; ++i) add(first + i * ld * element_bytes(), stretch_bytes);
  }
  return all;
}

std::string Matrix::description() const {
  const std::string_view name = type_name(type);
  return fmt::format("{} x {} {}{}, leading dimension {}{}", rows, columns, name.empty() ? "of another type" : name,
                     order == CUBLASLT_ORDER_ROW ? " row-major" : "", ld,
                     batches == 1 ? "" : fmt::format(", {} of them {} elements apart", batches, batch_stride));
}

uint64_t Problem::hash() const {
  uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&value](int64_t part) {
    for (int i = 0; i < 8; ++i) value = (value ^ (static_cast<uint64_t>(part) >> (8 * i) & 0xFF)) * 0x100000001b3;
  };
  mix(product.compute);
  mix(product.scale);
  mix(product.transposed_a ? 1 : 0);
  mix(product.transposed_b ? 1 : 0);
  for (const Matrix* const matrix : {&a, &b, &c, &d}) {
    mix(matrix->type);
    mix(matrix->order);
    mix(matrix->rows);
    mix(matrix->columns);
    mix(matrix->ld);
    mix(matrix->batches);
    mix(matrix->batch_stride);
  }
  return value;
}

Verdict check(const Problem& problem) {
  struct Named {
    std::string_view name;
    const Matrix& matrix;
  };
  for (const Named& it : {Named{"A", problem.a}, Named{"B", problem.b}, Named{"C", problem.c}, Named{"D", problem.d}}) {
    if (Verdict verdict = check(it.matrix, it.name); !verdict.good()) return verdict;
  }
  if (Verdict verdict = check_types(problem); !verdict.good()) return verdict;
  const auto invalid = [](const std::string& why) { return Verdict{CUBLAS_STATUS_INVALID_VALUE, why}; };
  const Shape a = shape(problem.a, problem.product.transposed_a);
  const Shape b = shape(problem.b, problem.product.transposed_b);
  const Shape d{problem.d.rows, problem.d.columns};
  if (a.columns != b.rows || a.rows != d.rows || b.columns != d.columns) {
    return invalid(fmt::format("op(A) is {} x {}, op(B) is {} x {}, D is {} x {}: they do not fit together", a.rows,
                               a.columns, b.rows, b.columns, d.rows, d.columns));
  }
  if (problem.c.rows != d.rows || problem.c.columns != d.columns) {
    return invalid(fmt::format("C is {} x {}, D is {} x {}: they have to be equal", problem.c.rows, problem.c.columns,
                               d.rows, d.columns));
  }
  for (const Named& it : {Named{"A", problem.a}, Named{"B", problem.b}, Named{"C", problem.c}}) {
    if (it.matrix.batches == problem.d.batches) continue;
    return invalid(fmt::format("{} is a batch of {}, D of {}: they have to be equal", it.name, it.matrix.batches,
                               problem.d.batches));
  }
  if (problem.d.batches > 1) {
    std::vector<Range> written = problem.d.ranges(nullptr, true);
    if (problem.d.batch_stride == 0 || overlap(written)) {
      return invalid(fmt::format("D is {}: the batch's products overlap", problem.d.description()));
    }
  }
  return {};
}

bool overlap(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (static_cast<const std::byte*>(ranges[i - 1].begin) + ranges[i - 1].bytes > ranges[i].begin) return true;
  }
  return false;
}

bool overlap(std::vector<Range>& a, std::vector<Range>& b) {
  const auto before = [](const Range& x, const Range& y) { return x.begin < y.begin; };
  std::sort(a.begin(), a.end(), before);
  std::sort(b.begin(), b.end(), before);
  const auto end = [](const Range& range) { return static_cast<const std::byte*>(range.begin) + range.bytes; };
  // Those of one list may overlap among themselves, so that the furthest end counts.
  const std::byte* reach_a = nullptr;
  const std::byte* reach_b = nullptr;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (j == b.size() || (i < a.size() && a[i].begin <= b[j].begin)) {
      if (reach_b > a[i].begin) return true;
      reach_a = std::max(reach_a, end(a[i++]));
    } else {
      if (reach_a > b[j].begin) return true;
      reach_b = std::max(reach_b, end(b[j++]));
    }
  }
  return false;
}

std::vector<Algorithm> algorithms(const Problem& problem) {
  constexpr int64_t kPieces = 4;
  constexpr int64_t kTile = 32;
  constexpr int64_t kTensorAlignment = 16;
  const int64_t terms = problem.terms();
  const int64_t sums = problem.d.rows * problem.d.columns * problem.d.batches;
  std::vector<Algorithm> all;
  if (terms >= 2 * kPieces) {
    const int64_t bytes = kPieces * sums * static_cast<int64_t>(sizeof(float));
    all.push_back({.name = "pieces of K",
                   .number = 1,
                   .chunk_terms = (terms + kPieces - 1) / kPieces,
                   .workspace_bytes = (bytes + 255) / 256 * 256});
  }
  all.push_back({.name = "tiles", .number = 2, .chunk_terms = kTile, .alignment_bytes = kTensorAlignment});
  all.push_back({.name = "in order", .number = 3, .chunk_terms = terms});
  all.push_back({.name = "backwards", .number = 4, .chunk_terms = terms, .backwards = true});
  const auto unfit = [&](const Algorithm& algorithm) {
    for (const Matrix* const matrix : {&problem.a, &problem.b, &problem.c, &problem.d}) {
      if (matrix->ld * matrix->element_bytes() % algorithm.alignment_bytes != 0) return true;
      if (matrix->batch_stride * matrix->element_bytes() % algorithm.alignment_bytes != 0) return true;
    }
    return false;
  };
  all.erase(std::remove_if(all.begin(), all.end(), unfit), all.end());
  return all;
}

}  // namespace shardscope::emulation::cublaslt
