// What the small kernels load and store, counted by the checked emulation: every byte once, in whole sectors.
#include <catch2/catch.hpp>

#include "kernels/cuda/begin_step.hpp"
#include "kernels/cuda/candidates.hpp"
#include "kernels/cuda/rows.hpp"
#include "tests/kernels/cuda/counting.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"

using namespace shardscope;
using namespace shardscope::test;
using emulation::KernelCounters;
using kernels::DType;

namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kColumns = 2048;

void check_whole_sectors(const KernelCounters& counters) {
  CHECK(per_ideal(counters.global_loads) == 1.0);
  CHECK(per_ideal(counters.global_stores) == 1.0);
}

}  // namespace

TEST_CASE("cuda embed and dequantise: each code and each result once, in whole sectors") {
  if (!emulation::checked()) return;
  for (const DType table : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(kernels::facts(table).name << " to " << kernels::facts(dtype).name);
      const int64_t element = kernels::facts(dtype).block_bytes;
      int64_t code_bytes = 0;
      const auto convert = [&](bool by_id) {
        const StoredMatrix stored_matrix = random_matrix(table, kRows, kColumns, 1);
        const MatrixOnDevice matrix(stored_matrix);
        const DeviceArray<int32_t> ids(std::vector<int32_t>{2, 0, 1});
        const DeviceArray<std::byte> out(kRows * kColumns * element);
        code_bytes = matrix.bytes() - (matrix.scales() == nullptr ? 0 : kRows * kColumns / 32 * 2);
        if (table == DType::kQ4_1) code_bytes -= kRows * kColumns / 32 * 2;
        emulation::label(matrix.values(), "codes");
        emulation::label(out.data(), "out");
        if (by_id) {
          check_cuda(cuda::embed({.table = matrix.view(),
                                  .tokens = kRows,
                                  .ids = ids.data(),
                                  .dtype = dtype,
                                  .out = out.data(),
                                  .out_stride = kColumns},
                                 nullptr),
                     "embed");
        } else {
          check_cuda(cuda::dequantise(
                         matrix.view(), 0,
                         {.dtype = dtype, .data = out.data(), .rows = kRows, .columns = kColumns, .stride = kColumns},
                         nullptr),
                     "dequantise");
        }
        check_cuda(cudaDeviceSynchronize(), "the kernel");
      };
      for (const bool by_id : {true, false}) {
        const KernelCounters counters = counters_of("weight_rows_kernel", [&] { convert(by_id); });
        CHECK(loaded(counters, "codes") == code_bytes);
        CHECK(traffic_of(counters, "out").stored_bytes == kRows * kColumns * element);
        check_whole_sectors(counters);
      }
    }
  }
}

TEST_CASE("cuda rotary_angles: 8 bytes a pair, in whole sectors") {
  if (!emulation::checked()) return;
  const KernelCounters counters = counters_of("rotary_angles_kernel", [] {
    const DeviceArray<int32_t> positions(std::vector<int32_t>{5, 6, 7});
    const DeviceArray<float> frequencies(random_values(64, 1));
    const DeviceArray<float2> out(3 * 64);
    emulation::label(out.data(), "out");
    check_cuda(cuda::rotary_angles({.tokens = 3,
                                    .pairs = 64,
                                    .positions = positions.data(),
                                    .inverse_frequencies = frequencies.data(),
                                    .out = out.data()},
                                   nullptr),
               "rotary_angles");
    check_cuda(cudaDeviceSynchronize(), "the kernel");
  });
  CHECK(traffic_of(counters, "out").stored_bytes == 3 * 64 * 8);
  check_whole_sectors(counters);
}

