// What kernels loaded and stored: bytes by class of allocation, and the requests of warps: 32-byte sectors of global
// memory and passes over the banks of shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/emulation/emulation.hpp"

namespace shardscope::emulation {

/// A class of allocations as a small number.
using ClassNumber = uint16_t;
inline constexpr ClassNumber kUnlabelledClass = 0;
inline constexpr ClassNumber kSharedClass = 1;

/// Counts of one kernel while names are still addresses and numbers.
struct KernelCounts {
  int64_t launches = 0;
  int64_t accesses = 0;
  std::vector<Traffic> bytes;  // by class
  Requests global_loads;
  Requests global_stores;
  Requests shared_accesses;

  void add(ClassNumber allocation_class, bool store, int64_t access_bytes) {
    if (bytes.size() <= allocation_class) bytes.resize(size_t{allocation_class} + 1);
    Traffic& traffic = bytes[allocation_class];
    (store ? traffic.stored_bytes : traffic.loaded_bytes) += access_bytes;
  }
};

enum class RequestKind : uint8_t { kGlobalLoad, kGlobalStore, kShared };

/// Groups the accesses of one block into requests: the n-th execution of one place of the code by the lanes of a warp.
class RequestCounter {
 public:
  void note(uint16_t thread, const void* place, RequestKind kind, uint64_t address, int64_t bytes);
  /// Adds up what was noted, and forgets it.
  void flush(KernelCounts& counts);

 private:
  struct LaneAccess {
    int lane;
    uint64_t address;
    int64_t bytes;
  };
  struct Place {
    uint32_t executions[32] = {};
    std::vector<std::vector<LaneAccess>> requests;  // [execution]
  };
  struct Key {
    const void* place;
    uint16_t warp;
    RequestKind kind;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  std::unordered_map<Key, Place, Hash> places_;
};

/// All kernels by address.
class CounterTable {
 public:
  /// Stays where it is until `clear`.
  KernelCounts& of(const void* kernel) { return counts_[kernel]; }
  void clear() { counts_.clear(); }
  ClassNumber number_of(std::string_view allocation_class);
  const std::string& class_name(ClassNumber number) const { return classes_[number]; }
  std::vector<KernelCounters> named() const;

 private:
  std::vector<std::string> classes_ = {"unlabelled", "shared"};
  std::map<const void*, KernelCounts> counts_;
};

}  // namespace shardscope::emulation
