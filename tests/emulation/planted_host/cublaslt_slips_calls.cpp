// Algorithms, memory, handles and streams that a product may not be called with.
#include <cstring>

#include "tests/emulation/planted_host/cublaslt_slips.hpp"

namespace shardscope::test {
namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;

const Slip kAlgorithms[] = {
    {"a pointer aligned to less than was claimed", kInvalid, "A is aligned to 16 bytes",
     [](Attempt& it) {
       if (!it.slips) it.gemm->claim_alignment(16);
       it.a += 16;
       return it.choose_and_run();
     }},
    {"D aligned to less than was claimed", kInvalid, "is aligned to 128 bytes",
     [](Attempt& it) {
       if (!it.slips) it.gemm->claim_alignment(128);
       it.d += 128;
       it.c = it.d;
       return it.choose_and_run();
     }},
    {"a pointer not aligned to its elements", kInvalid, "not aligned to its elements",
     [](Attempt& it) {
       it.a += it.slips ? 1 : 2;
       return it.run();
     }},
    {"an algorithm of another problem", kInvalid, "another problem",
     [](Attempt& it) {
       it.choose();
       if (it.slips) it.gemm->set_layout(it.gemm->b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{40});
       return it.run();
     }},
    {"an algorithm of all zeros", kInvalid, "none that",
     [](Attempt& it) {
       it.choose();
       if (it.slips) it.algorithm = {};
       return it.run();
     }},
    {"an algorithm of another version", kInvalid, "of cuBLAS",
     [](Attempt& it) {
       it.choose();
       if (it.slips) it.algorithm.data[1] += 100;
       return it.run();
     }},
    {"a workspace too small for the algorithm", kInvalid, "bytes of workspace",
     [](Attempt& it) {
       it.choose();
       it.workspace_bytes = it.slips ? 1024 : 2048;
       return it.run();
     }},
    {"a workspace with 16-byte alignment", kInvalid, "workspace is not aligned",
     [](Attempt& it) {
       it.workspace += it.slips ? 16 : 256;
       return it.choose_and_run();
     }},
    {"a workspace in host memory", kInvalid, "workspace",
     [](Attempt& it) {
       void* pinned = nullptr;
       it.stand.note(cudaHostAlloc(&pinned, kSlipWorkspaceBytes, cudaHostAllocDefault));
       if (it.slips) it.workspace = static_cast<std::byte*>(pinned);
       return it.choose_and_run();
     }},
    {"a workspace that is shorter than said", kInvalid, "workspace",
     [](Attempt& it) {
       it.workspace_bytes = 2 * kSlipWorkspaceBytes + (it.slips ? 1 : 0);
       return it.choose_and_run();
     }},
    {"no workspace but a size", kInvalid, "workspace",
     [](Attempt& it) {
       if (it.slips) it.workspace = nullptr;
       return it.choose_and_run();
     }},
};

const Slip kMemory[] = {
    {"A in the host's memory", kInvalid, "A (",
     [](Attempt& it) {
       alignas(256) static std::byte host[4096];
       if (it.slips) it.a = host;
       return it.run();
     }},
    {"A in pinned memory", kInvalid, "A (",
     [](Attempt& it) {
       void* pinned = nullptr;
       it.stand.note(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault));
       std::memset(pinned, 0, 4096);
       if (it.slips) it.a = static_cast<std::byte*>(pinned);
       return it.run();
     }},
    {"A freed", kInvalid, "A (",
     [](Attempt& it) {
       it.stand.note(cudaFree(it.slips ? it.a : it.stand.zeros<std::byte>(4)));
       return it.run();
     }},
    {"A of another device", kInvalid, "A (",
     [](Attempt& it) {
       it.stand.note(cudaSetDevice(1));
       std::byte* const other = it.stand.zeros<std::byte>(4096);
       it.stand.finish();
       it.stand.note(cudaSetDevice(0));
       if (it.slips) it.a = other;
       return it.run();
     }},
    {"A that ends too early", kInvalid, "A (",
     [](Attempt& it) {
       it.a = it.stand.zeros<std::byte>(1024 - (it.slips ? 2u : 0u));
       return it.run();
     }},
    {"a batch of D that ends too early", kInvalid, "D (",
     [](Attempt& it) {
       for (cublasLtMatrixLayout_t layout : {it.gemm->a, it.gemm->b, it.gemm->c, it.gemm->d}) {
         it.gemm->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{3});
       }
       for (cublasLtMatrixLayout_t layout : {it.gemm->c, it.gemm->d}) {
         it.gemm->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{128});
       }
       it.d = it.stand.unwritten<std::byte>(3 * 256 - (it.slips ? 2u : 0u));
       return it.run();
     }},
    {"no D", kInvalid, "D is a null pointer",
     [](Attempt& it) {
       if (it.slips) it.d = nullptr;
       return it.run();
     }},
    {"D over A", kInvalid, "D overlaps A",
     [](Attempt& it) {
       it.a = it.d + (it.slips ? 254 : 256);
       return it.run();
     }},
    {"D over B, between the columns", kInvalid, "D overlaps B",
     [](Attempt& it) {
       for (cublasLtMatrixLayout_t layout : {it.gemm->b, it.gemm->c, it.gemm->d}) {
         it.gemm->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{48});
       }
       it.d = it.b + (it.slips ? 62 : 64);
       it.c = it.d;
       return it.run();
     }},
    {"D over a part of C", kInvalid, "D overlaps C",
     [](Attempt& it) {
       it.c = it.slips ? it.d + 32 : it.d;
       return it.run();
     }},
    {"D in the place of C with another layout", kInvalid, "different layouts",
     [](Attempt& it) {
       it.gemm->set_layout(it.gemm->c, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{24});
       if (it.slips) it.c = it.d;
       return it.run();
     }},
    {"the workspace over D", kInvalid, "workspace overlaps",
     [](Attempt& it) {
       it.d = it.workspace + (it.slips ? 0 : kSlipWorkspaceBytes);
       it.c = it.d;
       return it.run();
     }},
    {"no alpha", kInvalid, "alpha",
     [](Attempt& it) {
       if (it.slips) it.alpha = nullptr;
       return it.run();
     }},
    {"beta in device memory", kInvalid, "beta is in device memory",
     [](Attempt& it) {
       void* pinned = nullptr;
       it.stand.note(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault));
       std::memset(pinned, 0, 4096);
       it.beta = it.slips ? it.a : pinned;
       return it.run();
     }},
};

