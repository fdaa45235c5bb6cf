// What the kernels load and store, counted by the checked emulation: that weights, keys and values are read once, that
// warps touch no more sectors of global memory than their bytes take, and how many passes over the banks of shared
// memory they make. Also that every kernel was looked at at all. In the plain mode nothing is counted.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/rms_norm.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/kernels/cuda/ranks.hpp"

using namespace shardscope;
using namespace shardscope::test;
using emulation::KernelCounters;
using emulation::Requests;
using kernels::DType;

namespace {

constexpr int64_t kNormRows = 3;
constexpr int64_t kNormColumns = 4096;

/// What the kernel whose name contains `name` did in one run of `body` on a fresh machine that counts requests.
KernelCounters counters_of(std::string_view name, const std::function<void()>& body, int devices = 1) {
  emulation::restart({.devices = devices, .count_requests = true});
  body();
  check_cuda(cudaDeviceSynchronize(), "the kernel");
  for (const KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find(name) != std::string::npos) return counters;
  }
  FAIL("no counters of " << name);
  return {};
}

int64_t loaded(const KernelCounters& counters, const std::string& allocation_class) {
  const auto found = counters.bytes.find(allocation_class);
  return found == counters.bytes.end() ? 0 : found->second.loaded_bytes;
}

/// Sectors, or passes over the banks, per least possible number.
double per_ideal(const Requests& requests) {
  return static_cast<double>(requests.units) / static_cast<double>(requests.ideal_units);
}

KernelCounters norm_counters(DType dtype, DType weight_dtype, bool add) {
  return counters_of("rms_norm_kernel", [&] {
    constexpr int64_t kRows = kNormRows;
    constexpr int64_t kColumns = kNormColumns;
    const DeviceArray<std::byte> x(random_stored(dtype, kRows * kColumns, 1).bytes);
    const DeviceArray<std::byte> addend(random_stored(dtype, kRows * kColumns, 2).bytes);
    const DeviceArray<std::byte> weight(random_stored(weight_dtype, kColumns, 3).bytes);
    emulation::label(x.data(), "x");
    check_cuda(cuda::rms_norm({.dtype = dtype,
                               .weight_dtype = weight_dtype,
                               .rows = kRows,
                               .columns = kColumns,
                               .x = x.data(),
                               .x_stride = kColumns,
                               .addend = add ? addend.data() : nullptr,
                               .addend_stride = kColumns,
                               .weight = weight.data(),
                               .out = x.data(),
                               .out_stride = kColumns,
                               .epsilon = 1e-5F},
                              nullptr),
               "rms_norm");
    check_cuda(cudaDeviceSynchronize(), "rms_norm");
  });
}

KernelCounters product_counters(DType weight_dtype, int64_t batch, int64_t& weight_bytes) {
  return counters_of("mat_vec_kernel", [&] {
    constexpr int64_t kRows = 48;
    constexpr int64_t kColumns = 4096;
    const StoredMatrix matrix = random_matrix(weight_dtype, kRows, kColumns, 1);
    const MatrixOnDevice weights(matrix);
    weight_bytes = weights.weight_bytes() + weights.scale_bytes();
    const DeviceArray<float> x(random_values(batch * kColumns, 2));
    const DeviceArray<float> y(batch * kRows);
    emulation::label(weights.weights(), "weights");
    if (weights.scale_bytes() > 0) emulation::label(weights.scales(), "weights");
    cuda::MatVec arguments = weights.arguments();
    arguments.batch = batch;
    arguments.x = x.data();
    arguments.x_stride = kColumns;
    arguments.y = y.data();
    arguments.y_stride = kRows;
    check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");
    check_cuda(cudaDeviceSynchronize(), "mat_vec");
  });
}

