// The CUDA backend's weights in one allocation: where they lie, who owns it, and how they are read.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/weight_layout.hpp"
#include "kernels/cuda/weight_memory.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

using Parts = std::vector<StoredMatrix>;

std::unique_ptr<cuda::CudaBackend> backend_with(bool together) {
  return cuda::make_backend({.weights_together = together, .scratch_bytes = 1 << 20, .upload_bytes = 1 << 12});
}

kernels::ExpectedWeights announcement(std::span<const Parts> matrices, std::vector<int64_t> vectors) {
  kernels::ExpectedWeights weights{.matrices = {}, .vectors = std::move(vectors)};
  for (const Parts& parts : matrices) {
    weights.matrices.emplace_back();
    for (const StoredMatrix& part : parts) weights.matrices.back().push_back(part.part());
  }
  return weights;
}

/// The xor of all 8-byte words of a matrix in device memory, whose planes begin at multiples of 8. Of the file's bytes:
/// rows of plain types are padded with zeros, which change nothing.
uint64_t checksum_of(const Parts& parts) {
  std::array<std::byte, 8> words{};
  const auto fold = [&](int64_t place, std::byte byte) { words[static_cast<size_t>(place % 8)] ^= byte; };
  int64_t scale_place = 0;  // within the planes of a matrix that is one piece
  for (const StoredMatrix& part : parts) {
    const int64_t blocks = part.rows * part.columns / 32;
    const int64_t row = kernels::row_bytes(part.dtype, part.columns);
    for (size_t i = 0; i < part.bytes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (!kernels::facts(part.dtype).block_quantised) {
        fold(at % row, part.bytes[i]);  // rows begin at multiples of 16
        continue;
      }
      const int64_t block_bytes = std::ssize(part.bytes) / blocks;
      const int64_t scale_bytes = block_bytes % 8;  // 2 or 4: codes are 16 or 32
      const int64_t within = at % block_bytes;
      const bool scale = within < scale_bytes;
      fold(scale ? scale_place + at / block_bytes * scale_bytes + within : within - scale_bytes, part.bytes[i]);
    }
    if (kernels::facts(part.dtype).block_quantised) scale_place += blocks * (std::ssize(part.bytes) / blocks % 8);
  }
  uint64_t checksum = 0;
  std::memcpy(&checksum, words.data(), words.size());
  return checksum;
}

int64_t free_bytes() {
  size_t free = 0;
  size_t all = 0;
  check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

int64_t calls_of(const std::string& name) {
  const auto calls = emulation::calls();
  const auto found = calls.find(name);
  return found == calls.end() ? 0 : found->second;
}

int64_t reads() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find("read_bytes_kernel") != std::string::npos) count += counters.launches;
  }
  return count;
}

struct Read {
  uint64_t checksum = 0;
  int64_t launches = 0;
  bool operator==(const Read&) const = default;
};

Read read_of(cuda::CudaBackend& backend, std::span<const kernels::Matrix* const> matrices) {
  const int64_t before = reads();
  const uint64_t checksum = backend.read_all(matrices, nullptr, {});
  return {checksum, reads() - before};
}

/// Planes of few and of many bytes, whole 256s and not; the last one, of which all is read, of whole pieces of 16.
std::vector<Parts> some_matrices() {
  std::vector<Parts> matrices;
  matrices.push_back({random_matrix(DType::kQ4_0, 3, 64, 1)});                                         // 96 and 12
  matrices.push_back({random_matrix(DType::kBF16, 7, 5, 2)});                                          // 7 x 16
  matrices.push_back({random_matrix(DType::kQ8_0, 8, 96, 3), random_matrix(DType::kQ8_0, 5, 96, 4)});  // one piece
  matrices.push_back({random_matrix(DType::kF32, 64, 64, 5)});                                         // 64 x 256
  return matrices;
}

}  // namespace

