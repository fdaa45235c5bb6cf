#include "runtime/model/weights.hpp"

#include <algorithm>
#include <set>

#include "runtime/model/named.hpp"
#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using namespace test;

TEST_CASE("weight_rules: each role has one rule, under its own names") {
  std::set<Role> roles;
  std::set<std::string_view> names;
  for (const WeightRule& rule : weight_rules()) {
    CHECK(roles.insert(rule.role).second);
    CHECK(names.insert(rule.hf_name).second);
    CHECK(names.insert(rule.gguf_name).second);
    CHECK((rule.hf_name.find("{}") != std::string_view::npos) == rule.per_layer);
    CHECK(rule_of(rule.role).hf_name == rule.hf_name);
  }
  CHECK(roles.size() == 19);
}

TEST_CASE("expected_weights: biases and head follow the configuration") {
  ModelConfig config = *named_configuration("tiny");
  CHECK(expected_weights(config).size() == 2 * 9 + 3);
  config.tied_embeddings = true;
  CHECK(expected_weights(config).size() == 2 * 9 + 2);
  config.attention_in_bias = config.attention_out_bias = config.mlp_bias = true;
  CHECK(expected_weights(config).size() == 2 * (9 + 7) + 2);
  config.layers = 1;
  CHECK(expected_weights(config).size() == 9 + 7 + 2);
  CHECK(expected_weights(config).front() == WeightId{Role::kEmbedding, -1});
}

TEST_CASE("expected_weights: they are exactly the tensors of the recorded models") {
  for (const char* name : {"cases/A01-gqa-kv2", "cases/A03-head-dim", "cases/A05-tied", "cases/A06-bias-no-kv-key",
                           "cases/A17-eos-list", "cases/A18-padded-vocab", "reference/tiny/llama-gqa-9-3-tied",
                           "reference/tiny/llama-head-dim", "reference/tiny/llama-mha", "reference/tiny/qwen2-bias"}) {
    INFO(name);
    const OpenedModel model = open(data_folder() / name);
    const std::string file = read_file(data_folder() / name / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const auto header = nlohmann::json::parse(file.substr(8, length));
    size_t tensors = header.size() - header.count("__metadata__");
    CHECK(expected_weights(model.config).size() == tensors);
    for (const WeightId id : expected_weights(model.config)) {
      const auto& entry = header.at(weight_name(id));
      const WeightShape shape = shape_of(model.config, id.role);
      const auto want =
          rule_of(id.role).vector ? nlohmann::json{shape.columns} : nlohmann::json{shape.rows, shape.columns};
      CHECK(entry["shape"] == want);
      // The bytes are those at the offsets, read here without the reader.
      const auto begin = entry["data_offsets"][0].get<size_t>() + 8 + length;
      const auto end = entry["data_offsets"][1].get<size_t>() + 8 + length;
      std::vector<std::byte> raw(end - begin);
      model.weights->read(id, {0, shape.rows}, {0, shape.columns}, raw);
      CHECK(std::memcmp(raw.data(), file.data() + begin, raw.size()) == 0);
    }
  }
}

TEST_CASE("WeightSource::read: any range equals the slice of the whole") {
  for (const char* name : {"A01-gqa-kv2", "A09-gguf/gqa-F32.gguf", "A09-gguf/gqa-BF16.gguf", "A09-gguf/gqa-Q4_1.gguf",
                           "A09-gguf/gqa-Q8_0.gguf"}) {
    const OpenedModel model = open(case_folder(name));
    for (const WeightId id : expected_weights(model.config)) {
      INFO(name << " " << weight_name(id));
      const WeightShape shape = shape_of(model.config, id.role);
      const kernels::DType dtype = model.weights->dtype(id);
      const int64_t block = kernels::facts(dtype).block_elements;
      const std::vector<float> whole = values(model, id);
      const Range rows = {shape.rows / 3, shape.rows - shape.rows / 4};
      const Range columns = {shape.columns / 3 / block * block, (shape.columns - 1) / block * block};
      std::vector<std::byte> raw(static_cast<size_t>(rows.size() * kernels::row_bytes(dtype, columns.size())));
      model.weights->read(id, rows, columns, raw);
      std::vector<float> part(static_cast<size_t>(rows.size() * columns.size()));
      REQUIRE_FALSE(part.empty());
      kernels::dequantise_row(dtype, raw, part);
      bool equal = true;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const auto* from = whole.data() + row * shape.columns + columns.begin;
        equal = equal && std::equal(from, from + columns.size(), part.data() + (row - rows.begin) * columns.size());
      }
      CHECK(equal);
    }
  }
}

TEST_CASE("WeightSource::read: ranges and buffers outside the promise are bugs, not reads") {
  const OpenedModel model = open(case_folder("A01-gqa-kv2"));
  std::vector<std::byte> row(64 * 2);
  const WeightSource& weights = *model.weights;
  CHECK_NOTHROW(weights.read({Role::kKey, 0}, {15, 16}, {0, 64}, row));
  CHECK_NOTHROW(weights.read({Role::kKey, 0}, {3, 3}, {0, 64}, {}));
  CHECK_THROWS_AS(weights.read({Role::kKey, 0}, {16, 17}, {0, 64}, row), BugError);
  CHECK_THROWS_AS(weights.read({Role::kKey, 0}, {-1, 0}, {0, 64}, row), BugError);
  CHECK_THROWS_AS(weights.read({Role::kKey, 0}, {0, 1}, {1, 65}, row), BugError);
  CHECK_THROWS_AS(weights.read({Role::kKey, 0}, {0, 1}, {0, 63}, row), BugError);
  CHECK_THROWS_AS(weights.read({Role::kKey, 2}, {0, 1}, {0, 64}, row), BugError);
  CHECK_THROWS_AS(weights.dtype({Role::kKeyBias, 0}), BugError);
  CHECK_THROWS_AS(weights.dtype({Role::kKey, -1}), BugError);
  CHECK_THROWS_AS(weights.dtype({Role::kEmbedding, 0}), BugError);
}

}  // namespace
}  // namespace shardscope::runtime
