// Small pieces that several documents share: values to JSON, null where nothing is known.
#pragma once

#include <optional>
#include <string>

#include "kernels/base/range.hpp"
#include "runtime/decoder.hpp"
#include "runtime/measure/traffic.hpp"
#include "runtime/report/document.hpp"

namespace shardscope::runtime {

template <typename Value>
Json value_or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

/// Half-open: [begin, end].
inline Json range_json(Range range) {
  return Json::array({range.begin, range.end});
}

inline Json memory_json(const MemoryBytes& memory) {
  return {{"weights", memory.weights}, {"kv", memory.kv}, {"workspace", memory.workspace}};
}

inline Json step_bytes_json(const StepBytes& bytes) {
  return {{"weights", bytes.weights},       {"kv_read", bytes.kv_read}, {"kv_write", bytes.kv_write},
          {"replicated", bytes.replicated}, {"padded", bytes.padded},   {"activations", bytes.activations}};
}

inline Json workload_point_json(const Workload& workload) {
  return {
      {"batch", workload.batch}, {"prompt_tokens", workload.prompt_tokens}, {"output_tokens", workload.output_tokens}};
}

}  // namespace shardscope::runtime
