// The norm of rows on CUDA, against doubles.
#include "kernels/cuda/rms_norm.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

constexpr float kEpsilon = 1e-5F;

struct Case {
  DType dtype = DType::kF32;
  DType weight_dtype = DType::kF32;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t padding = 0;  // elements between rows
  bool add = false;
};

/// Which memory receives the norm, or the sum.
enum class Target : uint8_t { kOwn, kInput, kAddend };

/// The values at the rows' places, with `fill` between them.
std::vector<float> spread(const std::vector<float>& values, const Case& c, float fill) {
  std::vector<float> result;
  for (int64_t row = 0; row < c.rows; ++row) {
    result.insert(result.end(), values.begin() + row * c.columns, values.begin() + (row + 1) * c.columns);
    result.insert(result.end(), static_cast<size_t>(c.padding), fill);
  }
  return result;
}

Expected normed(const Case& c, const std::vector<float>& x, const std::vector<float>& weight) {
  Expected expected;
  for (int64_t row = 0; row < c.rows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < c.columns; ++i) squares += std::pow(static_cast<double>(x[row * c.columns + i]), 2);
    const double root = std::sqrt(squares / static_cast<double>(c.columns) + static_cast<double>(kEpsilon));
    for (int64_t i = 0; i < c.columns; ++i) {
      const double value = static_cast<double>(x[row * c.columns + i]) / root * static_cast<double>(weight[i]);
      expected.values.push_back(value);
      // Of the sum, at most one rounding a term; 8 for the mean, the root, the products.
      expected.tolerances.push_back(kF32Epsilon * static_cast<double>(c.columns + 8) * std::abs(value));
    }
  }
  add_rounding(c.dtype, expected);
  return expected;
}

void check_norm(const Case& c, Target target, Target sum_target = Target::kInput) {
  INFO(kernels::facts(c.dtype).name << " weight " << kernels::facts(c.weight_dtype).name << " rows " << c.rows
                                    << " columns " << c.columns << " padding " << c.padding << " add " << c.add);
  const int64_t stride = c.columns + c.padding;
  const Stored x = random_stored(c.dtype, c.rows * c.columns, 1);
  const Stored addend = random_stored(c.dtype, c.rows * c.columns, 2);
  const Stored weight = random_stored(c.weight_dtype, c.columns, 3);
  std::vector<float> sum = x.values;
  if (c.add) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend.values[i];
    sum = stored(c.dtype, sum).values;
  }

  constexpr float kBetween = 7.0F;
  const auto upload = [&](const std::vector<float>& values) {
    return DeviceArray<std::byte>(stored(c.dtype, spread(values, c, kBetween)).bytes);
  };
  const DeviceArray<std::byte> device_x = upload(x.values);
  const DeviceArray<std::byte> device_addend = upload(addend.values);
  const DeviceArray<std::byte> device_weight(weight.bytes);
  const DeviceArray<std::byte> device_out = upload(std::vector<float>(sum.size(), -1.0F));
  const DeviceArray<std::byte> device_sum = upload(std::vector<float>(sum.size(), -1.0F));
  const auto memory_of = [&](Target which, const DeviceArray<std::byte>& own) -> const DeviceArray<std::byte>& {
    return which == Target::kInput ? device_x : which == Target::kAddend ? device_addend : own;
  };
  const DeviceArray<std::byte>& out = memory_of(target, device_out);
  const DeviceArray<std::byte>& sum_memory = memory_of(sum_target, device_sum);
  check_cuda(cuda::rms_norm({.dtype = c.dtype,
                             .weight_dtype = c.weight_dtype,
                             .rows = c.rows,
                             .columns = c.columns,
                             .x = device_x.data(),
                             .x_stride = stride,
                             .addend = c.add ? device_addend.data() : nullptr,
                             .addend_stride = stride,
                             .sum = c.add ? sum_memory.data() : nullptr,
                             .sum_stride = stride,
                             .weight = device_weight.data(),
                             .out = out.data(),
                             .out_stride = stride,
                             .epsilon = kEpsilon},
                            nullptr),
             "rms_norm");

  // What stands between the rows is compared too: nobody may have written there.
  Expected expected = normed(c, sum, weight.values);
  std::vector<double> values;
  std::vector<double> tolerances;
  for (int64_t row = 0; row < c.rows; ++row) {
    values.insert(values.end(), expected.values.begin() + row * c.columns,
                  expected.values.begin() + (row + 1) * c.columns);
    tolerances.insert(tolerances.end(), expected.tolerances.begin() + row * c.columns,
                      expected.tolerances.begin() + (row + 1) * c.columns);
    values.insert(values.end(), static_cast<size_t>(c.padding), static_cast<double>(kBetween));
    tolerances.insert(tolerances.end(), static_cast<size_t>(c.padding), 0.0);
  }
  CHECK(first_difference(meaning(c.dtype, out.download()), values, tolerances) == "");
  const auto holds = [&](const DeviceArray<std::byte>& memory, const std::vector<float>& what) {
    return meaning(c.dtype, memory.download()) == stored(c.dtype, spread(what, c, kBetween)).values;
  };
  if (c.add) CHECK(holds(sum_memory, sum));
  if (target != Target::kInput && !(c.add && sum_target == Target::kInput)) CHECK(holds(device_x, x.values));
}

}  // namespace

