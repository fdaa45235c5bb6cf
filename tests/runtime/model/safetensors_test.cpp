#include "runtime/model/safetensors.hpp"

#include <chrono>
#include <map>

#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using namespace test;

std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string message_for(const std::string& header, size_t data_bytes) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  write_file(path, file_of(header, data_bytes));
  return refusal([&] { read_safetensors(path); });
}

TEST_CASE("read_safetensors: every file of A08 is accepted or refused as the reference library does") {
  const std::map<std::string, std::string> reasons = {
      {"bad-empty", "0 bytes"},
      {"bad-7-bytes", "7 bytes"},
      {"bad-length-past-end", "past the end"},
      {"bad-length-all-ones", "limit"},
      {"bad-length-over-100MB", "limit"},
      {"bad-length-zero", "begin with {"},
      {"bad-not-json", "JSON"},
      {"bad-array-header", "begin with {"},
      {"bad-not-utf8", "UTF-8"},
      {"bad-duplicate-name", "twice"},
      {"bad-overlap", "overlapping"},
      {"bad-hole", "hole"},
      {"bad-end-before-begin", "before it begins"},
      {"bad-size-vs-shape", "dtype and shape make"},
      {"bad-size-vs-dtype", "dtype and shape make"},
      {"bad-unknown-dtype", "unknown dtype"},
      {"bad-negative-shape", "whole number"},
      {"bad-shape-overflow", "too large"},
      {"bad-truncated-one-byte", "truncated"},
      {"bad-truncated-half", "truncated"},
      {"bad-trailing-bytes", "header and tensors make"},
      {"bad-metadata-number", "__metadata__"},
      {"bad-no-dtype", "dtype is missing"},
      {"bad-offset-float", "whole number"},
  };
  const auto expected = nlohmann::json::parse(read_file(case_folder("A08-safetensors") / "expected.json"));
  REQUIRE(expected.size() == 30);
  for (const auto& [name, verdict] : expected.items()) {
    INFO(name);
    const std::string path = (case_folder("A08-safetensors") / (name + ".safetensors")).string();
    const auto start = std::chrono::steady_clock::now();
    if (verdict == "accept") {
      CHECK_FALSE(read_safetensors(path).tensors.empty());
    } else {
      const std::string message = refusal([&] { read_safetensors(path); });
      CHECK_THAT(message, Contains(name));
      CHECK_THAT(message, Contains(reasons.at(name)));
      // The same fault as the weights of a model.
      const TemporaryFolder folder;
      fs::copy_file(case_folder("A01-gqa-kv2") / "config.json", folder.path() / "config.json");
      fs::copy_file(path, folder.path() / "model.safetensors");
      CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("model.safetensors") && Contains(reasons.at(name)));
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  }
}

TEST_CASE("read_safetensors: a model cut short is refused although a map of it would read zeros") {
  CHECK_THAT(refusal([] { open(case_folder("A08-safetensors") / "model-truncated"); }), Contains("truncated"));
}

TEST_CASE("read_safetensors: names, shapes, types and bytes are those of the file") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "x.safetensors").string();
  std::string bytes = file_of(R"({"b":{"dtype":"F16","shape":[2,1],"data_offsets":[1,5]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("s":{"dtype":"F4","shape":[2],"data_offsets":[5,6]}})",
                              6);
  bytes[bytes.size() - 6] = '\x55';
  write_file(path, bytes);
  const StoredTensors stored = read_safetensors(path);
  REQUIRE(stored.tensors.size() == 3);
  CHECK(stored.tensors[0].name == "a");
  CHECK_FALSE(stored.tensors[0].dtype);
  CHECK(stored.tensors[0].type == "U8");
  CHECK(stored.tensors[0].data[0] == std::byte{0x55});
  CHECK(stored.tensors[1].shape == std::vector<int64_t>{2, 1});
  CHECK(stored.tensors[1].dtype == kernels::DType::kF16);
  CHECK(stored.tensors[1].data.size() == 4);
}

