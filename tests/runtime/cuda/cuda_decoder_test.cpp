// The whole decoder on the CUDA backend, on emulated devices: its logits and tokens are those of the references, in
// every dtype and block format.
#include <catch2/catch.hpp>
#include <limits>

#include "kernels/cuda/backend.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/support/decoding.hpp"
#include "tests/support/tolerances.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;

namespace {

const std::string kData = SHARDSCOPE_TEST_DATA;
// A small device, so that sequences are split over few blocks; the kernels' own tests look at many orders.
const test::Conditions kConditions{.multiprocessors = 6, .seeds = 1};

/// One rank on an emulated device.
struct CudaRank {
  explicit CudaRank(cuda::BackendOptions options) : backend(cuda::make_backend(options)) {}

  RankContext context() { return {*backend, *communicator, world}; }

  parallel::World world{{.use_mpi = false}};
  std::unique_ptr<parallel::Communicator> communicator = parallel::make_communicator(world, {.group_size = 1});
  std::unique_ptr<cuda::CudaBackend> backend;
};

cuda::BackendOptions options_of(DType activations) {
  return {.precision = {.activations = activations, .kv = activations},
          .weights_together = !emulation::checked(),  // the checker knows where an allocation ends
          .scratch_bytes = 1 << 20,
          .upload_bytes = 1 << 16};
}

test::GroupResult run_on_cuda(const OpenedModel& model, const std::vector<int32_t>& ids, int64_t new_tokens,
                              int64_t chunk, const cuda::BackendOptions& options) {
  test::GroupResult result;
  test::under_conditions(kConditions, [&] {
    CudaRank rank(options);
    const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), 1);
    result = test::prompt_result(model, plan, ids, new_tokens, chunk, rank.context());
  });
  return result;
}

/// Up to the first margin that the tolerance may turn; how many tokens that are.
size_t check_greedy(const std::vector<int32_t>& actual, const nlohmann::json& prompt, double tolerance) {
  const auto greedy = prompt.at("greedy").get<std::vector<int32_t>>();
  const auto margins = prompt.at("margins").get<std::vector<double>>();
  size_t i = 0;
  for (; i < actual.size() && margins[i] > 2 * tolerance; ++i) {
    CAPTURE(i);
    REQUIRE(actual.at(i) == greedy[i]);
  }
  return i;
}

}  // namespace

TEST_CASE("cuda decoder: tiny models give their reference logits and tokens") {
  const std::string name =
      GENERATE("llama-mha", "llama-gqa-9-3-tied", "llama-rope-llama3", "llama-head-dim", "llama-sharded", "qwen2-bias");
  CAPTURE(name);
  const std::string folder = kData + "/reference/tiny/" + name;
  const OpenedModel model = open_model({.model = folder});
  const nlohmann::json prompts = test::read_json(folder + ".json").at("prompts");
  size_t compared = 0;
  for (const size_t i : {1, 2}) {
    if (emulation::checked() && i == 2) continue;  // takes long, and shows the same
    const nlohmann::json& prompt = prompts[i];
    const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
    const auto expected = prompt.at("last_logits").get<std::vector<double>>();
    CAPTURE(ids.size());
    const double tolerance = test::logit_tolerance(model.config, expected);
    // Pieces of 16 go through cuBLASLt and the tiled attention, of 5 through the matrix-vector kernels.
    const int64_t chunk = i == 2 ? 16 : 5;
    const auto result = run_on_cuda(model, ids, 6, chunk, options_of(DType::kF32));
    CHECK(test::first_wrong(result.last_logits, expected, tolerance) == "");
    CHECK(std::abs(result.prompt_nll - prompt.at("prompt_nll").get<double>()) <=
          1e-4 + 2 * tolerance * static_cast<double>(ids.size()));
    compared += check_greedy(result.greedy, prompt, tolerance);
  }
  CHECK(compared > 0);
}

TEST_CASE("cuda decoder: activations of 16 bits stay near the reference") {
  const auto [name, dtype] = GENERATE(std::pair{"llama-gqa-9-3-tied", DType::kF16},
                                      std::pair{"qwen2-bias", DType::kBF16}, std::pair{"llama-head-dim", DType::kBF16});
  CAPTURE(name, kernels::facts(dtype).name);
  const std::string folder = kData + "/reference/tiny/" + name;
  const OpenedModel model = open_model({.model = folder, .dtype = dtype});
  const nlohmann::json prompt = test::read_json(folder + ".json").at("prompts").at(0);
  const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
  const auto expected = prompt.at("last_logits").get<std::vector<double>>();
  // Weights, and what every operation of a layer gives, are rounded to the type once: some ten roundings a layer, each
  // of at most half a step of its own size, that add up along the residual as independent errors do, or worse.
  const double step = dtype == DType::kF16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
  double magnitude = 0;
  for (const double logit : expected) magnitude = std::max(magnitude, std::abs(logit));
  const double tolerance = 10.0 * static_cast<double>(model.config.layers) * step * magnitude;
  const auto result = run_on_cuda(model, ids, 2, 16, options_of(dtype));
  CHECK(test::first_wrong(result.last_logits, expected, tolerance) == "");
}

