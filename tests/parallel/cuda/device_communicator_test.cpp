// DeviceCommunicator: each way of summing by name, the choice among all, and what a group cannot have. Ranks in
// processes, on the emulation.
#include "parallel/cuda/device_communicator.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/cuda/resident.hpp"
#include "parallel/cuda/sum_choice.hpp"
#include "tests/parallel/cuda/rank_group.hpp"
#include "tests/parallel/cuda/sums.hpp"

namespace shardscope::test {
namespace {

using parallel::CommunicatorKind;
using Choice = parallel::SumChoices::Choice;
using Measured = parallel::SumChoices::Measured;

/// With few multiprocessors: kernels that wait for each other are as wide as the device.
emulation::Options machine(int devices, uint64_t seed = 0) {
  emulation::Options options = ranks_machine(devices, seed);
  options.multiprocessors = 2;
  return options;
}

std::string text_of(const parallel::SumChoices& choices) {
  std::string text;
  for (const Choice& choice : choices.choices) text += std::to_string(choice.from_bytes) + " " + choice.way + ", ";
  for (const Measured& one : choices.measured) {
    text += std::to_string(one.bytes) + " " + one.way + " " + std::to_string(one.time_us) + ", ";
  }
  return text;
}

/// That every rank has this text.
void expect_same(Rank& rank, const std::string& text) {
  struct Text {
    char bytes[4096];
  };
  Text mine{};
  std::copy_n(text.begin(), std::min(text.size(), sizeof(mine.bytes) - 1), mine.bytes);
  for (const Text& other : rank.exchange(mine)) rank.expect(text == other.bytes, text + " against " + other.bytes);
}

void expect_exact(Rank& rank, Member& member, parallel::DeviceCommunicator& communicator, const Shape& shape,
                  DType dtype) {
  Buffer buffer(shape, dtype, inputs(shape, rank.rank()));
  communicator.all_reduce(buffer.view());
  member.finish(communicator);
  const std::string difference = buffer.difference(sums(shape, rank.rank(), rank.ranks()));
  rank.expect(difference.empty(), std::string(communicator.name()) + ": " + difference);
}

}  // namespace

TEST_CASE("decide: the fastest at each size, one choice for neighbours, changes at the geometric mean") {
  const auto text = [](const std::vector<Measured>& measured) {
    return text_of({.choices = parallel::decide(measured)});
  };
  CHECK(text({{1024, "nccl", 7}}) == "0 nccl, ");
  CHECK(text({{1024, "nccl", 7}, {1024, "one-shot", 3}, {4096, "nccl", 8}, {4096, "one-shot", 4}}) == "0 one-shot, ");
  CHECK(text({{1024, "nccl", 7}, {1024, "one-shot", 3}, {4096, "nccl", 8}, {4096, "one-shot", 9}}) ==
        "0 one-shot, 2048 nccl, ");
  // What was measured first wins a tie; a size that only one way takes is its.
  CHECK(text({{1024, "nccl", 3}, {1024, "one-shot", 3}, {65536, "nccl", 30}}) == "0 nccl, ");
  // Three ways, and back again.
  CHECK(text({{100, "nccl", 9},
              {100, "one-shot", 1},
              {100, "two-shot", 2},
              {400, "nccl", 9},
              {400, "one-shot", 3},
              {400, "two-shot", 2},
              {1600, "nccl", 3},
              {1600, "one-shot", 9},
              {1600, "two-shot", 4}}) == "0 one-shot, 200 two-shot, 800 nccl, ");
}

TEST_CASE("decide: NCCL sums in one kind of memory") {
  const std::vector<Measured> measured{{100, "nccl", 9},  {100, "nccl-symmetric", 4}, {100, "one-shot", 3},
                                       {400, "nccl", 10}, {400, "nccl-symmetric", 6}, {400, "one-shot", 8},
                                       {900, "nccl", 11}, {900, "nccl-symmetric", 12}};
  // 400 and 900 bytes count: 21 against 18 us. So 900 bytes go to what is slower there.
  CHECK(text_of({.choices = parallel::decide(measured)}) == "0 one-shot, 200 nccl-symmetric, ");
  std::vector<Measured> slower = measured;
  slower[7].time_us = 20;
  CHECK(text_of({.choices = parallel::decide(slower)}) == "0 one-shot, 600 nccl, ");
}

TEST_CASE("device communicator: each way by name sums exactly, also in pieces") {
  const int ranks = GENERATE(2, 3, 5, 8);
  INFO(ranks << " ranks");
  const BoardPages pages(ranks);
  in_processes(ranks, machine(ranks, static_cast<uint64_t>(ranks)), [&](Rank& rank) {
    Member member(rank, pages);
    for (const CommunicatorKind kind :
         {CommunicatorKind::kNcclSymmetric, CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}) {
      const auto communicator = member.communicator({.kind = kind});
      rank.expect(communicator->name() == parallel::communicator_name(kind), std::string(communicator->name()));
      rank.expect(text_of(communicator->sum_choices()) == "0 " + std::string(communicator->name()) + ", ",
                  text_of(communicator->sum_choices()));
      for (const DType dtype : kTypes) expect_exact(rank, member, *communicator, kShapes[2], dtype);
      if (kind == CommunicatorKind::kOneShot) {  // 280 KB, more than it takes at once
        expect_exact(rank, member, *communicator, {1, 70'001, 70'001}, DType::kF32);
      }
    }
    member.expect_clean();
  });
}

TEST_CASE("device communicator: auto measures all ways, and all ranks choose the same") {
  const int ranks = GENERATE(2, 3);
  INFO(ranks << " ranks");
  const BoardPages pages(ranks);
  in_processes(ranks, machine(ranks, static_cast<uint64_t>(ranks)), [&](Rank& rank) {
    Member member(rank, pages);
    {
      const auto communicator =
          member.communicator({.dtype = DType::kBF16, .message_bytes = {4096, 512, 4096, 600 << 10}});
      const parallel::SumChoices choices = communicator->sum_choices();
      expect_same(rank, text_of(choices));
      rank.expect(choices.graphs && choices.left_out.empty(), "graphs, and nothing left out");
      rank.expect(choices.choices.front().from_bytes == 0, "choices from 0 bytes on");
      rank.expect(choices.choices.back().way.rfind("nccl", 0) == 0, "beyond all capacity: " + text_of(choices));
      // Four ways at each size that its time allowed, the smallest surely.
      const auto ways = [&](int64_t bytes) {
        return std::count_if(choices.measured.begin(), choices.measured.end(),
                             [&](const Measured& one) { return one.bytes == bytes && one.time_us > 0; });
      };
      rank.expect(ways(512) == 4, std::to_string(ways(512)) + " ways measured at 512 bytes");
      rank.expect(ways(4096) == 4 || ways(4096) == 0, std::to_string(ways(4096)) + " ways measured at 4096 bytes");
      // Whatever the choice: sums are right on both sides of each boundary.
      for (const Choice& choice : choices.choices) {
        const int64_t count = std::min<int64_t>(choice.from_bytes / 2 + 1, 100'000);
        expect_exact(rank, member, *communicator, {1, count, count}, DType::kBF16);
      }
    }
    member.expect_clean();
  });
}

TEST_CASE("device communicator: with our kernels the norm comes with the sum, with NCCL it does not") {
  constexpr int kRanks = 3;
  constexpr int64_t kColumns = 72;
  const BoardPages pages(kRanks);
  in_processes(kRanks, machine(kRanks), [&](Rank& rank) {
    Member member(rank, pages);
    const Shape shape{2, kColumns, kColumns};
    const std::vector<float> ones(kColumns, 1.0F);
    for (const CommunicatorKind kind :
         {CommunicatorKind::kNccl, CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}) {
      const auto communicator = member.communicator({.kind = kind});
      const Buffer residual(shape, DType::kF32, std::vector<float>(2 * kColumns, 10.0F));
      const Buffer partial(shape, DType::kF32, inputs(shape, rank.rank()));
      const Buffer sum(shape, DType::kF32, std::vector<float>(2 * kColumns, -1.0F));
      const Buffer normed(shape, DType::kF32, std::vector<float>(2 * kColumns, -1.0F));
      cuda::DeviceBuffer memory(kColumns * static_cast<int64_t>(sizeof(float)), "a norm", {});
      cuda::check_cuda(cudaMemcpy(memory.data(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice),
                       "cudaMemcpy");
      cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const int64_t bytes = memory.bytes();
      const cuda::CudaVector weight(
          cuda::WeightPlane(std::make_shared<const cuda::DeviceBuffer>(std::move(memory)), 0, bytes), kColumns);
      const kernels::Activations addend = partial.view();
      kernels::NormedInput input{residual.view(), &addend, &weight, 1e-5F, sum.view(), normed.view()};
      communicator->all_reduce(input);
      member.finish(*communicator);
      const bool ours = kind != CommunicatorKind::kNccl;
      rank.expect(input.ready == ours, std::string(communicator->name()) + ": ready");
      if (ours) {
        std::vector<float> expected = sums(shape, rank.rank(), kRanks);
        for (float& value : expected) value += 10.0F;
        rank.expect(sum.difference(expected).empty(), "sum: " + sum.difference(expected));
      } else {
        const std::vector<float> expected = sums(shape, rank.rank(), kRanks);
        rank.expect(partial.difference(expected).empty(), "partial: " + partial.difference(expected));
      }
    }
  });
}

TEST_CASE("device communicator: ranks that share a device have no NCCL, and say so") {
  const BoardPages pages(2);
  in_processes(2, machine(1), [&](Rank& rank) {
    Member member(rank, pages, std::chrono::seconds(20), 0);
    {
      const auto communicator = member.communicator({.message_bytes = {256}, .shared_devices = true});
      const parallel::SumChoices choices = communicator->sum_choices();
      rank.expect(choices.left_out.size() == 2, "two ways left out");
      for (const std::string& why : choices.left_out) member.expect_words(why, {"nccl", "share a device"});
      expect_exact(rank, member, *communicator, kShapes[2], DType::kF16);
    }
    const std::string error =
        member.outcome([&] { member.communicator({.kind = CommunicatorKind::kNccl, .shared_devices = true}); });
    member.expect_words(error, {"--allreduce nccl cannot be had", "share a device", "what to do", "one-shot"});
  });
}

TEST_CASE("device communicator: without peer access our ways are left out by auto, and refused by name") {
  emulation::MachineTable table = emulation::make_table("h100", 2);
  table.peers[0][1] = table.peers[1][0] = emulation::PeerAccess::kNone;
  emulation::Options options = machine(2);
  options.table = table;
  const BoardPages pages(2);
  in_processes(2, options, [&](Rank& rank) {
    Member member(rank, pages);
    {
      const auto communicator = member.communicator({.message_bytes = {256}});
      const std::vector<std::string> left_out = communicator->sum_choices().left_out;
      for (const char* const name : {"one-shot", "two-shot"}) {
        const bool told = std::any_of(left_out.begin(), left_out.end(),
                                      [&](const std::string& why) { return why.rfind(name, 0) == 0; });
        rank.expect(told, name);
      }
      expect_exact(rank, member, *communicator, kShapes[2], DType::kF32);
    }
    const std::string error = member.outcome([&] { member.communicator({.kind = CommunicatorKind::kOneShot}); });
    member.expect_words(error, {"--allreduce one-shot cannot be had", "no peer access", "what to do"});
  });
}

}  // namespace shardscope::test