struct AttentionCounts {
  KernelCounters counters;
  int64_t kv_bytes = 0;
};
AttentionCounts attention_counters(DType kv_dtype, int64_t head_dim, int64_t queries, int64_t multiprocessors) {
  AttentionCounts result;
  constexpr int64_t kLength = 512;
  result.kv_bytes = 2 * kLength * kernels::row_bytes(kv_dtype, head_dim);
  result.counters = counters_of("decode_attention_kernel", [&] {
    const cuda::DecodeAttentionShape shape{.kv_dtype = kv_dtype,
                                           .head_dim = head_dim,
                                           .queries_per_kv = queries,
                                           .query_heads = queries,
                                           .kv_heads = 1,
                                           .sequences = 1,
                                           .max_length = kLength};
    const DeviceArray<float> q(random_values(queries * head_dim, 1));
    const DeviceArray<std::byte> keys(random_stored(kv_dtype, kLength * head_dim, 2).bytes);
    const DeviceArray<std::byte> values(random_stored(kv_dtype, kLength * head_dim, 3).bytes);
    const DeviceArray<int32_t> lengths(std::vector<int32_t>{static_cast<int32_t>(kLength)});
    const DeviceArray<float> out(queries * head_dim);
    const cuda::DecodeAttentionPlan plan = cuda::plan_decode_attention(shape, multiprocessors);
    const auto workspace = DeviceArray<std::byte>::zeros(plan.workspace_bytes);
    emulation::label(keys.data(), "kv");
    emulation::label(values.data(), "kv");
    check_cuda(cuda::decode_attention({.shape = shape,
                                       .plan = plan,
                                       .scale = 0.1F,
                                       .q = q.data(),
                                       .q_stride = queries * head_dim,
                                       .keys = keys.data(),
                                       .values = values.data(),
                                       .slot_stride = kLength * head_dim,
                                       .head_stride = kLength * head_dim,
                                       .position_stride = head_dim,
                                       .lengths = lengths.data(),
                                       .out = out.data(),
                                       .out_stride = queries * head_dim,
                                       .workspace = workspace.data()},
                                      nullptr),
               "decode_attention");
    check_cuda(cudaDeviceSynchronize(), "decode_attention");
  });
  return result;
}

/// Bytes that a call among 2 ranks loads of the abort word, which lies across the bus; the first `calling` take part.
int64_t abort_word_bytes(int calling) {
  const auto call = [calling] {
    const Ranks ranks(2);
    emulation::label(ranks.rank(0).abort_word, "abort word");
    std::vector<DeviceArray<float>> x;
    for (int rank = 0; rank < calling; ++rank) {
      ranks.use(rank);
      x.emplace_back(random_values(1000, 1));
      check_cuda(cudaDeviceSynchronize(), "the upload");
    }
    for (int rank = 0; rank < calling; ++rank) {
      ranks.use(rank);
      check_cuda(cuda::all_reduce_one_shot(ranks.rank(rank),
                                           {.count = x[rank].size(), .x = x[rank].data(), .out = x[rank].data()},
                                           ranks.stream(rank)),
                 "all_reduce_one_shot");
    }
    for (int rank = 0; rank < calling; ++rank) CHECK((ranks.state(rank).failure != 0) == (calling < 2));
  };
  return loaded(counters_of("all_reduce_kernel", call, 2), "abort word");
}

}  // namespace

TEST_CASE("cuda rms_norm: reads a row once, in whole sectors and without bank conflicts") {
  if (!emulation::checked()) return;
  for (const auto& [dtype, weight_dtype] : {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF16, DType::kF16},
                                            std::pair{DType::kBF16, DType::kF32}}) {
    for (const bool add : {false, true}) {
      INFO(kernels::facts(dtype).name << ", weight " << kernels::facts(weight_dtype).name << ", add " << add);
      const KernelCounters counters = norm_counters(dtype, weight_dtype, add);
      CHECK(loaded(counters, "x") == kNormRows * kernels::row_bytes(dtype, kNormColumns));
      CHECK(counters.bytes.at("x").stored_bytes == (add ? 2 : 1) * loaded(counters, "x"));
      CHECK(per_ideal(counters.global_loads) == 1.0);
      CHECK(per_ideal(counters.global_stores) == 1.0);
      CHECK(per_ideal(counters.shared_accesses) == 1.0);
    }
  }
}

