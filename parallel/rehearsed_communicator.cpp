#include "parallel/rehearsed_communicator.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {
namespace {

class RehearsedCommunicator final : public Communicator {
 public:
  RehearsedCommunicator(int rank, int size, Absent others) : rank_(rank), size_(size), others_(others) {}

  std::string_view name() const override { return "rehearsed"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(std::span<float>) override {}
  void all_reduce(const kernels::Activations&) override {}
  SumChoices sum_choices() const override { return {}; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    require(all.size() == mine.size() * static_cast<size_t>(size_), "all_gather: `all` must hold size() times `mine`");
    for (int rank = 0; rank < size_ && !mine.empty(); ++rank) {
      std::byte* const there = all.data() + static_cast<size_t>(rank) * mine.size();
      if (rank == rank_ || others_ == Absent::kSame) {
        std::memmove(there, mine.data(), mine.size());
      } else {
        std::fill_n(there, mine.size(), std::byte{0});
      }
    }
  }
  void broadcast(std::span<std::byte>, int root) override {
    require(root >= 0 && root < size_, "broadcast: no such root");
  }
  void barrier() override {}

 private:
  int rank_;
  int size_;
  Absent others_;
};

}  // namespace

std::unique_ptr<Communicator> make_rehearsed_communicator(int rank, int size, Absent others) {
  require(rank >= 0 && rank < size, "make_rehearsed_communicator: no such rank");
  return std::make_unique<RehearsedCommunicator>(rank, size, others);
}

}  // namespace shardscope::parallel