const Slip kHandles[] = {
    {"a handle that was destroyed", CUBLAS_STATUS_NOT_INITIALIZED, "destroyed",
     [](Attempt& it) {
       cublasLtHandle_t other = nullptr;
       it.gemm->note(cublasLtCreate(&other));
       const cublasLtHandle_t destroyed = it.slips ? it.gemm->handle : other;
       it.gemm->note(cublasLtDestroy(destroyed));
       const cublasStatus_t status = it.run();
       it.gemm->handle = it.slips ? other : it.gemm->handle;
       return status;
     }},
    {"a handle that is none", CUBLAS_STATUS_NOT_INITIALIZED, "never given",
     [](Attempt& it) {
       const cublasLtHandle_t handle = it.gemm->handle;
       int32_t something = 0;
       if (it.slips) it.gemm->handle = reinterpret_cast<cublasLtHandle_t>(&something);
       const cublasStatus_t status = it.run();
       it.gemm->handle = handle;
       return status;
     }},
    {"a handle destroyed twice", CUBLAS_STATUS_NOT_INITIALIZED, "destroyed",
     [](Attempt& it) {
       cublasLtHandle_t other = nullptr;
       it.gemm->note(cublasLtCreate(&other));
       if (it.slips) it.gemm->note(cublasLtDestroy(other));
       return cublasLtDestroy(other);
     }},
    {"a handle of another device than the current one", kInvalid, "the current one is 1",
     [](Attempt& it) {
       if (it.slips) it.stand.note(cudaSetDevice(1));
       const cublasStatus_t status = it.run();
       it.stand.note(cudaSetDevice(0));
       return status;
     }},
    {"a stream of another device", kInvalid, "stream is of device 1",
     [](Attempt& it) {
       it.stand.note(cudaSetDevice(it.slips ? 1 : 0));
       it.stand.note(cudaStreamCreateWithFlags(&it.stream, cudaStreamNonBlocking));
       it.stand.note(cudaSetDevice(0));
       return it.run();
     }},
    {"a stream that was destroyed", kInvalid, "no such stream",
     [](Attempt& it) {
       it.stand.note(cudaStreamCreateWithFlags(&it.stream, cudaStreamNonBlocking));
       if (it.slips) it.stand.note(cudaStreamDestroy(it.stream));
       return it.run();
     }},
    {"a layout that was destroyed", kInvalid, "layout of B is one that has been destroyed",
     [](Attempt& it) {
       const cublasLtMatrixLayout_t layout = it.gemm->b;
       it.gemm->note(cublasLtMatrixLayoutDestroy(it.slips ? layout : it.gemm->c));
       if (!it.slips) it.gemm->c = it.gemm->d;
       return it.run();
     }},
    {"a preference in the place of a layout", kInvalid, "layout of A is a preference",
     [](Attempt& it) {
       const cublasLtMatrixLayout_t layout = it.gemm->a;
       if (it.slips) std::memcpy(&it.gemm->a, &it.gemm->preference, sizeof it.gemm->a);
       const cublasStatus_t status = it.run();
       it.gemm->a = layout;
       return status;
     }},
    {"no layout of C", kInvalid, "layout of C is a null pointer",
     [](Attempt& it) {
       const cublasLtMatrixLayout_t layout = it.gemm->c;
       if (it.slips) it.gemm->c = nullptr;
       const cublasStatus_t status = it.run();
       it.gemm->c = layout;
       return status;
     }},
    {"a handle in the place of the descriptor", kInvalid, "descriptor is a handle",
     [](Attempt& it) {
       const cublasLtMatmulDesc_t operation = it.gemm->operation;
       if (it.slips) std::memcpy(&it.gemm->operation, &it.gemm->handle, sizeof operation);
       const cublasStatus_t status = it.ask();
       it.gemm->operation = operation;
       return status;
     }},
};

}  // namespace

std::span<const Slip> slips_of_algorithms() {
  return kAlgorithms;
}
std::span<const Slip> slips_of_memory() {
  return kMemory;
}
std::span<const Slip> slips_of_handles() {
  return kHandles;
}

}  // namespace shardscope::test