TEST_CASE("cuda rms_norm: every dtype, length and stride") {
  under_conditions([] {
    for (const auto& [dtype, weight_dtype] :
         {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF16, DType::kF32}, std::pair{DType::kF16, DType::kF16},
          std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kBF16, DType::kBF16}}) {
      for (const bool add : {false, true}) {
        // 1, odd, less and more than a warp, strides that are and are not whole pieces, a real model's row.
        check_norm({dtype, weight_dtype, 1, 1, 0, add}, Target::kOwn);
        check_norm({dtype, weight_dtype, 3, 7, 0, add}, Target::kOwn);
        check_norm({dtype, weight_dtype, 2, 33, 7, add}, Target::kOwn);
        check_norm({dtype, weight_dtype, 3, 260, 3, add}, Target::kOwn);
        check_norm({dtype, weight_dtype, 2, 4096, 8, add}, Target::kOwn);
      }
    }
  });
}

TEST_CASE("cuda rms_norm: rows that do not fit the registers") {
  under_conditions([] {
    check_norm({DType::kF32, DType::kF32, 1, 12347, 0, false}, Target::kOwn);
    check_norm({DType::kF32, DType::kF32, 1, 12347, 0, true}, Target::kOwn);
    check_norm({DType::kBF16, DType::kBF16, 1, 20003, 0, false}, Target::kInput);
    check_norm({DType::kBF16, DType::kF32, 1, 20003, 0, true}, Target::kAddend);
  });
}

TEST_CASE("cuda rms_norm: in place") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      check_norm({dtype, DType::kF32, 3, 576, 0, false}, Target::kInput);
      check_norm({dtype, DType::kF32, 3, 37, 0, false}, Target::kInput);
      check_norm({dtype, DType::kF32, 3, 576, 0, true}, Target::kAddend);
      check_norm({dtype, DType::kF32, 3, 37, 0, true}, Target::kAddend);
    }
  });
}

TEST_CASE("cuda rms_norm: a sum of its own, beside x or in the addend's place") {
  under_conditions({.seeds = 2}, [] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t columns : {37, 576}) {
        for (const Target target : {Target::kOwn, Target::kInput, Target::kAddend}) {
          check_norm({dtype, DType::kF32, 3, columns, 0, true}, target, Target::kOwn);
        }
        check_norm({dtype, DType::kF32, 3, columns, 5, true}, Target::kOwn, Target::kAddend);
        check_norm({dtype, DType::kF32, 3, columns, 5, true}, Target::kInput, Target::kAddend);
      }
    }
    check_norm({DType::kBF16, DType::kF32, 1, 20003, 0, true}, Target::kOwn, Target::kOwn);
  });
}

TEST_CASE("cuda rms_norm: more rows than are given a thousand threads") {
  under_conditions([] { check_norm({DType::kBF16, DType::kBF16, 300, 72, 0, true}, Target::kOwn); });
}

TEST_CASE("cuda rms_norm: what it refuses") {
  under_conditions([] {
    const DeviceArray<float> memory(4);
    const auto norm = [&](DType dtype, DType weight_dtype, int64_t rows, int64_t columns, int64_t stride) {
      return cuda::rms_norm({.dtype = dtype,
                             .weight_dtype = weight_dtype,
                             .rows = rows,
                             .columns = columns,
                             .x = memory.data(),
                             .x_stride = stride,
                             .weight = memory.data(),
                             .out = memory.data(),
                             .out_stride = stride},
                            nullptr);
    };
    CHECK(norm(DType::kF32, DType::kF32, 0, 4, 4) == cudaSuccess);  // nothing to do: the memory stays unread
    CHECK(norm(DType::kQ8_0, DType::kF32, 1, 4, 4) == cudaErrorInvalidValue);
    CHECK(norm(DType::kF32, DType::kF16, 1, 4, 4) == cudaErrorInvalidValue);
    CHECK(norm(DType::kF32, DType::kF32, 1, 0, 4) == cudaErrorInvalidValue);
    CHECK(norm(DType::kF32, DType::kF32, 1, 4, 3) == cudaErrorInvalidValue);
    CHECK(norm(DType::kF32, DType::kF32, -1, 4, 4) == cudaErrorInvalidValue);
    const auto norm_of_sum = [&](float* sum, int64_t sum_stride) {
      return cuda::rms_norm({.rows = 1,
                             .columns = 4,
                             .x = memory.data(),
                             .x_stride = 4,
                             .addend = memory.data(),
                             .addend_stride = 4,
                             .sum = sum,
                             .sum_stride = sum_stride,
                             .weight = memory.data(),
                             .out = memory.data(),
                             .out_stride = 4},
                            nullptr);
    };
    CHECK(norm_of_sum(nullptr, 4) == cudaErrorInvalidValue);
    CHECK(norm_of_sum(memory.data(), 3) == cudaErrorInvalidValue);
  });
}
