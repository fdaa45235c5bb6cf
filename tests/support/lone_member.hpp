// A communicator for tests that look at the work of one rank of a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "parallel/communicator.hpp"

namespace shardscope::test {

/// A group of which one rank is here: nothing is summed, so that its logits mean nothing, but its work is a rank's.
class LoneMember final : public parallel::Communicator {
 public:
  LoneMember(int rank, int size) : rank_(rank), size_(size) {}
  std::string_view name() const override { return "lone"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(std::span<float>) override {}
  void all_reduce(const kernels::Activations&) override { ++sums_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size()));
    }
  }
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}

  int64_t sums() const { return sums_; }

 private:
  int rank_;
  int size_;
  int64_t sums_ = 0;
};

}  // namespace shardscope::test
