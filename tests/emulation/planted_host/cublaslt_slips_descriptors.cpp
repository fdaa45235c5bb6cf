// Types, shapes and attributes that do not go together, or are not modelled.
#include "tests/emulation/planted_host/cublaslt_slips.hpp"

namespace shardscope::test {
namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr cublasStatus_t kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

const Slip kShapes[] = {
    {"A does not fit", kInvalid, "do not fit together",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{it.slips ? 15u : 16u});
     }},
    {"transposed and does not fit", kInvalid, "do not fit together",
     [](Attempt& it) {
       it.gemm->set_operation(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{it.slips ? CUBLAS_OP_T : CUBLAS_OP_N});
       return it.ask();
     }},
    {"leading dimension too small", kInvalid, "leading dimension",
     [](Attempt& it) { return it.set_and_ask(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{it.slips ? 31 : 32}); }},
    {"leading dimension 0 of D", kInvalid, "leading dimension",
     [](Attempt& it) { return it.set_and_ask(it.gemm->d, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{it.slips ? 0 : 16}); }},
    {"leading dimension 0 of C", kInvalid, "leading dimension",
     [](Attempt& it) { return it.set_and_ask(it.gemm->c, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{it.slips ? 0 : 16}); }},
    {"C of another shape", kInvalid, "have to be equal",
     [](Attempt& it) { return it.set_and_ask(it.gemm->c, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{it.slips ? 9u : 8u}); }},
    {"a matrix without elements", kInvalid, "no elements",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{it.slips ? 0u : 16u});
     }},
    {"more rows than 32 bits count", kUnsupported, "32 bits",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_ROWS, it.slips ? uint64_t{1} << 31 : uint64_t{16});
     }},
    {"batches of different counts", kInvalid, "batch of",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{it.slips ? 2 : 1});
     }},
    {"an empty batch", kInvalid, "at least one",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{it.slips ? 0 : 1});
     }},
    {"products of a batch that overlap", kInvalid, "overlap",
     [](Attempt& it) {
       for (cublasLtMatrixLayout_t layout : {it.gemm->a, it.gemm->b, it.gemm->c, it.gemm->d}) {
         it.gemm->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2});
       }
       return it.set_and_ask(it.gemm->d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{it.slips ? 120 : 128});
     }},
    {"a negative batch stride", kUnsupported, "negative",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{it.slips ? -512 : 512});
     }},
    {"A and B of two types", kUnsupported, "of one type",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{it.slips ? CUDA_R_16BF : CUDA_R_16F});
     }},
    {"C and D of two types", kUnsupported, "of one type",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->d, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{it.slips ? CUDA_R_32F : CUDA_R_16F});
     }},
    {"fp16 to bf16", kUnsupported, "the same or fp32",
     [](Attempt& it) {
       const uint32_t out = it.slips ? CUDA_R_16BF : CUDA_R_32F;
       it.gemm->set_layout(it.gemm->c, CUBLASLT_MATRIX_LAYOUT_TYPE, out);
       return it.set_and_ask(it.gemm->d, CUBLASLT_MATRIX_LAYOUT_TYPE, out);
     }},
    {"a type that is not modelled", kUnsupported, "cudaDataType",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{it.slips ? CUDA_R_8I : CUDA_R_16F});
     }},
    {"sums in fp16", kUnsupported, "compute type",
     [](Attempt& it) {
       it.gemm->set_operation(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE,
                              int32_t{it.slips ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F});
       return it.ask();
     }},
    {"alpha in fp16", kUnsupported, "scale type",
     [](Attempt& it) {
       it.gemm->set_operation(CUBLASLT_MATMUL_DESC_SCALE_TYPE, int32_t{it.slips ? CUDA_R_16F : CUDA_R_32F});
       return it.ask();
     }},
    {"mixed orders", kUnsupported, "use one order",
     [](Attempt& it) {
       it.gemm->set_layout(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{32});
       return it.set_and_ask(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_ORDER,
                             int32_t{it.slips ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL});
     }},
    {"an order of tiles", kUnsupported, "CUBLASLT_ORDER_COL",
     [](Attempt& it) {
       return it.set_and_ask(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_ORDER,
                             int32_t{it.slips ? CUBLASLT_ORDER_COL32 : CUBLASLT_ORDER_COL});
     }},
};

