// Under mpirun: the decode loop of a group of ranks allocates nothing, all-reduces and candidate exchange included.
// Usage: mpirun -n N decode_allocation_mpi_test shm|mpi
#include <cstdio>
#include <string>

#include "runtime/generate/generate.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/support/allocations.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

int64_t allocations_of_decoding(parallel::World& world, parallel::CommunicatorKind kind) {
  constexpr int64_t kBatch = 2;
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), world.size());
  const DecoderOptions shape{.slots = kBatch, .max_positions = 64, .max_step_tokens = 16};
  const auto communicator =
      parallel::make_communicator(world, {.group_size = world.size(),
                                          .kind = kind,
                                          .max_floats = largest_all_reduce_floats(model.config, shape),
                                          .oversubscribed = true});
  const RankContext context{*backend, *communicator, world};
  Decoder decoder(model.config, *model.weights, plan, shape, context);
  Sampler sampler(*backend, *communicator, decoder.vocab_range(), model.config.vocab, kBatch);
  const std::vector<GenerationRequest> requests(kBatch, {.prompt_ids = {1, 2, 3, 4, 5}, .max_tokens = 40});
  int64_t first = -1, last = -1;
  GenerateOptions options;
  options.on_token = [&](size_t request, int32_t) {
    if (request != 0) return false;
    last = test::allocation_count();
    if (first < 0) first = last;
    return false;
  };
  generate_batch(decoder, sampler, context, requests, options);
  return first < 0 ? -1 : last - first;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 2 ? argv[1] : "";
  if (kind != "shm" && kind != "mpi") return 2;
  parallel::World world({.use_mpi = true});
  const int64_t allocated = allocations_of_decoding(
      world, kind == "shm" ? parallel::CommunicatorKind::kShm : parallel::CommunicatorKind::kMpi);
  const std::vector<double> mine = {static_cast<double>(allocated)};
  bool right = world.size() > 1;
  for (const double count : world.all_gather(mine, "counts")) right = right && count == 0;
  if (world.rank() == 0) {
    std::printf("%d ranks, %s: rank 0 allocated %lld times while decoding\n", world.size(), kind.c_str(),
                static_cast<long long>(allocated));
  }
  return right ? 0 : 1;
}
