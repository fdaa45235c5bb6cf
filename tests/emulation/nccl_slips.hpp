// Slips that the NCCL stand-in refuses at the call: a table's row is a call that is wrong or, as its sound twin, right.
#pragma once

#include <nccl.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_stand.hpp"

namespace shardscope::test {

/// One rank, or two, with memory to make slips with: rank 0's call is the one that may be wrong.
struct Scene {
  explicit Scene(int its_ranks) : ranks(its_ranks) {
    need(cudaSetDevice(1), "cudaSetDevice");
    need(cudaMalloc(&foreign, 4096), "cudaMalloc");
    need(cudaStreamCreate(&foreign_stream), "cudaStreamCreate");
    need(cudaSetDevice(0), "cudaSetDevice");
    need(cudaMalloc(&memory, 4096), "cudaMalloc");
    need(cudaMalloc(&other, 4096), "cudaMalloc");
    need(cudaMalloc(&freed, 4096), "cudaMalloc");
    need(cudaMallocHost(&pinned, 4096), "cudaMallocHost");
    need(cudaStreamCreate(&dead_stream), "cudaStreamCreate");
    for (void* const one : {memory, other}) need(cudaMemset(one, 0, 4096), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    need(cudaFree(freed), "cudaFree");
    need(cudaStreamDestroy(dead_stream), "cudaStreamDestroy");
  }
  float* at(void* base, int64_t bytes) const { return reinterpret_cast<float*>(static_cast<std::byte*>(base) + bytes); }
  ncclComm_t communicator() const { return ranks.communicators[0]; }
  cudaStream_t stream() const { return ranks.streams[0]; }

  DeviceRanks ranks;
  void* memory = nullptr;
  void* other = nullptr;
  void* freed = nullptr;
  void* foreign = nullptr;
  void* pinned = nullptr;
  cudaStream_t foreign_stream = nullptr;
  cudaStream_t dead_stream = nullptr;
  float on_host[1024] = {};
};

struct Slip {
  const char* name;
  ncclResult_t code;
  std::vector<std::string> words;
  std::function<ncclResult_t(Scene&, bool planted)> call;
};

/// Each row both ways, in a scene of its own: the slip is refused with its words, what is right is not.
inline void try_all(const std::vector<Slip>& slips, int ranks) {
  for (const Slip& slip : slips) {
    for (const bool planted : {true, false}) {
      INFO(slip.name << (planted ? ", planted" : ", sound"));
      emulation::restart({.devices = 2});
      Scene scene(ranks);
      const ncclResult_t result = slip.call(scene, planted);
      CHECK(result == (planted ? slip.code : ncclSuccess));
      if (planted) {
        CHECK(missing(emulation::take_refusal(), slip.words) == "");
        CHECK(missing(ncclGetLastError(nullptr), {slip.words.back()}) == "");
      } else {
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(all_reports() == "");
      }
    }
  }
}

}  // namespace shardscope::test
