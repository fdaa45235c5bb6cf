#include <catch2/catch.hpp>
#include <limits>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

namespace {

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t tokens;
};

// 1, odd, not a multiple of panel (16 rows), block (32 columns) or tile (8 tokens), and one realistic size.
const std::vector<Shape> kBlockShapes = {{1, 32, 1},  {16, 64, 1},  {17, 32, 3}, {131, 96, 1},
                                         {37, 96, 2}, {70, 160, 9}, {40, 64, 6}, {200, 576, 21}};
const std::vector<Shape> kPlainShapes = {{1, 1, 1}, {5, 1, 2}, {19, 7, 3}, {33, 45, 10}, {131, 70, 1}, {64, 576, 8}};
const Shape kRealistic = {576, 1536, 5};

std::vector<Shape> shapes_for(DType dtype) {
  std::vector<Shape> shapes = kBlockShapes;
  if (!facts(dtype).block_quantised) shapes.insert(shapes.end(), kPlainShapes.begin(), kPlainShapes.end());
  shapes.push_back(kRealistic);
  return shapes;
}

struct Run {
  int threads;
  ActivationMode mode;
};

/// A product of the backend with an output wider than needed, to see that nothing beside it is written.
std::vector<float> multiplied(const Run& run, std::span<const StoredMatrix> parts, std::span<const float> x,
                              std::span<const float> bias, bool gated_product) {
  const auto backend = make_cpu_backend({.threads = run.threads, .cores = {}, .activations = run.mode});
  const auto w = load(*backend, parts);
  const int64_t tokens = std::ssize(x) / w->columns();
  const int64_t columns = gated_product ? w->rows() / 2 : w->rows();
  const auto input = filled(*backend, tokens, w->columns(), x);
  const auto output = backend->make_activations(tokens, columns + 3);
  const auto bias_vector = bias.empty() ? nullptr : backend->load_vector(bias);
  const Activations out = output->view().column_range(1, columns);
  if (gated_product) {
    backend->gated_multiply(*w, input->view(), bias_vector.get(), out);
  } else {
    backend->multiply(*w, input->view(), bias_vector.get(), out);
  }
  for (int64_t token = 0; token < tokens; ++token) {
    const float* row = output->view().floats() + token * (columns + 3);
    CHECK((row[0] == 0 && row[columns + 1] == 0 && row[columns + 2] == 0));
  }
  return contents(out);
}

void check_everywhere(ActivationMode mode, std::span<const StoredMatrix> parts, std::span<const float> x,
                      std::span<const float> bias, bool gated_product, const Expected& expected) {
  for_each_target([&](const std::string& target) {
    for (const int threads : {1, 3}) {
      INFO(target << ", " << threads << " threads, " << facts(parts[0].dtype).name << ", " << parts[0].rows << " x "
                  << parts[0].columns);
      CHECK(first_difference(multiplied({threads, mode}, parts, x, bias, gated_product), expected.values,
                             expected.tolerances) == "");
    }
  });
}

