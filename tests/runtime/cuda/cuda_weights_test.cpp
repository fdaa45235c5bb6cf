// The weights of a rank on a device: how many bytes they take there against the file's, and how many launches read
// them.
#include <catch2/catch.hpp>

#include "kernels/cuda/backend.hpp"
#include "runtime/measure/device_room.hpp"
#include "runtime/resident_weights.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/support/decoding.hpp"
#include "tests/support/lone_member.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;

namespace {

OpenedModel small_model(const std::string& name) {
  if (name == "tiny") return open_model({.model = name, .dtype = DType::kBF16});
  return open_model({.model = SHARDSCOPE_TEST_DATA "/" + name});
}

int64_t free_bytes() {
  size_t free = 0;
  size_t all = 0;
  test::check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

int64_t reads() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find("read_bytes_kernel") != std::string::npos) count += counters.launches;
  }
  return count;
}

}  // namespace

TEST_CASE("cuda weights: a shard takes the bytes of its planes, in one allocation that the ledger knew") {
  const std::string name = GENERATE("tiny", "cases/A09-gguf/gqa-Q4_0.gguf", "reference/tiny/qwen2-bias");
  const int ranks = GENERATE(1, 3, 8);
  const OpenedModel model = small_model(name);
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(name, ranks, rank);
    emulation::restart({.multiprocessors = 6});
    const auto backend = cuda::make_backend({.scratch_bytes = 1 << 20, .upload_bytes = 1 << 16});
    const WeightShard shard{model.config, *model.weights, plan, rank};
    const kernels::ExpectedWeights announced = announced_weights(shard);
    const int64_t free_before = free_bytes();
    emulation::clear_calls();
    ResidentWeights weights = load_weights(shard, *backend, [](int64_t) {});
    CHECK(emulation::calls().at("cudaMalloc") == 1);
    CHECK(weights.bytes == stored_bytes(announced));

    // A plane ends at most 255 bytes before the next one; a matrix of one format has at most two.
    const int64_t planes = 2 * std::ssize(announced.matrices) + std::ssize(announced.vectors);
    const int64_t taken = free_before - free_bytes();
    CHECK(static_cast<double>(taken) <=
          1.02 * static_cast<double>(weights.bytes) + 256.0 * static_cast<double>(planes));
    CHECK(taken >= weights.bytes);
    const std::vector<int64_t> room(static_cast<size_t>(ranks), int64_t{1} << 40);
    const DeviceRoom known = tightest_room(model, plan, {.max_positions = 1}, room, 0);
    if (rank == known.rank) {
      constexpr int64_t kPiece = 512;  // of which the stand-in gives whole ones
      CHECK((known.needed.weights + kPiece - 1) / kPiece * kPiece == taken);
    }

    weights = {};
    CHECK(free_bytes() == free_before);
    CHECK(emulation::take_reports().empty());
  }
}

TEST_CASE("cuda weights: all that a decode step reads of them is read by one launch") {
  // With a head of its own and without, plain and in blocks.
  const std::string name = GENERATE("tiny", "cases/A09-gguf/gqa-Q4_0.gguf", "reference/tiny/llama-gqa-9-3-tied");
  const int ranks = GENERATE(1, 3);
  const OpenedModel model = small_model(name);
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(name, ranks, rank);
    emulation::restart({.multiprocessors = 6});
    const auto backend = cuda::make_backend({.scratch_bytes = 1 << 20, .upload_bytes = 1 << 16});
    test::LoneMember communicator(rank, ranks);
    parallel::World world({.use_mpi = false});
    const Decoder decoder(model.config, *model.weights, plan, {.max_positions = 8, .precision = backend->precision()},
                          {*backend, communicator, world});
    const uint64_t once = backend->read_all(decoder.read_every_step(), nullptr, {});
    CHECK(reads() == 1);
    CHECK(once != 0);
    CHECK(backend->read_all(decoder.read_every_step(), &decoder.kv_cache(), {}) == once);
    CHECK(reads() == 2);
    CHECK(emulation::take_reports().empty());
  }
}
