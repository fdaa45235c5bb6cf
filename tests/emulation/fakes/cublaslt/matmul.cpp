// Choosing an algorithm, and the product itself. Stricter than the real library on purpose, so that a slip shows in
// every test and not only in those where it happens to matter:
// * the alignments that the preference claimed (256 bytes unless it says so; more is taken for 256) are demanded of the
//   pointers, whatever the algorithm needs; a workspace has to be aligned to 256 bytes, as the text of cublasLtMatmul
//   says (its table says 16);
// * an algorithm serves the very problem and kind of device that it was chosen for;
// * of a workspace that is given, some is written even by algorithms that need none;
// * C has to be valid memory even if beta is 0 (it is not read then), and no descriptor may be left out.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/fakes/cublaslt/product.hpp"
#include "tests/emulation/fakes/cublaslt/registry.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::cublaslt {
namespace {

constexpr std::string_view kNames[] = {"A", "B", "C", "D"};
/// Of a given workspace, what every algorithm writes.
constexpr int64_t kAlwaysWrittenBytes = 256;

uint64_t hash_of(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

uint64_t model_of(int device) {
  return hash_of(Machine::get().gpu(device).model->key);
}

/// What lies in a cublasLtMatmulAlgo_t.
struct Chosen {
  uint64_t magic = 0;
  uint64_t version = 0;
  uint64_t problem = 0;
  uint64_t model = 0;
  uint32_t number = 0;
  uint16_t alignment_bytes[4] = {};  // that were claimed for A, B, C, D
  uint32_t spare = 0;
  uint64_t spare_words[2] = {};
};
static_assert(sizeof(Chosen) == sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMagic = 0x73686172646c7400;

/// The handle and the descriptors of a call, or why it is refused.
struct Asked {
  Handle* handle = nullptr;
  Problem problem;
  Verdict verdict;
};

Asked look_up(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  Registry& registry = Registry::get();
  Asked asked;
  std::string why;
  asked.handle = registry.find<Handle>(handle, why);
  if (asked.handle == nullptr) {
    asked.verdict = {CUBLAS_STATUS_NOT_INITIALIZED, fmt::format("the handle is {}", why)};
    return asked;
  }
  if (asked.handle->device != current_device()) {
    asked.verdict = {CUBLAS_STATUS_INVALID_VALUE,
                     fmt::format("the handle is tied to device {}, the current one is {}: call cudaSetDevice before",
                                 asked.handle->device, current_device())};
    return asked;
  }
  auto* const product = registry.find<Operation>(operation, why);
  if (product == nullptr) {
    asked.verdict = {CUBLAS_STATUS_INVALID_VALUE, fmt::format("the product's descriptor is {}", why)};
    return asked;
  }
  asked.problem.product = product->product;
  const std::pair<cublasLtMatrixLayout_t, Matrix*> layouts[] = {
      {a, &asked.problem.a}, {b, &asked.problem.b}, {c, &asked.problem.c}, {d, &asked.problem.d}};
  for (size_t i = 0; i < 4; ++i) {
    auto* const layout = registry.find<Layout>(layouts[i].first, why);
    if (layout == nullptr) {
      asked.verdict = {CUBLAS_STATUS_INVALID_VALUE, fmt::format("the layout of {} is {}", kNames[i], why)};
      return asked;
    }
    *layouts[i].second = layout->matrix;
  }
  asked.verdict = check(asked.problem);
  return asked;
}

bool fits(const Algorithm& algorithm, const Problem& problem, const Limits& limits) {
  if (algorithm.workspace_bytes > 0) {
    if (static_cast<uint64_t>(algorithm.workspace_bytes) > limits.most_workspace_bytes) return false;
    if ((limits.reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0) return false;
  }
  const Matrix* const matrices[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (size_t i = 0; i < 4; ++i) {
    if (limits.alignment_bytes[i] < std::max(algorithm.alignment_bytes, matrices[i]->element_bytes())) return false;
  }
  return true;
}

cublasLtMatmulAlgo_t encode(const Algorithm& algorithm, const Problem& problem, const Limits& limits, int device) {
  Chosen chosen;
  chosen.magic = kMagic;
  chosen.version = CUBLAS_VERSION;
  chosen.problem = problem.hash();
  chosen.model = model_of(device);
  chosen.number = algorithm.number;
  for (size_t i = 0; i < 4; ++i) {
    chosen.alignment_bytes[i] = static_cast<uint16_t>(std::min<uint32_t>(limits.alignment_bytes[i], 1u << 15));
  }
  return std::bit_cast<cublasLtMatmulAlgo_t>(chosen);
}

/// A product in a stream or graph.
class Matmul final : public Work {
 public:
  Matmul(const Problem& problem, const Algorithm& algorithm, const Operands& operands, int64_t workspace_written)
      : problem_(problem), algorithm_(algorithm), operands_(operands), workspace_written_(workspace_written) {}

  std::string name() const override { return "cublasLtMatmul"; }

  std::vector<Range> ranges() const override {
    std::vector<Range> all = problem_.a.ranges(operands_.a, false);
    const auto append = [&all](const std::vector<Range>& more) { all.insert(all.end(), more.begin(), more.end()); };
    append(problem_.b.ranges(operands_.b, false));
    if (operands_.beta != 0) append(problem_.c.ranges(operands_.c, false));
    append(problem_.d.ranges(operands_.d, true));
    if (workspace_written_ > 0) all.push_back({operands_.workspace, workspace_written_, true});
    return all;
  }

  std::unique_ptr<Run> begin() const override {
    class Once final : public Run {
     public:
      explicit Once(const Matmul& matmul) : matmul_(matmul) {}
      bool advance() override {
        matmul_.run();
        return true;
      }

     private:
      const Matmul& matmul_;
    };
    return std::make_unique<Once>(*this);
  }

 private:
  void run() const {
    multiply(problem_, algorithm_, operands_);
    // Whoever takes what is left there for data finds NaN.
    if (workspace_written_ > 0) std::memset(operands_.workspace, 0xFF, static_cast<size_t>(workspace_written_));
  }

  Problem problem_;
  Algorithm algorithm_;
  Operands operands_;
  int64_t workspace_written_;
};

/// The claims about alignment that are true of these pointers.
Limits limits_of(const void* const (&pointers)[4], int64_t workspace_bytes) {
  Limits limits;
  limits.most_workspace_bytes = static_cast<uint64_t>(workspace_bytes);
  for (size_t i = 0; i < 4; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(pointers[i]);
    limits.alignment_bytes[i] = static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
  }
  return limits;
}

/// The algorithm that the caller brings, checked; or the first that fits.
Verdict choose(const cublasLtMatmulAlgo_t* brought, const Problem& problem, int device, const Limits& true_limits,
               Algorithm& algorithm) {
  const auto invalid = [](const std::string& why) { return Verdict{CUBLAS_STATUS_INVALID_VALUE, why}; };
  const std::vector<Algorithm> all = algorithms(problem);
  if (brought == nullptr) {
    const auto first =
        std::find_if(all.begin(), all.end(), [&](const Algorithm& it) { return fits(it, problem, true_limits); });
    if (first == all.end()) return {CUBLAS_STATUS_NOT_SUPPORTED, "there is no algorithm for these pointers"};
    algorithm = *first;
    return {};
  }
  const auto chosen = std::bit_cast<Chosen>(*brought);
  if (chosen.magic != kMagic) return invalid("the algorithm is none that cublasLtMatmulAlgoGetHeuristic gave");
  if (chosen.version != CUBLAS_VERSION) {
    return invalid(fmt::format("the algorithm is of cuBLAS {}, this is {}", chosen.version, CUBLAS_VERSION));
  }
  if (chosen.model != model_of(device)) {
    return {CUBLAS_STATUS_ARCH_MISMATCH, "the algorithm was chosen for another kind of GPU"};
  }
  if (chosen.problem != problem.hash()) {
    return invalid(
        "the algorithm was chosen for another problem: types, shapes, leading dimensions, batches, order and "
        "transposes have to be the same");
  }
  const auto same =
      std::find_if(all.begin(), all.end(), [&](const Algorithm& it) { return it.number == chosen.number; });
  if (same == all.end()) return invalid("the algorithm is none that cublasLtMatmulAlgoGetHeuristic gave");
  for (size_t i = 0; i < 4; ++i) {
    if (chosen.alignment_bytes[i] <= true_limits.alignment_bytes[i] || true_limits.alignment_bytes[i] == 256) continue;
    return invalid(
        fmt::format("{} is aligned to {} bytes, the algorithm was chosen for {}: set "
                    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{}_BYTES before asking",
                    kNames[i], true_limits.alignment_bytes[i], chosen.alignment_bytes[i], kNames[i]));
  }
  if (static_cast<uint64_t>(same->workspace_bytes) > true_limits.most_workspace_bytes) {
    return invalid(fmt::format("the algorithm needs {} bytes of workspace and is given {}", same->workspace_bytes,
                               true_limits.most_workspace_bytes));
  }
  algorithm = *same;
  return {};
}

Verdict check_memory(const Problem& problem, int device, const void* const (&pointers)[4], const void* workspace,
                     int64_t workspace_bytes) {
  const auto invalid = [](const std::string& why) { return Verdict{CUBLAS_STATUS_INVALID_VALUE, why}; };
  const Matrix* const matrices[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  std::string why;
  for (size_t i = 0; i < 4; ++i) {
    const Matrix& matrix = *matrices[i];
    if (pointers[i] == nullptr) return invalid(fmt::format("{} is a null pointer", kNames[i]));
    if (reinterpret_cast<uintptr_t>(pointers[i]) % static_cast<uintptr_t>(matrix.element_bytes()) != 0) {
      return invalid(fmt::format("{} is not aligned to its elements", kNames[i]));
    }
    if (!is_device_memory(pointers[i], matrix.extent_bytes(), device, why)) {
      return invalid(fmt::format("{} ({}, {} bytes) is not in memory of device {}: {}", kNames[i], matrix.description(),
                                 matrix.extent_bytes(), device, why));
    }
  }
  if (pointers[2] == pointers[3] && !(problem.c == problem.d)) {
    return invalid("C and D are the same memory but have different layouts");
  }
  std::vector<Range> written = problem.d.ranges(pointers[3], true);
  for (size_t i = 0; i < 3; ++i) {
    if (i == 2 && pointers[2] == pointers[3]) continue;
    std::vector<Range> read = matrices[i]->ranges(pointers[i], false);
    if (overlap(written, read)) return invalid(fmt::format("D overlaps {}", kNames[i]));
  }
  if (workspace_bytes < 0) return invalid("the workspace is larger than any memory");
  if (workspace_bytes == 0) return {};
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignmentBytes != 0) {
    return invalid(fmt::format("the workspace is not aligned to {} bytes", kWorkspaceAlignmentBytes));
  }
  if (!is_device_memory(workspace, workspace_bytes, device, why)) {
    return invalid(
        fmt::format("the workspace ({} bytes) is not in memory of device {}: {}", workspace_bytes, device, why));
  }
  std::vector<Range> scratch = {{workspace, workspace_bytes, true}};
  for (size_t i = 0; i < 4; ++i) {
    std::vector<Range> used = matrices[i]->ranges(pointers[i], false);
    if (overlap(scratch, used)) return invalid(fmt::format("the workspace overlaps {}", kNames[i]));
  }
  return {};
}

Verdict check_factor(const float* factor, std::string_view name) {
  Memory memory;
  if (factor == nullptr) return {CUBLAS_STATUS_INVALID_VALUE, fmt::format("{} is a null pointer", name)};
  if (find_memory(factor, memory) && memory.device != kPinned) {
    return {CUBLAS_STATUS_INVALID_VALUE, fmt::format("{} is in device memory: the pointer mode is the host's", name)};
  }
  return {};
}

}  // namespace
}  // namespace shardscope::emulation::cublaslt

using namespace shardscope::emulation;            // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::cublaslt;  // NOLINT(google-build-using-namespace)

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  const Call call("cublasLtMatmulAlgoGetHeuristic");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_NOT_SUPPORTED);
  const Asked asked = look_up(handle, operation, a, b, c, d);
  if (count != nullptr) *count = 0;
  if (!asked.verdict.good()) return refuse(call, asked.verdict.status, asked.verdict.why);
  std::string why;
  const auto* const limits = Registry::get().find<Preference>(preference, why);
  if (limits == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("the preference is {}", why));
  if (most < 1) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("{} algorithms are asked for", most));
  if (results == nullptr || count == nullptr) {
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the results or their number");
  }
  const int device = asked.handle->device;
  const Matrix& out = asked.problem.d;
  const double tiles = static_cast<double>((out.rows + 127) / 128 * ((out.columns + 127) / 128) * out.batches);
  for (const Algorithm& algorithm : algorithms(asked.problem)) {
    if (*count == most) break;
    if (!fits(algorithm, asked.problem, limits->limits)) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo = encode(algorithm, asked.problem, limits->limits, device);
    result.workspaceSize = static_cast<size_t>(algorithm.workspace_bytes);
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = static_cast<float>(tiles / Machine::get().multiprocessors(device));
  }
  if (*count == 0) return refuse(call, CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm is within the preference's limits");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* brought, void* workspace,
                              size_t workspace_size, cudaStream_t stream) {
  const Call call("cublasLtMatmul");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_EXECUTION_FAILED);
  const Asked asked = look_up(handle, operation, a_layout, b_layout, c_layout, d_layout);
  if (!asked.verdict.good()) return refuse(call, asked.verdict.status, asked.verdict.why);
  const int device = asked.handle->device;
  const int stream_device = device_of_stream(stream);
  if (stream_device < 0) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "there is no such stream");
  if (stream_device != device) {
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("the handle is tied to device {}, the stream is of device {}", device, stream_device));
  }
  const void* const pointers[] = {a, b, c, d};
  const auto workspace_bytes = static_cast<int64_t>(workspace_size);
  Verdict verdict = check_factor(static_cast<const float*>(alpha), "alpha");
  if (verdict.good()) verdict = check_factor(static_cast<const float*>(beta), "beta");
  if (verdict.good()) verdict = check_memory(asked.problem, device, pointers, workspace, workspace_bytes);
  Algorithm algorithm;
  if (verdict.good()) {
    verdict = choose(brought, asked.problem, device, limits_of(pointers, workspace_bytes), algorithm);
  }
  if (!verdict.good()) return refuse(call, verdict.status, verdict.why);
  const Operands operands{.a = static_cast<const std::byte*>(a),
                          .b = static_cast<const std::byte*>(b),
                          .c = static_cast<const std::byte*>(c),
                          .d = static_cast<std::byte*>(d),
                          .workspace = static_cast<std::byte*>(workspace),
                          .alpha = *static_cast<const float*>(alpha),
                          .beta = *static_cast<const float*>(beta)};
  const int64_t written = std::min(workspace_bytes, std::max(algorithm.workspace_bytes, kAlwaysWrittenBytes));
  const cudaError_t error =
      enqueue_work(call, stream, std::make_shared<const Matmul>(asked.problem, algorithm, operands, written));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
