// What the stand-in for cuBLASLt refuses: a table of slips (planted_host/cublaslt_slips*). Each row makes one call
// twice, once right and once with the slip; the first has to pass, the second to give the row's status and to say why.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/orders.hpp"
#include "tests/emulation/planted_host/cublaslt_slips.hpp"
#include "tests/emulation/planted_host/gemm.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::test {
namespace {

void try_all(std::span<const Slip> slips_to_try) {
  for (const Slip& row : slips_to_try) {
    for (const bool slips : {false, true}) {
      INFO(row.name << (slips ? ", with the slip" : ", right"));
      emulation::restart({.devices = 2});
      Attempt attempt(slips);
      REQUIRE(attempt.stand.error() == cudaSuccess);
      static_cast<void>(emulation::take_refusal());
      const cublasStatus_t status = row.attempt(attempt);
      const std::string refusal = emulation::take_refusal();
      INFO(refusal);
      CHECK(status == (slips ? row.status : CUBLAS_STATUS_SUCCESS));
      CHECK((refusal.find(row.reason) != std::string::npos) == slips);
      CHECK(attempt.stand.error() == cudaSuccess);
      attempt.stand.finish();
      CHECK(attempt.stand.error() == cudaSuccess);
      CHECK(unread_reports() == "");
    }
  }
}

}  // namespace

TEST_CASE("cuBLASLt: products whose types and shapes do not go together are refused") {
  try_all(slips_of_shape());
}

TEST_CASE("cuBLASLt: attributes that are not modelled, or wrong, are refused by name") {
  try_all(slips_of_attributes());
}

TEST_CASE("cublasLtMatmul: an algorithm serves what it was chosen for, and gets what it asked for") {
  try_all(slips_of_algorithms());
}

TEST_CASE("cublasLtMatmul: matrices and workspace are live memory of the device, and D is nothing else") {
  try_all(slips_of_memory());
}

TEST_CASE("cuBLASLt: handles, streams and descriptors that are none are recognised") {
  try_all(slips_of_handles());
}

