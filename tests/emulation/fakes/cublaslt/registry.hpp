// The handles and descriptors of the cuBLASLt stand-in. They are numbers that look like pointers to nowhere: none is
// given twice, so that one that was destroyed, or is of another kind, or was never given, is recognised without looking
// at what it points to, and whoever looks into one ends the program.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/emulation/fakes/call.hpp"
#include "tests/emulation/fakes/cublaslt/problem.hpp"

namespace shardscope::emulation::cublaslt {

struct Handle {
  int device = 0;
  Held held;
};
struct Layout {
  Matrix matrix;
  Held held;
};
struct Operation {
  Product product;
  Held held;
};
struct Limits {
  uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  uint64_t most_workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment_bytes[4] = {256, 256, 256, 256};  // of A, B, C, D
};
struct Preference {
  Limits limits;
  Held held;
};

/// Those of one kind that live, by their number.
template <class T>
using Living = std::map<uint64_t, std::unique_ptr<T>>;

class Registry {
 public:
  static Registry& get();

  /// A number that none has had, as a pointer.
  template <class T, class Pointer>
  Pointer add(std::unique_ptr<T> object) {
    const uint64_t number = ++last_;
    living<T>().emplace(number, std::move(object));
    return reinterpret_cast<Pointer>(kTag | number << 4);
  }
  /// nullptr if it does not live; `why` then says what it is instead.
  template <class T>
  T* find(const void* pointer, std::string& why) {
    const auto found = living<T>().find(number_of(pointer));
    if (found != living<T>().end()) return found->second.get();
    why = describe(pointer);
    return nullptr;
  }
  template <class T>
  void remove(const void* pointer) {
    living<T>().erase(number_of(pointer));
  }
  void forget();

 private:
  // No address of an x86-64 or AArch64 process begins like this.
  static constexpr uint64_t kTag = 0x5ca1'0000'0000'0000;

  static uint64_t number_of(const void* pointer);
  std::string describe(const void* pointer) const;
  template <class T>
  Living<T>& living();

  uint64_t last_ = 0;
  Living<Handle> handles_;
  Living<Layout> layouts_;
  Living<Operation> operations_;
  Living<Preference> preferences_;
};

template <>
inline Living<Handle>& Registry::living() {
  return handles_;
}
template <>
inline Living<Layout>& Registry::living() {
  return layouts_;
}
template <>
inline Living<Operation>& Registry::living() {
  return operations_;
}
template <>
inline Living<Preference>& Registry::living() {
  return preferences_;
}

/// What Options::failing ordered, or an error that fits.
inline cublasStatus_t ordered(const Call& call, cublasStatus_t fitting) {
  return call.ordered_error() != 0 ? static_cast<cublasStatus_t>(call.ordered_error()) : fitting;
}

/// Refuses the call, for that reason.
inline cublasStatus_t refuse(const Call& call, cublasStatus_t status, std::string_view why) {
  call.refuse(why);
  return status;
}

}  // namespace shardscope::emulation::cublaslt
