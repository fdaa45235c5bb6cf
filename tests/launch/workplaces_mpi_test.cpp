// Under mpirun with two ranks, on the CPU or on (emulated) GPUs: they change places and back, are where they should be
// each time, say the same tokens there, and make nothing anew while they stay.
// Usage: mpirun -n 2 workplaces_mpi_test cpu|cuda
#include <cstdio>
#include <stdexcept>
#include <string>

#include "launch/workplaces.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/generate/sampler.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using topology::PlacedGroup;
using topology::Placement;

namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<int32_t> tokens_of(parallel::World& world, const runtime::Workplace& work) {
  using namespace runtime;
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), world.size());
  const DecoderOptions shape{.slots = 1, .max_positions = 16, .max_step_tokens = 8};
  const auto communicator = parallel::make_communicator(
      world, {.group_size = world.size(),
              .kind = work.on_device ? parallel::CommunicatorKind::kNccl : parallel::CommunicatorKind::kShm,
              .max_floats = std::max(largest_all_reduce_floats(model.config, shape), Sampler::max_exchange_floats(1)),
              .oversubscribed = true,
              .on_device = work.on_device});
  const RankContext context{*work.backend, *communicator, world};
  Decoder decoder(model.config, *model.weights, plan, shape, context);
  Sampler sampler(*work.backend, *communicator, decoder.vocab_range(), model.config.vocab, 1);
  const std::vector<GenerationRequest> requests = {{.prompt_ids = {1, 2, 3}, .max_tokens = 8}};
  return generate_batch(decoder, sampler, context, requests, {}).front().output_ids;
}

void change_places(parallel::World& world, BackendKind kind) {
  Session session{.world = world, .launcher = {.name = "mpirun", .use_mpi = true}, .argv = {}};
  const Place place = take_place(session, 1);
  const auto self = static_cast<size_t>(world.rank());
  const PlacedGroup stay = topology::linear_group(2);
  const PlacedGroup swapped{.placement = Placement::kWorst, .places = {1, 0}};
  const PlacedGroup alone{.placement = Placement::kWorst, .places = {1}};  // rank 1 makes room
  PlacementPlan plan{.groups = {{alone}, {stay, swapped}}};
  for (int rank = 0; rank < 2; ++rank) {
    plan.seats.push_back({.cores = topology::cores_for_rank(place.host, rank, world.host_size(), 1)});
  }
  expect(plan.moves() && plan.later_places(0) == std::vector<int>{1}, "who moves where");
  const BackendChoice choice = choose_backend({.kind = kind}, session);
  EngineRequest request{.quiet = true, .moves = true};
  if (choice.on_devices) request.later_devices = {choice.ordinals[1 - self]};
  Engine engine = make_engine(request, choice, place, session);
  Workplaces workplaces(plan, request, choice, engine, place, session);
  const auto mask = [] { return topology::probe_host().launcher_cores; };
  const auto& own = plan.seats[self].cores;
  const auto& other = plan.seats[1 - self].cores;

  const std::string description = engine.backend->description();  // on a GPU with its number
  const kernels::Backend* const first = engine.backend.get();
  const runtime::Workplace at_first = workplaces.take(stay);
  expect(at_first.backend == first && mask() == own, "nobody moves at first");
  const std::vector<int32_t> tokens = tokens_of(world, at_first);
  expect(tokens.size() == 8, "eight tokens");

  const runtime::Workplace moved = workplaces.take(swapped);
  expect(mask() == other, "at the other's cores");
  expect(moved.backend == engine.backend.get() && moved.activity != nullptr, "with a backend of its own");
  expect(!choice.on_devices || engine.backend->description() != description, "on the other's device");
  expect(tokens_of(world, moved) == tokens, "the same tokens there");
  expect(workplaces.take(swapped).backend == moved.backend, "nothing is made anew for the next visit");
  expect(workplaces.take(alone).backend == moved.backend && mask() == other, "all are where that group has them");

  const runtime::Workplace back = workplaces.take(stay);
  expect(mask() == own, "back at its own cores");
  expect(engine.backend->description() == description, "and on its own device");
  expect(tokens_of(world, back) == tokens, "and the same tokens");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 2 ? argv[1] : "";
  parallel::World world({.use_mpi = true});
  if (world.size() != 2 || (kind != "cpu" && kind != "cuda")) return 2;
  try {
    change_places(world, kind == "cuda" ? BackendKind::kCuda : BackendKind::kCpu);
  } catch (const std::exception& error) {
    world.fail(1, error.what());
  }
  world.barrier("end of the test");
  if (world.rank() == 0) std::puts("two ranks changed places and came back");
  return 0;
}