TEST_CASE("cuda silu_gate, add_bias, select_rows: each element once, in whole sectors") {
  if (!emulation::checked()) return;
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    INFO(kernels::facts(dtype).name);
    const int64_t row_bytes = kernels::row_bytes(dtype, kColumns);
    const auto rows = [&](const DeviceArray<std::byte>& memory, int64_t columns) {
      return cuda::Rows{.dtype = dtype, .data = memory.data(), .rows = kRows, .columns = columns, .stride = columns};
    };
    const KernelCounters gated = counters_of("silu_gate_kernel", [&] {
      const DeviceArray<std::byte> in(random_stored(dtype, kRows * 2 * kColumns, 1).bytes);
      const DeviceArray<std::byte> out(kRows * row_bytes);
      emulation::label(in.data(), "in");
      emulation::label(out.data(), "out");
      check_cuda(cuda::silu_gate(rows(in, 2 * kColumns), rows(out, kColumns), nullptr), "silu_gate");
      check_cuda(cudaDeviceSynchronize(), "the kernel");
    });
    CHECK(loaded(gated, "in") == 2 * kRows * row_bytes);
    CHECK(traffic_of(gated, "out").stored_bytes == kRows * row_bytes);
    check_whole_sectors(gated);

    const KernelCounters biased = counters_of("add_bias_kernel", [&] {
      const DeviceArray<std::byte> x(random_stored(dtype, kRows * kColumns, 1).bytes);
      const DeviceArray<float> bias(random_values(kColumns, 2));
      emulation::label(x.data(), "x");
      check_cuda(cuda::add_bias(rows(x, kColumns), bias.data(), nullptr), "add_bias");
      check_cuda(cudaDeviceSynchronize(), "the kernel");
    });
    CHECK(loaded(biased, "x") == kRows * row_bytes);
    CHECK(traffic_of(biased, "x").stored_bytes == kRows * row_bytes);
    check_whole_sectors(biased);

    const KernelCounters selected = counters_of("select_rows_kernel", [&] {
      const DeviceArray<std::byte> x(random_stored(dtype, kRows * kColumns, 1).bytes);
      const DeviceArray<int32_t> picked(std::vector<int32_t>{2, 2, 0});
      const DeviceArray<std::byte> out(kRows * row_bytes);
      emulation::label(x.data(), "x");
      emulation::label(out.data(), "out");
      check_cuda(cuda::select_rows(rows(x, kColumns), picked.data(), rows(out, kColumns), nullptr), "select_rows");
      check_cuda(cudaDeviceSynchronize(), "the kernel");
    });
    CHECK(loaded(selected, "x") == kRows * row_bytes);
    CHECK(traffic_of(selected, "out").stored_bytes == kRows * row_bytes);
    check_whole_sectors(selected);
  }
}

TEST_CASE("cuda read_bytes: everything once, in whole sectors") {
  if (!emulation::checked()) return;
  constexpr int64_t kBytes = 16 * 40'000;
  const KernelCounters counters = counters_of("read_bytes_kernel", [] {
    const auto data = DeviceArray<std::byte>::zeros(kBytes);
    const auto checksum = DeviceArray<unsigned long long>::zeros(1);
    emulation::label(data.data(), "data");
    check_cuda(
        cuda::read_bytes({.data = data.data(), .row_bytes = kBytes, .stride_bytes = kBytes}, checksum.data(), nullptr),
        "read_bytes");
    check_cuda(cudaDeviceSynchronize(), "the kernel");
  });
  CHECK(loaded(counters, "data") == kBytes);
  CHECK(per_ideal(counters.global_loads) == 1.0);
  CHECK(per_ideal(counters.shared_accesses) == 1.0);
}

TEST_CASE("cuda candidates: one launch that reads each logit once, in whole sectors") {
  if (!emulation::checked()) return;
  for (const int64_t count : {1, 64}) {
    INFO(count);
    constexpr int64_t kLogits = 3 * 2048;
    const KernelCounters counters = counters_of(count == 1 ? "largest_kernel" : "candidates_kernel", [&] {
      const DeviceArray<float> logits(random_values(kLogits, 1));
      const auto workspace = DeviceArray<std::byte>::zeros(cuda::candidates_workspace_bytes(1, kLogits, count));
      const DeviceArray<cuda::CandidateOut> out(count);
      emulation::label(logits.data(), "logits");
      check_cuda(cuda::candidates({.logits = logits.data(),
                                   .rows = 1,
                                   .columns = kLogits,
                                   .stride = kLogits,
                                   .count = count,
                                   .out = out.data(),
                                   .workspace = workspace.data()},
                                  nullptr),
                 "candidates");
      check_cuda(cudaDeviceSynchronize(), "the kernel");
    });
    CHECK(emulation::calls().at("cudaLaunchKernelExC") == 1);
    CHECK(counters.launches == 1);
    CHECK(loaded(counters, "logits") == kLogits * 4);
    CHECK(per_ideal(counters.global_loads) == 1.0);
    CHECK(per_ideal(counters.shared_accesses) < 1.2);
  }
}
