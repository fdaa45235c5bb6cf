// Making, changing and destroying handles and descriptors. What we do not model is refused where it is asked for, by
// its name, not where it would first matter, as the real library does.
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>

#include "tests/emulation/fakes/cublaslt/registry.hpp"

namespace shardscope::emulation::cublaslt {
namespace {

/// An attribute that we have: where it lies, and the values that it may take.
struct Attribute {
  void* value = nullptr;
  size_t bytes = 0;
  std::string_view name;
};

std::optional<Attribute> attribute(Matrix& matrix, int number) {
  switch (number) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return Attribute{&matrix.type, sizeof matrix.type, "CUBLASLT_MATRIX_LAYOUT_TYPE"};
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return Attribute{&matrix.order, sizeof matrix.order, "CUBLASLT_MATRIX_LAYOUT_ORDER"};
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Attribute{&matrix.rows, sizeof matrix.rows, "CUBLASLT_MATRIX_LAYOUT_ROWS"};
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Attribute{&matrix.columns, sizeof matrix.columns, "CUBLASLT_MATRIX_LAYOUT_COLS"};
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Attribute{&matrix.ld, sizeof matrix.ld, "CUBLASLT_MATRIX_LAYOUT_LD"};
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Attribute{&matrix.batches, sizeof matrix.batches, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"};
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Attribute{&matrix.batch_stride, sizeof matrix.batch_stride, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET"};
    default:
      return std::nullopt;
  }
}

std::optional<Attribute> attribute(Limits& limits, int number) {
  switch (number) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return Attribute{&limits.search_mode, sizeof limits.search_mode, "CUBLASLT_MATMUL_PREF_SEARCH_MODE"};
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Attribute{&limits.most_workspace_bytes, sizeof limits.most_workspace_bytes,
                       "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"};
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Attribute{&limits.reduction_schemes, sizeof limits.reduction_schemes,
                       "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK"};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Attribute{&limits.alignment_bytes[0], sizeof(uint32_t), "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES"};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Attribute{&limits.alignment_bytes[1], sizeof(uint32_t), "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES"};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Attribute{&limits.alignment_bytes[2], sizeof(uint32_t), "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES"};
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Attribute{&limits.alignment_bytes[3], sizeof(uint32_t), "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES"};
    default:
      return std::nullopt;
  }
}

/// What a product's attribute may be; the real library knows more.
struct Choice {
  int number;
  std::string_view name;
  int32_t default_value;
  std::string_view allowed;
};

constexpr Choice kOnlyDefaults[] = {
    {CUBLASLT_MATMUL_DESC_POINTER_MODE, "CUBLASLT_MATMUL_DESC_POINTER_MODE", CUBLASLT_POINTER_MODE_HOST,
     "CUBLASLT_POINTER_MODE_HOST"},
    {CUBLASLT_MATMUL_DESC_TRANSC, "CUBLASLT_MATMUL_DESC_TRANSC", CUBLAS_OP_N, "CUBLAS_OP_N"},
    {CUBLASLT_MATMUL_DESC_FILL_MODE, "CUBLASLT_MATMUL_DESC_FILL_MODE", CUBLAS_FILL_MODE_FULL, "CUBLAS_FILL_MODE_FULL"},
    {CUBLASLT_MATMUL_DESC_EPILOGUE, "CUBLASLT_MATMUL_DESC_EPILOGUE", CUBLASLT_EPILOGUE_DEFAULT,
     "CUBLASLT_EPILOGUE_DEFAULT"},
};

const Choice* only_default(int number) {
  for (const Choice& choice : kOnlyDefaults) {
    if (choice.number == number) return &choice;
  }
  return nullptr;
}

std::string wrong_size(std::string_view name, size_t bytes, size_t given) {
  return fmt::format("{} has {} bytes, not {}", name, bytes, given);
}

cublasStatus_t set(const Call& call, const std::optional<Attribute>& it, int number, const void* value, size_t bytes) {
  if (!it) return refuse(call, CUBLAS_STATUS_NOT_SUPPORTED, fmt::format("attribute {} is not modelled", number));
  if (value == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("no value for {}", it->name));
  if (bytes != it->bytes) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, wrong_size(it->name, it->bytes, bytes));
  std::memcpy(it->value, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// As the real ones: a size of 0 asks for the size.
cublasStatus_t give(const Call& call, const std::optional<Attribute>& it, int number, void* value, size_t bytes,
                    size_t* written) {
  if (!it) return refuse(call, CUBLAS_STATUS_NOT_SUPPORTED, fmt::format("attribute {} is not modelled", number));
  if (bytes == 0 ? written == nullptr : value == nullptr) {
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("nowhere to put {}", it->name));
  }
  if (bytes != 0 && bytes != it->bytes) {
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, wrong_size(it->name, it->bytes, bytes));
  }
  if (bytes != 0) std::memcpy(value, it->value, bytes);
  if (written != nullptr) *written = it->bytes;
  return CUBLAS_STATUS_SUCCESS;
}

/// nullptr: the call is to be refused, for what `status` says then.
template <class T>
T* found(const Call& call, const void* pointer, std::string_view what, cublasStatus_t& status) {
  std::string why;
  T* const it = Registry::get().find<T>(pointer, why);
  if (it != nullptr) return it;
  status = refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("the {} is {}", what, why));
  return nullptr;
}

