#include "parallel/cuda/call_notes.hpp"

#include <algorithm>

#include "kernels/cuda/call_times.hpp"
#include "kernels/cuda/check.hpp"

namespace shardscope::parallel {
namespace {

constexpr uint32_t kEntries = 1024;

}  // namespace

CallNotes::CallNotes(const DeviceStream& stream)
    : stream_(stream),
      entries_(int64_t{kEntries} * static_cast<int64_t>(sizeof(cuda::CallTimes)), "times of calls",
               {.device = stream.device}),
      calls_(sizeof(uint32_t), "times of calls", {.device = stream.device}) {
  for (const cuda::DeviceBuffer* buffer : {&entries_, &calls_}) {
    cuda::check_cuda(cudaMemsetAsync(buffer->data(), 0, static_cast<size_t>(buffer->bytes()), stream_.lend()),
                     "cudaMemsetAsync", {.device = stream.device});
  }
}

void CallNotes::around(const std::function<void()>& enqueue) {
  const cuda::CallLog log{entries_.as<cuda::CallTimes>(), kEntries};
  // As work that is not ours: what follows them is not launched before they have ended.
  cuda::check_cuda(cuda::note_begin(log, calls_.as<uint32_t>(), stream_.lend()), "note_begin",
                   {.device = stream_.device});
  enqueue();
  cuda::check_cuda(cuda::note_end(log, calls_.as<uint32_t>(), stream_.lend()), "note_end", {.device = stream_.device});
}

std::vector<cuda::CallTimes> CallNotes::times() const {
  return read_log({entries_.as<cuda::CallTimes>(), kEntries}, stream_.device);
}

std::vector<cuda::CallTimes> read_log(const cuda::CallLog& log, int device) {
  if (log.entries == nullptr) return {};
  std::vector<cuda::CallTimes> entries(log.count);
  cuda::check_cuda(
      cudaMemcpy(entries.data(), log.entries, entries.size() * sizeof(cuda::CallTimes), cudaMemcpyDeviceToHost),
      "cudaMemcpy", {.detail = "times of calls", .device = device});
  std::erase_if(entries, [](const cuda::CallTimes& times) { return times.number == 0; });
  std::sort(entries.begin(), entries.end(),
            [](const cuda::CallTimes& a, const cuda::CallTimes& b) { return a.number < b.number; });
  return entries;
}

}  // namespace shardscope::parallel
