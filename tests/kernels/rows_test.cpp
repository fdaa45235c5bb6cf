// Norms, embedding and selection of rows.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

namespace {

constexpr float kEpsilon = 1e-5F;

Expected normed(std::span<const float> x, std::span<const float> weight) {
  Expected expected;
  const size_t columns = weight.size();
  for (size_t begin = 0; begin < x.size(); begin += columns) {
    double squares = 0;
    for (size_t i = 0; i < columns; ++i) squares += std::pow(static_cast<double>(x[begin + i]), 2);
    const double norm = std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(kEpsilon));
    for (size_t i = 0; i < columns; ++i) {
      expected.values.push_back(static_cast<double>(x[begin + i]) / norm * static_cast<double>(weight[i]));
      expected.tolerances.push_back(kF32Epsilon * static_cast<double>(columns + 8) * std::abs(expected.values.back()));
    }
  }
  return expected;
}

Backend& two_threads() {
  static const auto backend = make_cpu_backend({.threads = 2, .cores = {}, .activations = ActivationMode::kAuto});
  return *backend;
}

}  // namespace

TEST_CASE("multiply: the norm before it is that of the residual and what is added to it") {
  Backend& backend = two_threads();
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 7}, {2, 33}, {40, 576}}) {
    for (const bool adds : {false, true}) {
      const std::vector<float> x = random_values(rows * columns, 1);
      const std::vector<float> addend = random_values(rows * columns, 2);
      std::vector<float> sum(x);
      for (size_t i = 0; adds && i < sum.size(); ++i) sum[i] += addend[i];
      const std::vector<float> weight = random_values(columns, 3);
      const auto weights = backend.load_vector(weight);
      const std::vector<StoredMatrix> identity = {identity_matrix(columns)};
      const auto matrix = load(backend, identity);
      const Expected expected = normed(sum, weight);
      for_each_target([&](const std::string& target) {
        INFO(target << ", " << columns << " columns, " << (adds ? "with" : "without") << " addend");
        const auto residual = filled(backend, rows, columns, x);
        const auto added = filled(backend, rows, columns, addend);
        const auto total = backend.make_activations(rows, columns);
        const auto scratch = backend.make_activations(rows, columns);
        const auto out = backend.make_activations(rows, columns);
        const Activations added_view = added->view();
        backend.multiply(
            *matrix,
            {residual->view(), adds ? &added_view : nullptr, weights.get(), kEpsilon, total->view(), scratch->view()},
            nullptr, out->view());
        CHECK(contents(residual->view()) == x);
        CHECK(contents(added->view()) == addend);
        if (adds) CHECK(contents(total->view()) == sum);
        CHECK(first_difference(contents(out->view()), expected.values, expected.tolerances) == "");
      });
    }
  }
}

TEST_CASE("embed: rows of a packed table of every dtype, zeros for other ranks' rows") {
  Backend& backend = two_threads();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const std::vector<StoredMatrix> parts = {random_matrix(dtype, 37, 288, 6), random_matrix(DType::kF32, 5, 288, 7)};
    const auto table = load(backend, parts);
    const std::vector<int32_t> ids = {100, 99, 141, 142, 136, 137, 117, 131};  // the table's first id is 100
    const StepSequence sequence{0, 0, std::ssize(ids)};
    const auto out = filled(backend, std::ssize(ids), 288, random_values(std::ssize(ids) * 288, 8));
    run(backend, {ids, {&sequence, 1}, {}, 1.0F}, [&] { backend.embed(*table, 100, out->view()); });
    std::vector<double> expected;
    for (const int32_t id : ids) {
      for (int64_t column = 0; column < 288; ++column) {
        const int64_t row = id - 100;
        const bool present = row >= 0 && row < 42;
        const StoredMatrix& part = parts[row < 37 ? 0 : 1];
        expected.push_back(present ? part.values[(row < 37 ? row : row - 37) * 288 + column] : 0.0);
      }
    }
    CHECK(first_difference(contents(out->view()), expected, 0.0) == "");
  }
}

TEST_CASE("embed: a table without rows gives zeros") {
  Backend& backend = two_threads();
  const StoredMatrix none = random_matrix(DType::kQ8_0, 0, 32, 9);
  const auto table = load(backend, {&none, 1});
  const std::vector<int32_t> ids = {0, 7};
  const StepSequence sequence{0, 0, 2};
  const auto out = filled(backend, 2, 32, random_values(64, 10));
  run(backend, {ids, {&sequence, 1}, {}, 1.0F}, [&] { backend.embed(*table, 0, out->view()); });
  CHECK(contents(out->view()) == std::vector<float>(64, 0.0F));
}

TEST_CASE("select_rows: picks rows in the given order") {
  Backend& backend = two_threads();
  const auto x = filled(backend, 3, 2, std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto out = backend.make_activations(2, 2);
  const std::vector<int32_t> ids = {0, 0, 0};
  const StepSequence sequence{0, 0, 3};
  const std::vector<int32_t> rows = {2, 0};
  run(backend, {ids, {&sequence, 1}, {}, 1.0F, rows}, [&] { backend.select_rows(x->view(), out->view()); });
  CHECK(contents(out->view()) == std::vector<float>{5, 6, 1, 2});
  const std::vector<int32_t> wrong = {2, 3};
  run(backend, {ids, {&sequence, 1}, {}, 1.0F, wrong},
      [&] { CHECK_THROWS_AS(backend.select_rows(x->view(), out->view()), BugError); });
}

TEST_CASE("run_step: counts that do not sum to the tokens are a bug") {
  const std::vector<int32_t> ids = {1, 2};
  const StepSequence sequence{0, 0, 3};
  CHECK_THROWS_AS(run(two_threads(), {ids, {&sequence, 1}, {}, 1.0F}, [] {}), BugError);
}