template <class T>
cublasStatus_t destroy(const Call& call, const void* pointer, std::string_view what) {
  cublasStatus_t status{};
  if (found<T>(call, pointer, what, status) == nullptr) return status;
  Registry::get().remove<T>(pointer);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_operation(const Call& call, Product& product, int number, const void* value, size_t bytes) {
  int32_t given = 0;
  const Choice* const choice = only_default(number);
  const bool transposes = number == CUBLASLT_MATMUL_DESC_TRANSA || number == CUBLASLT_MATMUL_DESC_TRANSB;
  const bool types = number == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE || number == CUBLASLT_MATMUL_DESC_SCALE_TYPE;
  std::optional<Attribute> it;
  if (choice != nullptr) it = Attribute{&given, sizeof given, choice->name};
  if (transposes) it = Attribute{&given, sizeof given, "CUBLASLT_MATMUL_DESC_TRANSA or _TRANSB"};
  if (types) it = Attribute{&given, sizeof given, "CUBLASLT_MATMUL_DESC_COMPUTE_TYPE or _SCALE_TYPE"};
  if (const cublasStatus_t status = set(call, it, number, value, bytes); status != CUBLAS_STATUS_SUCCESS) return status;
  if (choice != nullptr && given != choice->default_value) {
    return refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                  fmt::format("{} {} is not modelled: only {} is", choice->name, given, choice->allowed));
  }
  if (transposes) {
    if (given != CUBLAS_OP_N && given != CUBLAS_OP_T && given != CUBLAS_OP_C) {
      return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("there is no operation {}", given));
    }
    (number == CUBLASLT_MATMUL_DESC_TRANSA ? product.transposed_a : product.transposed_b) = given != CUBLAS_OP_N;
  }
  if (number == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) product.compute = given;
  if (number == CUBLASLT_MATMUL_DESC_SCALE_TYPE) product.scale = given;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t give_operation(const Call& call, const Product& product, int number, void* value, size_t bytes,
                              size_t* written) {
  int32_t current = 0;
  std::string_view name = "the attribute";
  if (const Choice* const choice = only_default(number)) {
    current = choice->default_value;
  } else if (number == CUBLASLT_MATMUL_DESC_TRANSA) {
    current = product.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  } else if (number == CUBLASLT_MATMUL_DESC_TRANSB) {
    current = product.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  } else if (number == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) {
    current = product.compute;
  } else if (number == CUBLASLT_MATMUL_DESC_SCALE_TYPE) {
    current = product.scale;
  } else {
    return give(call, std::nullopt, number, value, bytes, written);
  }
  return give(call, Attribute{&current, sizeof current, name}, number, value, bytes, written);
}