TEST_CASE("cuda weights: those announced lie in one allocation, and matrices are read as one") {
  const std::vector<Parts> matrices = some_matrices();
  under_conditions({.seeds = 1}, [&] {
    const auto backend = backend_with(true);
    emulation::clear_calls();
    const kernels::ExpectedWeights expected = announcement(matrices, {3, 65});
    const int64_t free_before = free_bytes();
    backend->expect_weights(expected);
    const std::vector<float> small = random_values(3, 6);
    const std::vector<float> large = random_values(65, 7);
    std::vector<std::unique_ptr<kernels::Matrix>> loaded;
    std::vector<const kernels::Matrix*> views;
    uint64_t checksum = 0;
    const auto first_vector = backend->load_vector(small);
    for (const Parts& parts : matrices) {
      loaded.push_back(load(*backend, parts));
      views.push_back(loaded.back().get());
      checksum ^= checksum_of(parts);
    }
    const auto second_vector = backend->load_vector(large);
    CHECK(calls_of("cudaMalloc") == 1);
    CHECK(cuda::allocation_bytes(expected) == 256 * (1 + 1 + 1 + 5 + 1 + 64 + 1 + 2));
    CHECK(free_before - free_bytes() == cuda::allocation_bytes(expected));
    CHECK(read_of(*backend, views) == Read{checksum, 1});
    std::reverse(views.begin(), views.end());  // whatever the order in which they are named
    CHECK(read_of(*backend, views) == Read{checksum, 1});
    views.erase(views.begin() + 1);  // without the third one: what is not named is not read
    CHECK(read_of(*backend, views).launches == 2);
  });
}

TEST_CASE("cuda weights: each plane in an allocation of its own, where that is wanted or nothing was announced") {
  const std::vector<Parts> matrices = some_matrices();
  const bool announced = GENERATE(true, false);
  under_conditions({.seeds = 0}, [&] {
    const auto backend = backend_with(/*together=*/!announced);
    if (announced) backend->expect_weights(announcement(matrices, {}));
    emulation::clear_calls();
    std::vector<std::unique_ptr<kernels::Matrix>> loaded;
    std::vector<const kernels::Matrix*> views;
    for (const Parts& parts : matrices) {
      loaded.push_back(load(*backend, parts));
      views.push_back(loaded.back().get());
    }
    CHECK(calls_of("cudaMalloc") == 2 + 1 + 2 + 1);
    CHECK(read_of(*backend, views).launches == 2 + 1 + 2 + 1 - 1);  // 12 bytes are less than a piece
  });
}