TEST_CASE("cuda mat_vec: reads each weight once, in whole sectors and almost without bank conflicts") {
  if (!emulation::checked()) return;
  for (const DType weight_dtype : {DType::kBF16, DType::kQ4_0}) {
    for (const int64_t batch : {1, 2, 4, 8}) {
      INFO(kernels::facts(weight_dtype).name << " batch " << batch);
      int64_t weight_bytes = 0;
      const KernelCounters counters = product_counters(weight_dtype, batch, weight_bytes);
      CHECK(loaded(counters, "weights") > 0.98 * static_cast<double>(weight_bytes));
      CHECK(loaded(counters, "weights") <= 1.02 * static_cast<double>(weight_bytes));
      CHECK(per_ideal(counters.global_loads) == 1.0);
      // Only the last sum, of a few words for each row, has conflicts.
      CHECK(per_ideal(counters.shared_accesses) < 1.01);
    }
  }
}

TEST_CASE("cuda decode_attention: reads keys and values once for all queries, in whole sectors") {
  if (!emulation::checked()) return;
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t head_dim : {64, 96, 128}) {
      for (const int64_t queries : {1, 4, 8}) {
        for (const int64_t multiprocessors : {1, 132}) {  // with few parts of the sequence, and with many
          INFO(kernels::facts(kv_dtype).name << " head_dim " << head_dim << " queries " << queries << " on "
                                             << multiprocessors);
          const AttentionCounts counts = attention_counters(kv_dtype, head_dim, queries, multiprocessors);
          CHECK(loaded(counts.counters, "kv") == counts.kv_bytes);
          // What is more than the ideal: in the workspace, the statistics of parts lie between those of others.
          CHECK(counts.counters.global_loads.units - counts.counters.global_loads.ideal_units <=
                counts.kv_bytes / 32 / 20);
          // Bank conflicts: twice a block, when q goes into two planes and when results come out of them; and, where a
          // head's pieces are no multiple of 8 quads, in the values of fp32.
          CHECK(per_ideal(counts.counters.shared_accesses) < 1.15);
        }
      }
    }
  }
}

TEST_CASE("cuda all_reduce: looks at the abort word only where data is long in coming") {
  if (!emulation::checked()) return;
  CHECK(abort_word_bytes(2) == 0);
  CHECK(abort_word_bytes(1) > 0);
}

TEST_CASE("cuda kernels: the checker sees the accesses of every one") {
  if (!emulation::checked()) return;
  int64_t weight_bytes = 0;
  CHECK(norm_counters(DType::kF16, DType::kF32, false).accesses > 0);
  CHECK(product_counters(DType::kBF16, 1, weight_bytes).accesses > 0);
  CHECK(product_counters(DType::kQ4_0, 1, weight_bytes).accesses > 0);
  CHECK(attention_counters(DType::kF16, 64, 2, 1).counters.accesses > 0);
  const KernelCounters reduced = counters_of("all_reduce_kernel", [] {
    const DeviceArray<std::byte> inbox = DeviceArray<std::byte>::zeros(cuda::one_shot_inbox_bytes(1, 64));
    const DeviceArray<cuda::OneShotState> state = DeviceArray<cuda::OneShotState>::zeros(1);
    const DeviceArray<float> x(random_values(16, 1));
    check_cuda(cuda::all_reduce_one_shot({.capacity_bytes = 64, .inboxes = {inbox.data()}, .state = state.data()},
                                         {.count = x.size(), .x = x.data(), .out = x.data()}, nullptr),
               "all_reduce_one_shot");
    check_cuda(cudaDeviceSynchronize(), "all_reduce_one_shot");
  });
  CHECK(reduced.accesses > 0);
}
