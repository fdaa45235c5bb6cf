// A world of one rank without MPI.
#include "parallel/world.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "parallel/communicator.hpp"

namespace shardscope::parallel {
namespace {

TEST_CASE("World: without a launcher there is one rank, and collectives return what they are given") {
  World world({});
  CHECK(world.size() == 1);
  CHECK(world.rank() == 0);
  CHECK(world.host_rank() == 0);
  CHECK(world.host_size() == 1);
  CHECK(world.one_host());
  CHECK(world.hosts() == std::vector<std::string>{world.host()});
  CHECK(world.mpi_version().empty());
  world.progress("testing");
  world.barrier("nothing");
  CHECK(world.broadcast_text("text", 0, "nothing") == "text");
  CHECK(world.all_gather_text("text", "nothing") == std::vector<std::string>{"text"});
  CHECK(world.all_gather(std::vector<double>{1, 2}, "nothing") == std::vector<double>{1, 2});
}

TEST_CASE("World::wait: ends when ready, and after the timeout when never") {
  World world({});
  int polls = 0;
  world.wait([&] { return ++polls == 200; }, "counting", std::vector<int>{0});
  CHECK(polls == 200);
  world.set_timeout(std::chrono::milliseconds(50));
  CHECK_THROWS_AS(world.wait([] { return false; }, "nothing", std::vector<int>{0}), SystemError);
}

TEST_CASE("World::at_failure: acts before a wait ends by others' failure, until it is cancelled") {
  World world({});
  world.set_timeout(std::chrono::milliseconds(20));
  std::string acts;
  const int64_t first = world.at_failure([&] { acts += "first "; });
  const int64_t second = world.at_failure([&] { acts += "second "; });
  const auto wait = [&](bool ready) { world.wait([&] { return ready; }, "nothing", std::vector<int>{0}); };
  wait(true);
  CHECK(acts.empty());
  CHECK_THROWS_AS(wait(false), SystemError);
  CHECK(acts == "first second ");
  world.cancel_at_failure(first);
  CHECK_THROWS_AS(wait(false), SystemError);
  CHECK(acts == "first second second ");
  world.cancel_at_failure(second);
  CHECK_THROWS_AS(wait(false), SystemError);
  CHECK(acts == "first second second ");
  // What `ready` throws is nobody else's failure.
  world.at_failure([&] { acts += "third"; });
  CHECK_THROWS_AS(world.wait([]() -> bool { throw BugError("here"); }, "nothing", std::vector<int>{0}), BugError);
  CHECK(acts == "first second second ");
}

TEST_CASE("World::announce_end: the first to say so prints, the second does not") {
  World world({});
  CHECK(world.announce_end(1, "interrupted"));
  CHECK_FALSE(world.announce_end(1, "interrupted again"));
}

TEST_CASE("make_communicator: a group of one needs no transport") {
  World world({});
  const auto communicator = make_communicator(world, {});
  CHECK(communicator->name() == "none");
  CHECK(communicator->size() == 1);
  std::vector<float> data{1, 2, 3};
  communicator->all_reduce(data);
  CHECK(data == std::vector<float>{1, 2, 3});
  std::vector<float> all(3);
  communicator->all_gather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(all)));
  CHECK(all == data);
  CHECK_THROWS_AS(make_communicator(world, {.group_size = 2}), BugError);
}

}  // namespace
}  // namespace shardscope::parallel
