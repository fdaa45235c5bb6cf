#include "launch/rehearsal.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "launch/sweep_options.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;

namespace {

using Words = std::vector<std::string>;

constexpr SweepDefaults kScale{.command = "scale",
                               .powers_of_two = true,
                               .protocol = {.least_generations = 12, .noise_bound = 0.02, .max_seconds = 60},
                               .rehearses = true};

po::variables_map values_of(const Words& words, const SweepDefaults& defaults = kScale) {
  return parse_arguments(sweep_option_list(defaults), words, defaults.command);
}

std::vector<int> degrees(const Words& words, int ranks = 1) {
  return rehearsed_degrees(values_of(words), ranks);
}

}  // namespace

TEST_CASE("rehearsed_degrees: a list up to 8, of one rank") {
  CHECK(degrees({}).empty());
  CHECK(degrees({}, 4).empty());
  CHECK(degrees({"--rehearse", "1,2,4,8"}) == std::vector<int>{1, 2, 4, 8});
  CHECK(degrees({"--rehearse", "1..3", "--placement", "linear"}) == std::vector<int>{1, 2, 3});
  CHECK_THROWS_WITH(degrees({"--rehearse", "9"}), Contains("--rehearse"));
  CHECK_THROWS_WITH(degrees({"--rehearse", "2", "--tp", "2"}), Contains("--rehearse, --tp"));
  CHECK_THROWS_WITH(degrees({"--rehearse", "2"}, 2), Contains("rehearsal needs one rank") && Contains("mpirun -np 1"));
  CHECK_THROWS_WITH(degrees({"--rehearse", "2", "--placement", "best"}), Contains("--placement"));
  CHECK_THROWS_WITH(degrees({"--topology", "file"}), Contains("add --rehearse"));
}

TEST_CASE("rehearsal options: of scale alone") {
  SweepDefaults bench = kScale;
  bench.rehearses = false;
  CHECK_THROWS_AS(values_of({"--rehearse", "2"}, bench), UserError);
  CHECK(rehearsed_degrees(values_of({}, bench), 1).empty());
}

TEST_CASE("rehearsal_options: a machine's all-reduces from its file") {
  parallel::World world({.use_mpi = false});
  Session session{.world = world, .launcher = {}, .argv = {}};
  const std::string file = SHARDSCOPE_TEST_DATA "/topologies/nccl-tests/digitalocean-h100-sxm-2gpu.txt";
  const runtime::RehearsalOptions options =
      rehearsal_options(values_of({"--rehearse", "2", "--topology", file}), session);
  CHECK(options.topology == file);
  CHECK(options.times.time(2, 8192));
  CHECK_FALSE(options.backend_at);
  const runtime::RehearsalOptions catalogued =
      rehearsal_options(values_of({"--rehearse", "2", "--topology", "aws-p5"}), session);
  CHECK(catalogued.topology == "aws-p5");
  CHECK(catalogued.times.time(2, 8192));  // the public table of its class
  CHECK(rehearsal_options(values_of({"--rehearse", "2"}), session).topology.empty());
  CHECK_THROWS_AS(rehearsal_options(values_of({"--rehearse", "2", "--topology", "/no/such"}), session), UserError);
}

TEST_CASE("take_place_of_many: one rank takes the first of as many places as it stands for") {
  parallel::World world({.use_mpi = false});
  const Session session{.world = world, .launcher = {}, .argv = {}};
  const std::vector<int> before = topology::probe_host().launcher_cores;
  const Place place = take_place_of_many(session, 1, {1, 3});
  topology::bind_process(before);
  CHECK(place.ranks == 3);
  CHECK(place.threads == 1);
  CHECK(place.cores == topology::cores_for_rank(place.host, 0, 3, 1));
  CHECK(place.oversubscribed == (place.host.usable_cores() < 3));
}