const Slip kAttributes[] = {
    {"an epilogue", kUnsupported, "CUBLASLT_MATMUL_DESC_EPILOGUE",
     [](Attempt& it) {
       return it.gemm->set_operation(CUBLASLT_MATMUL_DESC_EPILOGUE,
                                     uint32_t{it.slips ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT});
     }},
    {"alpha on the device", kUnsupported, "CUBLASLT_MATMUL_DESC_POINTER_MODE",
     [](Attempt& it) {
       return it.gemm->set_operation(CUBLASLT_MATMUL_DESC_POINTER_MODE,
                                     int32_t{it.slips ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST});
     }},
    {"an attribute that is not modelled", kUnsupported, "attribute 25",
     [](Attempt& it) {
       return it.slips ? it.gemm->set_operation(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1})
                       : it.gemm->set_operation(CUBLASLT_MATMUL_DESC_TRANSC, int32_t{CUBLAS_OP_N});
     }},
    {"a value of the wrong size", kInvalid, "has 4 bytes, not 8",
     [](Attempt& it) {
       return it.slips ? it.gemm->set_operation(CUBLASLT_MATMUL_DESC_TRANSA, int64_t{CUBLAS_OP_N})
                       : it.gemm->set_operation(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_N});
     }},
    {"a batch count of the wrong size", kInvalid, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT has 4 bytes",
     [](Attempt& it) {
       return it.slips ? it.gemm->set_layout(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int64_t{1})
                       : it.gemm->set_layout(it.gemm->a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1});
     }},
    {"a workspace limit of the wrong size", kInvalid, "has 8 bytes, not 4",
     [](Attempt& it) {
       return it.slips ? it.gemm->set_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint32_t{1})
                       : it.gemm->set_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1});
     }},
    {"no value", kInvalid, "no value for",
     [](Attempt& it) {
       const int32_t value = CUBLAS_OP_N;
       return cublasLtMatmulDescSetAttribute(it.gemm->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                             it.slips ? nullptr : &value, sizeof value);
     }},
    {"an operation that there is not", kInvalid, "no operation 7",
     [](Attempt& it) {
       return it.gemm->set_operation(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{it.slips ? 7 : CUBLAS_OP_C});
     }},
    {"an alignment that is no power of two", kInvalid, "power of two",
     [](Attempt& it) {
       return it.gemm->set_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{it.slips ? 24u : 32u});
     }},
    {"another search", kUnsupported, "search mode",
     [](Attempt& it) {
       return it.gemm->set_preference(
           CUBLASLT_MATMUL_PREF_SEARCH_MODE,
           uint32_t{it.slips ? CUBLASLT_SEARCH_LIMITED_BY_ALGO_ID : CUBLASLT_SEARCH_BEST_FIT});
     }},
    {"a mask of implementations", kUnsupported, "attribute 12",
     [](Attempt& it) {
       return it.slips ? it.gemm->set_preference(CUBLASLT_MATMUL_PREF_IMPL_MASK, uint64_t{1})
                       : it.gemm->set_preference(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{0});
     }},
    {"no algorithms asked for", kInvalid, "0 algorithms", [](Attempt& it) { return it.ask(it.slips ? 0 : 1); }},
    {"matrices that may lie anywhere", kUnsupported, "within the preference's limits",
     [](Attempt& it) {
       it.gemm->claim_alignment(it.slips ? 1 : 2);
       return it.ask();
     }},
};

}  // namespace

std::span<const Slip> slips_of_shape() {
  return kShapes;
}
std::span<const Slip> slips_of_attributes() {
  return kAttributes;
}

}  // namespace shardscope::test