TEST_CASE("read_safetensors: faults beyond the recorded ones") {
  CHECK_THAT(message_for(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})", 0),
             Contains("dtype and shape make"));
  CHECK_THAT(message_for(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
             Contains("too large"));
  CHECK_THAT(message_for(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1), Contains("data_offsets"));
  CHECK_THAT(message_for(R"({"a":7})", 0), Contains("not an object"));
  CHECK_THAT(message_for("{\"a\":" + std::string(20000, '['), 0), Contains("nests deeper"));
  CHECK_THAT(message_for(R"({"a\u0007\u001b[31m":7})", 0), Contains("a??[31m"));
  CHECK_THAT(message_for("{}", 1), Contains("header and tensors make"));
}

TEST_CASE("read_sharded_safetensors: the good model of A07 has the weights of A01") {
  const OpenedModel sharded = open(case_folder("A07-sharded/good"));
  const OpenedModel single = open(case_folder("A01-gqa-kv2"));
  CHECK(sharded.weights->identity() != single.weights->identity());
  for (const WeightId id : expected_weights(single.config)) {
    INFO(weight_name(id));
    CHECK(values(sharded, id) == values(single, id));
  }
}

TEST_CASE("read_sharded_safetensors: a broken index names the file or tensor") {
  const auto message = [](const char* index) {
    const TemporaryFolder folder;
    folder.copy_case(case_folder("A07-sharded/good"));
    fs::copy_file(case_folder("A07-sharded/broken") / index, folder.path() / "model.safetensors.index.json",
                  fs::copy_options::overwrite_existing);
    return refusal([&] { open(folder.path()); });
  };
  const auto difference = [](const char* index) {  // the first entry that is not as in the good index
    const auto good =
        nlohmann::json::parse(read_file(case_folder("A07-sharded/good") / "model.safetensors.index.json"));
    const auto bad = nlohmann::json::parse(read_file(case_folder("A07-sharded/broken") / index));
    for (const auto& [name, file] : good["weight_map"].items()) {
      if (!bad["weight_map"].contains(name) || bad["weight_map"][name] != file) return name;
    }
    FAIL("no difference");
    return std::string();
  };
  CHECK_THAT(message("missing-shard.index.json"), Contains("is missing") && Contains("of-0000"));
  CHECK_THAT(message("missing-tensor.index.json"), Contains(difference("missing-tensor.index.json")));
  CHECK_THAT(message("wrong-shard.index.json"), Contains(difference("wrong-shard.index.json")));
}

TEST_CASE("read_sharded_safetensors: only plain names in the same folder are followed") {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "pytorch_model.bin", ".."}) {
    INFO(name);
    const TemporaryFolder folder;
    folder.copy_case(case_folder("A07-sharded/good"));
    const std::string index = read_file(folder.path() / "model.safetensors.index.json");
    write_file(folder.path() / "model.safetensors.index.json",
               replaced(index, "model-00001-of-00003.safetensors", name));
    CHECK_THAT(refusal([&] { open(folder.path()); }), Contains(name) && Contains("model.embed_tokens.weight"));
  }
  const TemporaryFolder folder;
  folder.copy_case(case_folder("A07-sharded/good"));
  write_file(folder.path() / "model.safetensors.index.json", R"({"weight_map": {"a": 3}})");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("weight_map of a"));
  write_file(folder.path() / "model.safetensors.index.json", R"({"weight_map": []})");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("no weight_map"));
}

TEST_CASE("read_sharded_safetensors: a shard that is an LFS pointer is recognised") {
  const TemporaryFolder folder;
  folder.copy_case(case_folder("A07-sharded/good"));
  fs::copy_file(case_folder("A07-sharded/broken/lfs-pointer.safetensors"),
                folder.path() / "model-00002-of-00003.safetensors", fs::copy_options::overwrite_existing);
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("Git LFS") && Contains("model-00002-of-00003"));
}

}  // namespace
}  // namespace shardscope::runtime