TEST_CASE("cublasLtMatmul: an algorithm serves every GPU of the kind that it was chosen for, and no other kind") {
  emulation::MachineTable table = emulation::make_table("h100", 3);
  table.gpus[2].model = emulation::find_model("a100");
  emulation::restart({.table = table});
  Stand stand;
  Gemm chooser(kSlipShape);
  const auto algorithms = chooser.algorithms();
  REQUIRE(!algorithms.empty());
  for (int device = 0; device < 3; ++device) {
    stand.note(cudaSetDevice(device));
    Gemm gemm(kSlipShape);
    const std::byte* const ones = stand.zeros<std::byte>(4096);
    const cublasStatus_t status =
        gemm.run(ones, ones, stand.unwritten<std::byte>(4096), &algorithms[0].algo, nullptr, 0, nullptr);
    CHECK(status == (device < 2 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ARCH_MISMATCH));
    stand.finish();
  }
  CHECK(unread_reports() == "");
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("cublasLtMatmulAlgoGetHeuristic: algorithms that the preference rules out are not offered") {
  emulation::restart({});
  Gemm gemm(kSlipShape);
  const auto most = [&] { return gemm.algorithms().size(); };
  CHECK(most() == 3);  // without a workspace
  gemm.allow_workspace(1 << 20);
  CHECK(most() == 4);
  const auto all = gemm.algorithms();
  CHECK(all[0].workspaceSize > 0);
  CHECK(all[0].state == CUBLAS_STATUS_SUCCESS);
  CHECK(all[0].wavesCount > 0);
  gemm.allow_workspace(all[0].workspaceSize - 1);
  CHECK(most() == 3);
  gemm.allow_workspace(all[0].workspaceSize);
  CHECK(most() == 4);
  gemm.set_preference(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE});
  CHECK(most() == 3);
  gemm.claim_alignment(8);  // one algorithm needs 16
  CHECK(most() == 2);
  gemm.claim_alignment(16);
  CHECK(most() == 3);
  gemm.set_layout(gemm.a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{20});  // 40 bytes
  CHECK(most() == 2);
  CHECK(gemm.algorithms(1).size() == 1);
  CHECK(gemm.error() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cuBLASLt: attributes read back as they were set, and say how large they are") {
  emulation::restart({});
  Gemm gemm(GemmShape{.m = 3, .n = 5, .k = 7, .transpose_b = true, .row_major = true, .batches = 2});
  const auto layout = [&](cublasLtMatrixLayoutAttribute_t attribute) {
    int64_t value = 0;
    size_t bytes = 0;
    gemm.note(cublasLtMatrixLayoutGetAttribute(gemm.a, attribute, nullptr, 0, &bytes));
    size_t written = 0;
    gemm.note(cublasLtMatrixLayoutGetAttribute(gemm.a, attribute, &value, bytes, &written));
    CHECK(written == bytes);
    return value;
  };
  CHECK(layout(CUBLASLT_MATRIX_LAYOUT_ROWS) == 3);
  CHECK(layout(CUBLASLT_MATRIX_LAYOUT_COLS) == 7);
  CHECK(layout(CUBLASLT_MATRIX_LAYOUT_LD) == 7);
  CHECK(layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) == 2);
  CHECK(layout(CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_ROW);
  int32_t transposed = 0;
  gemm.note(cublasLtMatmulDescGetAttribute(gemm.operation, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof transposed,
                                           nullptr));
  CHECK(transposed == CUBLAS_OP_T);
  gemm.claim_alignment(64);
  uint32_t alignment = 0;
  gemm.note(cublasLtMatmulPreferenceGetAttribute(gemm.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                 &alignment, sizeof alignment, nullptr));
  CHECK(alignment == 64);
  CHECK(gemm.error() == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cublasLtCreate: fails where there is no GPU") {
  REQUIRE(setenv("CUDA_VISIBLE_DEVICES", "-1", 1) == 0);
  emulation::restart({});
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  REQUIRE(unsetenv("CUDA_VISIBLE_DEVICES") == 0);
  emulation::restart({});
  CHECK(status == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(handle == nullptr);
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cuBLASLt: what is not destroyed is told, and a restart forgets it") {
  emulation::restart({});
  {
    const Gemm gemm(kSlipShape);
    CHECK(emulation::not_given_back().size() == 7);  // handle, product, four layouts, preference
  }
  CHECK(emulation::not_given_back().empty());
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1, 1, 1) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  emulation::restart({});
  CHECK(emulation::not_given_back().empty());
  CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(cublasLtMatmulDescDestroy(operation) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("cuBLASLt: the call that is to fail does, does nothing, and the next one works") {
  const std::string_view functions[] = {
      "cublasLtCreate",
      "cublasLtDestroy",
      "cublasLtMatmulDescCreate",
      "cublasLtMatmulDescDestroy",
      "cublasLtMatmulDescSetAttribute",
      "cublasLtMatrixLayoutCreate",
      "cublasLtMatrixLayoutDestroy",
      "cublasLtMatrixLayoutSetAttribute",
      "cublasLtMatmulPreferenceCreate",
      "cublasLtMatmulPreferenceDestroy",
      "cublasLtMatmulPreferenceSetAttribute",
      "cublasLtMatmulAlgoGetHeuristic",
      "cublasLtMatmul",
  };
  for (const std::string_view function : functions) {
    for (const int error : {0, static_cast<int>(CUBLAS_STATUS_INTERNAL_ERROR)}) {
      INFO(function << ", " << error);
      emulation::restart({.failing = {{.function = std::string(function), .nth = 1, .error = error}}});
      std::vector<cublasStatus_t> failures;
      const auto twice = [&](const auto& call) {
        for (int i = 0; i < 2; ++i) {
          const cublasStatus_t status = call();
          if (status == CUBLAS_STATUS_SUCCESS) return;
          failures.push_back(status);
        }
      };
      Stand stand;
      const float* const data = stand.zeros<float>(1);
      float* const out = stand.unwritten<float>(1);
      cublasLtHandle_t handle = nullptr;
      cublasLtMatmulDesc_t operation = nullptr;
      cublasLtMatrixLayout_t layout = nullptr;
      cublasLtMatmulPreference_t preference = nullptr;
      cublasLtMatmulHeuristicResult_t result{};
      const int32_t transposed = CUBLAS_OP_T;
      const int32_t batches = 1;
      const uint64_t workspace = 0;
      const float one = 1;
      const float zero = 0;
      int count = 0;
      twice([&] { return cublasLtCreate(&handle); });
      twice([&] { return cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F); });
      twice([&] {
        return cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
      });
      twice([&] { return cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1, 1, 1); });
      twice([&] {
        return cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches);
      });
      twice([&] { return cublasLtMatmulPreferenceCreate(&preference); });
      twice([&] {
        return cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace);
      });
      twice([&] {
        return cublasLtMatmulAlgoGetHeuristic(handle, operation, layout, layout, layout, layout, preference, 1, &result,
                                              &count);
      });
      twice([&] {
        return cublasLtMatmul(handle, operation, &one, data, layout, data, layout, &zero, out, layout, out, layout,
                              &result.algo, nullptr, 0, nullptr);
      });
      CHECK(stand.first(out) == 0.0f);
      twice([&] { return cublasLtMatmulPreferenceDestroy(preference); });
      twice([&] { return cublasLtMatrixLayoutDestroy(layout); });
      twice([&] { return cublasLtMatmulDescDestroy(operation); });
      twice([&] { return cublasLtDestroy(handle); });
      REQUIRE(failures.size() == 1);
      if (error != 0) CHECK(failures[0] == error);
      CHECK(emulation::not_given_back().size() == 2);  // the two pieces of memory
      CHECK(emulation::calls().at(std::string(function)) == 2);
    }
  }
}

}  // namespace shardscope::test
