#include "tests/emulation/counters.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

constexpr int64_t kSectorBytes = 32;
constexpr int64_t kBankBytes = 4;
constexpr int64_t kBanks = 32;
constexpr int64_t kPassBytes = kBankBytes * kBanks;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

size_t RequestCounter::Hash::operator()(const Key& key) const {
  return std::hash<const void*>()(key.place) ^ (static_cast<size_t>(key.warp) << 48) ^
         (static_cast<size_t>(key.kind) << 60);
}

void RequestCounter::note(uint16_t thread, const void* place, RequestKind kind, uint64_t address, int64_t bytes) {
  Place& at = places_[{place, static_cast<uint16_t>(thread / 32), kind}];
  const uint32_t execution = at.executions[thread % 32]++;
  if (at.requests.size() <= execution) at.requests.resize(execution + 1);
  at.requests[execution].push_back({thread % 32, address, bytes});
}

void RequestCounter::flush(KernelCounts& counts) {
  for (auto& [key, place] : places_) {
    Requests& total = key.kind == RequestKind::kShared       ? counts.shared_accesses
                      : key.kind == RequestKind::kGlobalLoad ? counts.global_loads
                                                             : counts.global_stores;
    for (std::vector<LaneAccess>& lanes : place.requests) {
      ++total.requests;
      if (key.kind == RequestKind::kShared) {
        // Hardware serves 128 bytes a pass: a request of 8 or 16 bytes a lane goes in halves or quarters of the warp.
        // In a pass each bank gives one word; lanes that want the same word share it.
        const int64_t bytes = lanes.front().bytes;
        const auto group = static_cast<int>(std::max<int64_t>(1, kPassBytes / std::max(bytes, kBankBytes)));
        std::sort(lanes.begin(), lanes.end(), [](const auto& a, const auto& b) { return a.lane < b.lane; });
        for (size_t first = 0, last = 0; first < lanes.size(); first = last) {
          while (last < lanes.size() && lanes[last].lane / group == lanes[first].lane / group) ++last;
          std::array<std::set<uint64_t>, kBanks> words;
          std::set<uint64_t> all;
          for (size_t lane = first; lane < last; ++lane) {
            for (uint64_t word = lanes[lane].address / kBankBytes;
                 word * kBankBytes < lanes[lane].address + static_cast<uint64_t>(lanes[lane].bytes); ++word) {
              words[word % kBanks].insert(word);
              all.insert(word);
            }
          }
          size_t passes = 0;
          for (const auto& bank : words) passes = std::max(passes, bank.size());
          total.units += static_cast<int64_t>(passes);
          total.ideal_units += ceil_div(static_cast<int64_t>(all.size()), kBanks);
        }
      } else {
        std::set<uint64_t> sectors;
        std::set<uint64_t> bytes_touched;
        int64_t bytes = 0;
        for (const LaneAccess& lane : lanes) {
          const auto last = lane.address + static_cast<uint64_t>(lane.bytes) - 1;
          for (uint64_t sector = lane.address / kSectorBytes; sector <= last / kSectorBytes; ++sector) {
            sectors.insert(sector);
          }
          if (bytes_touched.insert(lane.address).second) bytes += lane.bytes;
        }
        total.units += static_cast<int64_t>(sectors.size());
        total.ideal_units += ceil_div(bytes, kSectorBytes);
      }
    }
  }
  places_.clear();
}

ClassNumber CounterTable::number_of(std::string_view allocation_class) {
  const auto found = std::find(classes_.begin(), classes_.end(), allocation_class);
  const auto number = found - classes_.begin();
  if (found == classes_.end()) classes_.emplace_back(allocation_class);
  return static_cast<ClassNumber>(number);
}

std::vector<KernelCounters> CounterTable::named() const {
  std::vector<KernelCounters> all;
  for (const auto& [kernel, counts] : counts_) {
    KernelCounters& named = all.emplace_back();
    named.kernel = kernel_name(kernel);
    named.launches = counts.launches;
    named.accesses = counts.accesses;
    for (size_t number = 0; number < counts.bytes.size(); ++number) {
      const Traffic& traffic = counts.bytes[number];
      if (traffic.loaded_bytes != 0 || traffic.stored_bytes != 0) named.bytes.emplace(classes_[number], traffic);
    }
    named.global_loads = counts.global_loads;
    named.global_stores = counts.global_stores;
    named.shared_accesses = counts.shared_accesses;
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.kernel < b.kernel; });
  return all;
}

}  // namespace shardscope::emulation