TEST_CASE("cuda decoder: files in every block format give their greedy ids") {
  struct Case {
    const char* file;
    const char* expected;
  };
  const auto [file, expected] =
      GENERATE(Case{"gqa-F32.gguf", "expected.json"}, Case{"gqa-F16.gguf", "expected.json"},
               Case{"gqa-BF16.gguf", "expected.json"}, Case{"gqa-Q4_0.gguf", "expected-Q4_0.json"},
               Case{"gqa-Q4_1.gguf", "expected-Q4_1.json"}, Case{"gqa-Q8_0.gguf", "expected-Q8_0.json"});
  CAPTURE(file);
  const OpenedModel model = open_model({.model = kData + "/cases/A09-gguf/" + file});
  const nlohmann::json reference = test::read_json(kData + "/cases/A09-gguf/" + expected);
  const auto ids = reference.at("prompt_ids").get<std::vector<int32_t>>();
  const auto greedy = reference.at("greedy_ids").get<std::vector<int32_t>>();
  const int64_t new_tokens = std::min<int64_t>(std::ssize(greedy), 8);
  const auto result = run_on_cuda(model, ids, new_tokens, 8, options_of(DType::kF32));
  CHECK(result.greedy == std::vector<int32_t>(greedy.begin(), greedy.begin() + new_tokens));
  for (const nlohmann::json& entry : reference.at("first_step_top8")) {
    const double logit = result.last_logits.at(entry.at(0).get<size_t>());
    CHECK(std::abs(logit - entry.at(1).get<double>()) <= 1e-3);  // the bound that the cases state for fp32
  }
}

TEST_CASE("cuda decoder: quantised weights in a large batch are converted a slab at a time") {
  // 70 tokens at once: more than go through the matrix-vector kernels, with room for some rows of weights at a time.
  const std::string file = GENERATE("gqa-Q4_0.gguf", "gqa-Q8_0.gguf", "gqa-BF16.gguf");
  const OpenedModel model = open_model({.model = kData + "/cases/A09-gguf/" + file});
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 37 + 5) % static_cast<int32_t>(model.config.vocab));
  cuda::BackendOptions options = options_of(DType::kF32);
  options.scratch_bytes = 1 << 16;
  const auto whole = run_on_cuda(model, ids, 0, 70, options);
  const auto pieces = run_on_cuda(model, ids, 0, 7, options);
  const std::vector<double> expected(pieces.last_logits.begin(), pieces.last_logits.end());
  CHECK(test::first_wrong(whole.last_logits, expected, test::logit_tolerance(model.config, expected)) == "");
}

TEST_CASE("cuda decoder: a batch that shrinks gives each request what it gets alone, with graphs and without") {
  const OpenedModel model = open_model({.model = kData + "/reference/tiny/llama-gqa-9-3-tied"});
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), 1);
  const std::vector<GenerationRequest> requests = {{.prompt_ids = {1, 2, 3, 4, 5}, .max_tokens = 3},
                                                   {.prompt_ids = {9}, .max_tokens = 7},
                                                   {.prompt_ids = {7, 7, 20, 31, 4, 40, 2, 11, 5}, .max_tokens = 5}};
  const auto run = [&](std::span<const GenerationRequest> some, bool graphs) {
    emulation::restart({.seed = graphs ? 3U : 4U, .multiprocessors = 6});
    cuda::BackendOptions options = options_of(DType::kF32);
    options.graphs = graphs;
    CudaRank rank(options);
    Decoder decoder(model.config, *model.weights, plan,
                    {.slots = std::ssize(some), .max_positions = 16, .max_step_tokens = 16}, rank.context());
    Sampler sampler(*rank.backend, *rank.communicator, decoder.vocab_range(), model.config.vocab, std::ssize(some));
    std::vector<std::vector<int32_t>> ids;
    for (int round = 0; round < 2; ++round) {  // the second one replays what the first recorded
      ids.clear();
      for (const GenerationResult& result : generate_batch(decoder, sampler, rank.context(), some, {})) {
        ids.push_back(result.output_ids);
      }
    }
    CHECK(emulation::take_reports().empty());
    return ids;
  };
  std::vector<std::vector<int32_t>> alone;
  for (const GenerationRequest& request : requests) alone.push_back(run({&request, 1}, false).front());
  CHECK(run(requests, true) == alone);
  CHECK(run(requests, false) == alone);
}

TEST_CASE("cuda decoder: many sequences at once give each what it gets alone") {
  // 20 are multiplied by cuBLASLt or, quantised, 8 at a time; 70 in converted slabs; both padded to a bucket.
  const auto [file, count] =
      GENERATE(std::pair{"gqa-F32.gguf", 20}, std::pair{"gqa-Q4_0.gguf", 20}, std::pair{"gqa-Q8_0.gguf", 70});
  if (emulation::checked() && count == 70) return;  // takes long, and shows the same
  CAPTURE(file, count);
  const OpenedModel model = open_model({.model = kData + "/cases/A09-gguf/" + file});
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), 1);
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < count; ++i) requests.push_back({.prompt_ids = {i + 1, 3 * i + 2}, .max_tokens = 3});
  const auto run = [&](std::span<const GenerationRequest> some) {
    emulation::restart({.multiprocessors = 6});
    CudaRank rank(options_of(DType::kF32));
    Decoder decoder(model.config, *model.weights, plan,
                    {.slots = std::ssize(some), .max_positions = 8, .max_step_tokens = 2 * std::ssize(some)},
                    rank.context());
    Sampler sampler(*rank.backend, *rank.communicator, decoder.vocab_range(), model.config.vocab, std::ssize(some));
    std::vector<std::vector<int32_t>> ids;
    for (const GenerationResult& result : generate_batch(decoder, sampler, rank.context(), some, {})) {
      ids.push_back(result.output_ids);
    }
    CHECK(emulation::take_reports().empty());
    return ids;
  };
  const std::vector<std::vector<int32_t>> together = run(requests);
  for (const size_t i : {size_t{0}, requests.size() / 2, requests.size() - 1}) {
    CAPTURE(i);
    CHECK(run(std::span(requests).subspan(i, 1)).front() == together[i]);
  }
}