constexpr DType kAll[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr DType kBlocks[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

}  // namespace

TEST_CASE("multiply: every dtype with fp32 activations is exact up to fp32 rounding") {
  for (const DType dtype : kAll) {
    for (const Shape& shape : shapes_for(dtype)) {
      const StoredMatrix w = random_matrix(dtype, shape.rows, shape.columns, 1);
      const std::vector<float> x = random_values(shape.tokens * shape.columns, 2);
      const std::vector<float> bias = random_values(shape.rows, 3);
      check_everywhere(ActivationMode::kF32, {&w, 1}, x, bias, false, product(w, x, bias));
    }
  }
}

TEST_CASE("multiply: block formats with int8 activations are exact for the rounded activations") {
  for (const DType dtype : kBlocks) {
    for (const Shape& shape : shapes_for(dtype)) {
      const StoredMatrix w = random_matrix(dtype, shape.rows, shape.columns, 4);
      const std::vector<float> x = random_values(shape.tokens * shape.columns, 5);
      check_everywhere(ActivationMode::kInt8, {&w, 1}, x, {}, false, product(w, rounded_to_int8(x), {}));
    }
  }
}

TEST_CASE("multiply: block formats with int8 activations stay within the bound of rounding") {
  for (const DType dtype : kBlocks) {
    const StoredMatrix w = random_matrix(dtype, 48, 576, 6);
    const std::vector<float> x = random_values(3 * 576, 7);
    Expected expected = product(w, x, {});
    const std::vector<double> bounds = int8_bounds(w, x);
    for (size_t i = 0; i < bounds.size(); ++i) expected.tolerances[i] += bounds[i];
    check_everywhere(ActivationMode::kAuto, {&w, 1}, x, {}, false, expected);
  }
}

TEST_CASE("multiply: the extremes of integers do not overflow") {
  for (const DType dtype : kBlocks) {
    StoredMatrix w = random_matrix(dtype, 18, 64, 8);
    const auto block = static_cast<size_t>(facts(dtype).block_bytes);
    const std::byte extreme = dtype == DType::kQ8_0 ? std::byte{0x80} : std::byte{0xff};  // -128; 15 and 15
    for (size_t i = 0; i < w.bytes.size(); ++i) {
      if (i % block >= block - (dtype == DType::kQ8_0 ? 32 : 16)) w.bytes[i] = extreme;
    }
    for (int64_t row = 0; row < w.rows; ++row) {
      std::vector<float> values(64);
      const auto bytes = static_cast<size_t>(row_bytes(dtype, 64));
      dequantise_row(dtype, std::span(w.bytes).subspan(static_cast<size_t>(row) * bytes, bytes), values);
      std::copy(values.begin(), values.end(), w.values.begin() + row * 64);
    }
    for (const float sign : {1.0F, -1.0F}) {
      const std::vector<float> x(64, sign);
      check_everywhere(ActivationMode::kInt8, {&w, 1}, x, {}, false, product(w, x, {}));
    }
  }
}

TEST_CASE("multiply: stacked parts of different dtypes and of no rows") {
  const std::vector<StoredMatrix> parts = {
      random_matrix(DType::kQ4_1, 33, 64, 9), random_matrix(DType::kF32, 0, 64, 10),
      random_matrix(DType::kBF16, 20, 64, 11), random_matrix(DType::kQ8_0, 16, 64, 12)};
  const std::vector<float> x = random_values(5 * 64, 13);
  const std::vector<float> bias = random_values(69, 14);
  Expected expected;
  expected.values.resize(5 * 69);
  expected.tolerances.resize(5 * 69);
  int64_t first = 0;
  for (const StoredMatrix& part : parts) {
    const Expected own =
        product(part, x, std::span(bias).subspan(static_cast<size_t>(first), static_cast<size_t>(part.rows)));
    for (int64_t token = 0; token < 5; ++token) {
      for (int64_t row = 0; row < part.rows; ++row) {
        expected.values[token * 69 + first + row] = own.values[token * part.rows + row];
        expected.tolerances[token * 69 + first + row] = own.tolerances[token * part.rows + row];
      }
    }
    first += part.rows;
  }
  check_everywhere(ActivationMode::kF32, parts, x, bias, false, expected);
  int64_t bytes = 0;
  for (const StoredMatrix& part : parts) bytes += std::ssize(part.bytes);
  CHECK(load(*make_cpu_backend({}), parts)->bytes() == bytes);
}

TEST_CASE("multiply: nothing times something") {
  const auto backend = make_cpu_backend({.threads = 2, .cores = {}, .activations = ActivationMode::kAuto});
  const StoredMatrix no_columns = random_matrix(DType::kQ8_0, 20, 0, 15);
  const StoredMatrix no_rows = random_matrix(DType::kF16, 0, 7, 16);
  const auto wide = load(*backend, {&no_columns, 1});
  const auto flat = load(*backend, {&no_rows, 1});
  CHECK(wide->bytes() == 0);
  const std::vector<float> bias = random_values(20, 17);
  const auto bias_vector = backend->load_vector(bias);
  const auto out = filled(*backend, 1, 20, random_values(20, 18));
  const Activations empty{nullptr, 1, 0, 0};
  backend->multiply(*wide, empty, bias_vector.get(), out->view());
  CHECK(contents(out->view()) == bias);
  backend->multiply(*wide, empty, nullptr, out->view());
  CHECK(contents(out->view()) == std::vector<float>(20, 0.0F));
  const auto x = filled(*backend, 1, 7, random_values(7, 19));
  CHECK_NOTHROW(backend->multiply(*flat, x->view(), nullptr, empty));
  CHECK_NOTHROW(backend->multiply(*flat, x->view().first_rows(0), nullptr, {nullptr, 0, 0, 0}));
}

TEST_CASE("multiply: a NaN or an infinity among the activations shows in every mode") {
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::kInt8}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const StoredMatrix w = random_matrix(DType::kQ4_1, 16, 64, 20);
      std::vector<float> x = random_values(64, 21);
      x[40] = bad;
      for_each_target([&](const std::string& target) {
        INFO(target);
        for (const float value : multiplied({1, mode}, {&w, 1}, x, {}, false)) CHECK_FALSE(std::isfinite(value));
      });
    }
  }
}

