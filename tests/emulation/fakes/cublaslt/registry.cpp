#include "tests/emulation/fakes/cublaslt/registry.hpp"

#include <fmt/format.h>

namespace shardscope::emulation::cublaslt {
namespace {

[[maybe_unused]] const bool kForgets = at_restart([] { Registry::get().forget(); });

}  // namespace

Registry& Registry::get() {
  static auto& registry = *new Registry;
  return registry;
}

void Registry::forget() {
  handles_.clear();
  layouts_.clear();
  operations_.clear();
  preferences_.clear();
}

uint64_t Registry::number_of(const void* pointer) {
  const auto bits = reinterpret_cast<uint64_t>(pointer);
  return (bits & 0xFFFF'0000'0000'000F) == kTag ? (bits & ~kTag) >> 4 : 0;
}

std::string Registry::describe(const void* pointer) const {
  if (pointer == nullptr) return "a null pointer";
  const uint64_t number = number_of(pointer);
  if (number == 0 || number > last_) return fmt::format("{}, which cuBLASLt has never given", pointer);
  if (handles_.count(number) != 0) return "a handle of cuBLASLt";
  if (layouts_.count(number) != 0) return "a matrix layout";
  if (operations_.count(number) != 0) return "a descriptor of a product";
  if (preferences_.count(number) != 0) return "a preference";
  return "one that has been destroyed";
}

}  // namespace shardscope::emulation::cublaslt
