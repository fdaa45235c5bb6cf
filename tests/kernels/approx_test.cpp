#include "tests/support/approx.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

using shardscope::test::close;
using shardscope::test::first_difference;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("approx: NaN never passes") {
  CHECK_FALSE(close(kNan, 1.0, 1.0));
  CHECK_FALSE(close(1.0, kNan, 1.0));
  CHECK_FALSE(close(kNan, kNan, kInfinity));
  CHECK_FALSE(close(1.0, 2.0, kNan));
}

TEST_CASE("approx: infinities pass only where expected") {
  CHECK(close(kInfinity, kInfinity, 0.0));
  CHECK_FALSE(close(-kInfinity, kInfinity, 1e30));
  CHECK_FALSE(close(kInfinity, 1.0, 1e30));
  CHECK_FALSE(close(1.0, -kInfinity, 1e30));
}

TEST_CASE("approx: the tolerance itself passes and a planted error is named") {
  CHECK(close(1.5, 1.0, 0.5));
  CHECK_FALSE(close(1.5000001, 1.0, 0.5));
  std::vector<float> actual = {1, 2, 3};
  const std::vector<double> expected = {1, 2, 3};
  CHECK(first_difference(actual, expected, 0.0).empty());
  actual[1] = 2.1F;
  CHECK(first_difference(actual, expected, 0.05).find("element 1") == 0);
  actual[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(first_difference(actual, expected, 1e30).empty());
  CHECK_FALSE(first_difference(std::vector<float>{1, 2}, expected, 1e30).empty());
}