TEST_CASE("gated_multiply: silu of the gate times up, biases included") {
  for (const DType dtype : kAll) {
    for (const Shape& shape : {Shape{1, 32, 1}, Shape{33, 64, 3}, Shape{80, 96, 9}, Shape{160, 576, 1}}) {
      const std::vector<StoredMatrix> parts = {random_matrix(dtype, shape.rows, shape.columns, 22),
                                               random_matrix(dtype, shape.rows, shape.columns, 23)};
      const std::vector<float> x = random_values(shape.tokens * shape.columns, 24);
      const std::vector<float> bias = random_values(2 * shape.rows, 25);
      const auto rows = static_cast<size_t>(shape.rows);
      const Expected expected =
          gated(product(parts[0], x, std::span(bias).first(rows)), product(parts[1], x, std::span(bias).last(rows)));
      check_everywhere(ActivationMode::kF32, parts, x, bias, true, expected);
    }
  }
}

TEST_CASE("gated_multiply: parts of different dtypes and large gates") {
  const std::vector<StoredMatrix> parts = {random_matrix(DType::kF32, 37, 64, 26),
                                           random_matrix(DType::kQ4_0, 37, 64, 27)};
  std::vector<float> x = random_values(2 * 64, 28);
  for (float& value : x) value *= 300.0F;
  check_everywhere(ActivationMode::kF32, parts, x, {}, true, gated(product(parts[0], x, {}), product(parts[1], x, {})));
}

TEST_CASE("multiply: wrong shapes are bugs") {
  const auto backend = make_cpu_backend({});
  const StoredMatrix stored = random_matrix(DType::kF32, 8, 4, 29);
  const auto w = load(*backend, {&stored, 1});
  const auto x = backend->make_activations(2, 4);
  const auto out = backend->make_activations(2, 8);
  const auto bias = backend->load_vector(random_values(7, 30));
  CHECK_THROWS_AS(backend->multiply(*w, out->view(), nullptr, out->view()), BugError);
  CHECK_THROWS_AS(backend->multiply(*w, x->view(), nullptr, x->view()), BugError);
  CHECK_THROWS_AS(backend->multiply(*w, x->view(), bias.get(), out->view()), BugError);
  CHECK_THROWS_AS(backend->multiply(*w, x->view().first_rows(1), nullptr, out->view()), BugError);
  CHECK_THROWS_AS(backend->gated_multiply(*w, x->view(), nullptr, out->view()), BugError);
}
