#include "parallel/rehearsed_communicator.hpp"

#include <array>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"

using namespace shardscope;
using namespace shardscope::parallel;

TEST_CASE("rehearsed communicator: a rank alone goes through every call of a group without waiting") {
  const auto communicator = make_rehearsed_communicator(1, 3, Absent::kSame);
  CHECK(communicator->rank() == 1);
  CHECK(communicator->size() == 3);
  CHECK(communicator->name() == "rehearsed");
  CHECK(communicator->sum_choices().choices.empty());
  std::array<float, 3> sum = {1, -2, 3};
  communicator->all_reduce(std::span(sum));
  CHECK(sum == std::array<float, 3>{1, -2, 3});
  double word = 7;
  communicator->broadcast(std::as_writable_bytes(std::span(&word, 1)), 0);
  CHECK(word == 7);
  communicator->barrier();
  CHECK_THROWS_AS(communicator->broadcast(std::as_writable_bytes(std::span(&word, 1)), 3), BugError);
  CHECK_THROWS_AS(make_rehearsed_communicator(3, 3, Absent::kSame), BugError);
}

TEST_CASE("rehearsed communicator: the others say the same as this rank, or zeros") {
  const std::vector<int32_t> mine = {4, 5};
  const auto gathered = [&](Absent others) {
    std::vector<int32_t> all(6, -1);
    make_rehearsed_communicator(1, 3, others)
        ->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return all;
  };
  CHECK(gathered(Absent::kSame) == std::vector<int32_t>{4, 5, 4, 5, 4, 5});
  CHECK(gathered(Absent::kZeros) == std::vector<int32_t>{0, 0, 4, 5, 0, 0});
  std::vector<int32_t> short_of_one(5);
  CHECK_THROWS_AS(make_rehearsed_communicator(1, 3, Absent::kSame)
                      ->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(short_of_one))),
                  BugError);
}