TEST_CASE("cuda weights: an allocation lives as long as any of its users, and no longer") {
  const StoredMatrix matrix = random_matrix(DType::kF32, 4, 64, 1);
  const StoredMatrix other = random_matrix(DType::kQ4_0, 16, 64, 2);
  const std::vector<Parts> matrices = {{matrix}, {other}};
  std::array<int, 3> order = {0, 1, 2};
  do {
    CAPTURE(order[0], order[1], order[2]);
    under_conditions({.seeds = 0}, [&] {
      const auto backend = backend_with(true);
      const auto warm_up = load(*backend, Parts{matrix});
      const int64_t free_before = free_bytes();
      backend->expect_weights(announcement(matrices, {8}));
      std::unique_ptr<kernels::Matrix> first = load(*backend, matrices[0]);
      std::unique_ptr<kernels::Vector> vector = backend->load_vector(random_values(8, 3));
      std::unique_ptr<kernels::Matrix> second = load(*backend, matrices[1]);
      for (const int which : order) {
        CHECK(free_bytes() < free_before);
        for (const auto& [left, parts] : {std::pair(first.get(), matrices[0]), std::pair(second.get(), matrices[1])}) {
          if (left != nullptr)
            CHECK(read_of(*backend, std::array{static_cast<const kernels::Matrix*>(left)}).checksum ==
                  checksum_of(parts));
        }
        if (which == 0) first.reset();
        if (which == 1) vector.reset();
        if (which == 2) second.reset();
      }
      CHECK(free_bytes() == free_before);
    });
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("cuda weights: what comes beyond the announced, and what never comes") {
  const StoredMatrix matrix = random_matrix(DType::kF32, 4, 64, 1);
  const std::vector<Parts> announced = {{matrix}};
  under_conditions({.seeds = 0}, [&] {
    const auto backend = backend_with(true);
    const int64_t free_before = free_bytes();
    backend->expect_weights(announcement(announced, {64}));
    std::unique_ptr<kernels::Matrix> first = load(*backend, announced[0]);
    std::unique_ptr<kernels::Matrix> second = load(*backend, announced[0]);  // more than is left
    const std::array<const kernels::Matrix*, 2> both = {first.get(), second.get()};
    CHECK(read_of(*backend, both) == Read{0, 2});  // equal words fold to nothing
    CHECK(read_of(*backend, std::span(both).last(1)) == Read{checksum_of(announced[0]), 1});
    first.reset();
    second.reset();
    CHECK(free_bytes() < free_before);  // the vector may still come
    backend->expect_weights({});
    CHECK(free_bytes() == free_before);
    backend->expect_weights(announcement(announced, {}));
    first = load(*backend, announced[0]);
    CHECK(read_of(*backend, {}) == Read{0, 0});
    CHECK(read_of(*backend, std::array{static_cast<const kernels::Matrix*>(first.get())}) ==
          Read{checksum_of(announced[0]), 1});
  });
}

TEST_CASE("cuda weights: ranges end where an allocation does, even if another one begins there") {
  emulation::restart({});
  const auto first = std::make_shared<const cuda::DeviceBuffer>(512, "a test", cuda::CallContext{});
  const auto second = std::make_shared<const cuda::DeviceBuffer>(512, "a test", cuda::CallContext{});
  const int64_t apart = first->as<std::byte>() + 512 - second->as<std::byte>();  // as if it began there
  cuda::PlaneRanges ranges;
  ranges.add({second, apart, 256});
  ranges.add({first, 256, 256});
  ranges.add({first, 0, 100});
  ranges.add({});
  const std::span<const cuda::PlaneRange> merged = ranges.merged();
  REQUIRE(merged.size() == 2);
  CHECK((merged[0].begin == first->data() && merged[0].bytes == 512));
  CHECK((merged[1].allocation == second.get() && merged[1].bytes == 256));
  ranges.clear();
  CHECK(ranges.merged().empty());
}

TEST_CASE("cuda weights: too little memory is said before anything is loaded") {
  emulation::restart({.device_memory_bytes = 8 << 20});
  const auto backend = backend_with(true);
  kernels::ExpectedWeights weights;
  weights.matrices.push_back({{.name = "large", .dtype = DType::kBF16, .rows = 4096, .columns = 4096}});
  CHECK_THROWS_WITH(backend->expect_weights(weights), Catch::Contains("33.55 MB for the weights"));
}

TEST_CASE("cuda weights: their layout, by hand") {
  const auto bytes_of = [](std::vector<kernels::MatrixPart> parts) {
    kernels::ExpectedWeights weights;
    weights.matrices.push_back(std::move(parts));
    return cuda::allocation_bytes(weights);
  };
  CHECK(bytes_of({{.dtype = DType::kBF16, .rows = 16, .columns = 8}}) == 256);    // 16 x 16
  CHECK(bytes_of({{.dtype = DType::kBF16, .rows = 17, .columns = 8}}) == 512);    // one row more
  CHECK(bytes_of({{.dtype = DType::kBF16, .rows = 16, .columns = 9}}) == 512);    // rows of 32
  CHECK(bytes_of({{.dtype = DType::kQ4_0, .rows = 16, .columns = 64}}) == 768);   // 512 and 64
  CHECK(bytes_of({{.dtype = DType::kQ8_0, .rows = 16, .columns = 64}}) == 1280);  // 1024 and 64
  CHECK(bytes_of({{.dtype = DType::kF16, .rows = 0, .columns = 64}}) == 0);
  const std::vector<kernels::MatrixPart> mixed = {{.dtype = DType::kQ4_0, .rows = 8, .columns = 64},
                                                  {.dtype = DType::kQ4_0, .rows = 8, .columns = 64},
                                                  {.dtype = DType::kF16, .rows = 2, .columns = 64}};
  CHECK(bytes_of(mixed) == 768 + 256);
  const std::vector<cuda::PieceLayout> pieces = cuda::piece_layouts(mixed);
  REQUIRE(pieces.size() == 2);
  CHECK((pieces[0].first_part == 0 && pieces[0].end_part == 2 && pieces[0].rows == 16));
  CHECK((pieces[1].first_part == 2 && pieces[1].end_part == 3 && pieces[1].scale_bytes() == 0));
  CHECK_THROWS_AS(cuda::piece_layouts({}), BugError);
  CHECK_THROWS_AS(bytes_of({{.dtype = DType::kF16, .rows = 1, .columns = 64}, {.rows = 1, .columns = 65}}), BugError);
}
