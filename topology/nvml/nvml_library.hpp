// Private to nvml*.cpp: the opened library, and how its functions are asked.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "topology/nvml.hpp"
#include "topology/nvml/nvml_api.hpp"

namespace shardscope::topology {

struct Nvml::Library {
  struct Gpu {
    nvml_api::Device device = nullptr;                  // nullptr: none was given
    nvml_api::Return result = nvml_api::kNotSupported;  // of asking for it
  };

  explicit Library(void* opened);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  /// In words: the library's own, else the number.
  std::string error_text(nvml_api::Return result) const;
  /// nullptr: there is no such GPU, or it cannot be asked.
  nvml_api::Device device(int position) const;

  void* handle = nullptr;  // of dlopen
  bool initialised = false;
  nvml_api::Functions functions;
  std::vector<Gpu> gpus;
};

namespace nvml_api {

/// As the function; what an older library lacks is a function that is not found.
template <class... Parameters, class... Arguments>
Return call(Return (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kFunctionNotFound : function(arguments...);
}

/// What a function gives through its last parameter; nullopt: it refused.
template <class Answer, class... Parameters, class... Arguments>
std::optional<Answer> ask(Return (*function)(Parameters...), Arguments... arguments) {
  Answer answer{};
  if (call(function, arguments..., &answer) != kSuccess) return std::nullopt;
  return answer;
}

/// The driver knows no such question, or the GPU has nothing to answer: no fault of either.
inline bool knows_no_answer(Return result) {
  return result == kNotSupported || result == kFunctionNotFound || result == kInvalidArgument;
}

/// "0000:1b:00.0" as sysfs writes it; empty where the address is none.
std::string bus_id_of(const PciInfo& pci);

}  // namespace nvml_api
}  // namespace shardscope::topology