cublasStatus_t set_preference(const Call& call, Limits& limits, int number, const void* value, size_t bytes) {
  Limits changed = limits;
  if (const cublasStatus_t status = set(call, attribute(changed, number), number, value, bytes);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (changed.search_mode != CUBLASLT_SEARCH_BEST_FIT) {
    return refuse(call, CUBLAS_STATUS_NOT_SUPPORTED,
                  fmt::format("search mode {} is not modelled: only CUBLASLT_SEARCH_BEST_FIT is", changed.search_mode));
  }
  for (const uint32_t alignment : changed.alignment_bytes) {
    if (alignment != 0 && (alignment & (alignment - 1)) == 0) continue;
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, fmt::format("an alignment of {} is no power of two", alignment));
  }
  limits = changed;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace shardscope::emulation::cublaslt

// ---- the functions of cuBLASLt
// ----------------------------------------------------------------------------------------

using namespace shardscope::emulation;            // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::cublaslt;  // NOLINT(google-build-using-namespace)

extern "C" {

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  const Call call("cublasLtMatrixLayoutCreate");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_ALLOC_FAILED);
  if (layout == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the layout");
  Matrix matrix;
  matrix.type = type;
  matrix.rows = static_cast<int64_t>(rows);
  matrix.columns = static_cast<int64_t>(columns);
  matrix.ld = ld;
  *layout = Registry::get().add<Layout, cublasLtMatrixLayout_t>(
      std::unique_ptr<Layout>(new Layout{matrix, Held(fmt::format("matrix layout {}", matrix.description()))}));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const Call call("cublasLtMatrixLayoutDestroy");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  return destroy<Layout>(call, layout, "layout");
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t number,
                                                const void* value, size_t bytes) {
  const Call call("cublasLtMatrixLayoutSetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Layout>(call, layout, "layout", status);
  return it == nullptr ? status : set(call, attribute(it->matrix, number), number, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t number,
                                                void* value, size_t bytes, size_t* written) {
  const Call call("cublasLtMatrixLayoutGetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Layout>(call, layout, "layout", status);
  return it == nullptr ? status : give(call, attribute(it->matrix, number), number, value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const Call call("cublasLtMatmulDescCreate");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_ALLOC_FAILED);
  if (descriptor == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the descriptor");
  Product product;
  product.compute = compute;
  product.scale = scale;
  *descriptor = Registry::get().add<Operation, cublasLtMatmulDesc_t>(
      std::unique_ptr<Operation>(new Operation{product, Held("cuBLASLt descriptor of a product")}));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  const Call call("cublasLtMatmulDescDestroy");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  return destroy<Operation>(call, descriptor, "descriptor");
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t number,
                                              const void* value, size_t bytes) {
  const Call call("cublasLtMatmulDescSetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Operation>(call, descriptor, "descriptor", status);
  return it == nullptr ? status : set_operation(call, it->product, number, value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t number,
                                              void* value, size_t bytes, size_t* written) {
  const Call call("cublasLtMatmulDescGetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Operation>(call, descriptor, "descriptor", status);
  return it == nullptr ? status : give_operation(call, it->product, number, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  const Call call("cublasLtMatmulPreferenceCreate");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_ALLOC_FAILED);
  if (preference == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the preference");
  *preference = Registry::get().add<Preference, cublasLtMatmulPreference_t>(
      std::unique_ptr<Preference>(new Preference{Limits(), Held("cuBLASLt preference")}));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const Call call("cublasLtMatmulPreferenceDestroy");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  return destroy<Preference>(call, preference, "preference");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t number, const void* value,
                                                    size_t bytes) {
  const Call call("cublasLtMatmulPreferenceSetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Preference>(call, preference, "preference", status);
  return it == nullptr ? status : set_preference(call, it->limits, number, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t number, void* value,
                                                    size_t bytes, size_t* written) {
  const Call call("cublasLtMatmulPreferenceGetAttribute");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_INVALID_VALUE);
  cublasStatus_t status{};
  auto* const it = found<Preference>(call, preference, "preference", status);
  return it == nullptr ? status : give(call, attribute(it->limits, number), number, value, bytes, written);
}

}  // extern "C"
