#include "runtime/model/synthetic.hpp"

#include <cmath>

#include "runtime/model/named.hpp"
#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using namespace test;
using kernels::DType;

struct Moments {
  double mean;
  double deviation;
};

Moments moments(const std::vector<float>& list) {
  double sum = 0;
  double squares = 0;
  for (const float value : list) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(list.size());
  return {sum / count, std::sqrt(squares / count - sum * sum / count / count)};
}

TEST_CASE("synthetic_weights: a value does not depend on the range by which it is read") {
  const ModelConfig config = *named_configuration("tiny");
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto weights = synthetic_weights(config, dtype, 7);
    const int64_t width = kernels::row_bytes(dtype, 1);
    for (const WeightId id : expected_weights(config)) {
      const WeightShape shape = shape_of(config, id.role);
      std::vector<std::byte> whole(static_cast<size_t>(shape.rows * shape.columns * width));
      weights->read(id, {0, shape.rows}, {0, shape.columns}, whole);
      for (const Range columns : {Range{0, 1}, Range{1, 2}, Range{3, 11}, Range{5, 6}, Range{1, 12},
                                  Range{2, shape.columns}, Range{0, shape.columns - 1}}) {
        const Range rows = {shape.rows / 2, shape.rows};
        std::vector<std::byte> part(static_cast<size_t>(rows.size() * columns.size() * width));
        weights->read(id, rows, columns, part);
        bool equal = true;
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          equal = equal && std::memcmp(part.data() + (row - rows.begin) * columns.size() * width,
                                       whole.data() + (row * shape.columns + columns.begin) * width,
                                       static_cast<size_t>(columns.size() * width)) == 0;
        }
        INFO(weight_name(id) << " columns " << columns.begin << " to " << columns.end);
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("synthetic_weights: values are spread like a normal distribution at a checkpoint's scale") {
  const ModelConfig config = *named_configuration("tiny");
  const auto weights = synthetic_weights(config, DType::kF32, 1);
  const std::vector<float> gate = values(*weights, {Role::kGate, 0}, shape_of(config, Role::kGate));
  const double deviation = 1.0 / std::sqrt(128.0);
  // 45056 samples: five standard errors of mean and deviation.
  const auto [mean, spread] = moments(gate);
  CHECK(std::abs(mean) <= 5 * deviation / std::sqrt(45056.0));
  CHECK(std::abs(spread / deviation - 1) <= 5 / std::sqrt(2 * 45056.0));
  double within = 0;
  double fourth = 0;
  double neighbours = 0;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double z = static_cast<double>(gate[i]) / deviation;
    within += std::abs(z) <= 1.0;
    fourth += z * z * z * z;
    if (i > 0) neighbours += z * static_cast<double>(gate[i - 1]) / deviation;
  }
  const auto count = static_cast<double>(gate.size());
  CHECK(std::abs(within / count - 0.6827) <= 0.012);
  CHECK(std::abs(fourth / count - 3.0) <= 0.25);
  CHECK(std::abs(neighbours / count) <= 5 / std::sqrt(count));
  const auto [norm_mean, norm_spread] =
      moments(values(*weights, {Role::kFinalNorm}, shape_of(config, Role::kFinalNorm)));
  CHECK(std::abs(norm_mean - 1) <= 0.05);
  CHECK(norm_spread <= 0.15);
  const auto [down_mean, down_spread] = moments(values(*weights, {Role::kDown, 0}, shape_of(config, Role::kDown)));
  CHECK(std::abs(down_spread * std::sqrt(352.0) * 2 - 1) <= 0.02);
}

TEST_CASE("synthetic_weights: seed, role and layer each give other values, the number of layers does not") {
  ModelConfig config = *named_configuration("tiny");
  const WeightShape shape = shape_of(config, Role::kGate);
  const auto one = synthetic_weights(config, DType::kBF16, 1);
  const auto two = synthetic_weights(config, DType::kBF16, 2);
  const std::vector<float> base = values(*one, {Role::kGate, 0}, shape);
  const auto shared = [&](const std::vector<float>& other) {
    size_t equal = 0;
    for (size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i];
    return static_cast<double>(equal) / static_cast<double>(base.size());
  };
  CHECK(shared(values(*one, {Role::kGate, 0}, shape)) == 1.0);
  CHECK(shared(values(*two, {Role::kGate, 0}, shape)) < 0.02);
  CHECK(shared(values(*one, {Role::kUp, 0}, shape)) < 0.02);
  CHECK(shared(values(*one, {Role::kGate, 1}, shape)) < 0.02);
  CHECK(one->identity() != two->identity());
  const std::vector<float> down = values(*one, {Role::kDown, 0}, shape_of(config, Role::kDown));
  config.layers = 1;
  const auto cut = synthetic_weights(config, DType::kBF16, 1);
  CHECK(values(*cut, {Role::kDown, 0}, shape_of(config, Role::kDown)) == down);
  CHECK_THROWS_AS(cut->dtype({Role::kDown, 1}), BugError);
  CHECK_THROWS_AS(cut->dtype({Role::kDownBias, 0}), BugError);
}

}  // namespace
}  // namespace shardscope::runtime
