// PeerMemory: memory that all ranks write to, and each reason why a group cannot have it, the same on all ranks. Ranks
// in processes, on the emulation.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/parallel/cuda/peer_member.hpp"

namespace shardscope::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kShortProof{3000};

/// Why there is no memory, which has to be the same everywhere, and nothing left.
std::string refused(Rank& rank, PeerMember& it, const parallel::PeerSumOptions& options = {.proof_wait = seconds(20)}) {
  std::string why;
  {
    const parallel::PeerSums sums = it.sums(options);
    why = sums.why_not;
    rank.expect(!why.empty() && !sums.one_shot && !sums.two_shot, "sums were made");
  }
  const std::vector<std::string> all = [&] {
    std::array<char, 1024> mine{};
    why.copy(mine.data(), mine.size() - 1);
    std::vector<std::string> texts;
    for (const auto& text : rank.exchange(mine)) texts.emplace_back(text.data());
    return texts;
  }();
  for (const std::string& text : all) rank.expect(text == all[0], text + " and " + all[0]);
  it.member.expect_clean();
  return why;
}

}  // namespace

TEST_CASE("peer memory: every rank's memory is the others' too, zero at first, and given back") {
  const int ranks = GENERATE(1, 2, 3, 8);
  const PeerPages pages(ranks);
  in_processes(ranks, peers_machine(ranks, 3), [&](Rank& rank) {
    PeerMember it(rank, pages);
    {
      const parallel::PeerFlags flags({});
      parallel::PeerMemory memory(it.member.world(), it.host, flags, it.member.stream(),
                                  {.device = rank.rank(), .bytes = 1 << 20, .proof_wait = seconds(20)});
      rank.expect(memory.why_not().empty(), memory.why_not());
      std::vector<std::byte> bytes(1 << 20);
      const auto own = static_cast<size_t>(rank.rank());
      cuda::check_cuda(cudaMemcpy(bytes.data(), memory.addresses()[own], bytes.size(), cudaMemcpyDeviceToHost), "copy");
      rank.expect(bytes == std::vector<std::byte>(bytes.size()), "not zero");
      rank.barrier();
      const std::vector<std::byte> mine(64, static_cast<std::byte>(17 + rank.rank()));
      for (size_t peer = 0; peer < static_cast<size_t>(ranks); ++peer) {
        cuda::check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(memory.addresses()[peer]) + 64 * own, mine.data(),
                                         mine.size(), cudaMemcpyHostToDevice, it.member.stream()),
                         "copy to a peer");
      }
      memory.finish("writing to peers");
      rank.barrier();
      cuda::check_cuda(cudaMemcpy(bytes.data(), memory.addresses()[own], bytes.size(), cudaMemcpyDeviceToHost), "copy");
      for (size_t i = 0; i < 64 * static_cast<size_t>(ranks); ++i) {
        rank.expect(bytes[i] == static_cast<std::byte>(17 + i / 64), "what a peer wrote");
      }
    }
    it.member.expect_clean();
  });
}

TEST_CASE("peer memory: a pair whose writes are lost is named on all ranks, in its direction") {
  emulation::MachineTable table = emulation::make_table("h100", 3);
  table.peers[2][0] = emulation::PeerAccess::kLosesWrites;
  const PeerPages pages(3);
  in_processes(3, peers_machine(table), [&](Rank& rank) {
    PeerMember it(rank, pages);
    const std::string why = refused(rank, it, {.proof_wait = kShortProof});
    it.member.expect_words(why,
                           {"writes of rank 2 (", ") do not arrive at rank 0 (", "(0 of 8192 words), though", "ACS"});
  });
}

TEST_CASE("peer memory: where the driver offers no peer access, the pair is named, and models where they differ") {
  const bool mixed = GENERATE(false, true);
  emulation::MachineTable table = emulation::make_table("h100", 3);
  if (mixed) table.gpus[2].model = emulation::find_model("a100");
  table.peers[1][2] = emulation::PeerAccess::kNone;
  table.peers[2][1] = emulation::PeerAccess::kNone;
  const PeerPages pages(3);
  in_processes(3, peers_machine(table), [&](Rank& rank) {
    PeerMember it(rank, pages);
    const std::string why = refused(rank, it);
    if (mixed) {
      it.member.expect_words(why, {"rank 1 (", "has NVIDIA H100 80GB HBM3 and rank 2 (", "has NVIDIA A100",
                                   "between these models", "(and so for 1 more)"});
    } else {
      it.member.expect_words(why, {"the driver offers no peer access from rank 1 (", "to rank 2 ("});
    }
  });
}

TEST_CASE("peer memory: MIG instances of one GPU, and of several") {
  static const emulation::GpuModel instance = [] {
    emulation::GpuModel model = *emulation::find_model("h100");
    model.name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
    return model;
  }();
  const bool one_gpu = GENERATE(false, true);
  emulation::MachineTable table = emulation::make_table("h100", 2);
  if (one_gpu) {
    table.gpus[1].pci_bus_id = table.gpus[0].pci_bus_id;
  } else {
    table.gpus[1].model = &instance;
  }
  const PeerPages pages(2);
  in_processes(2, peers_machine(table), [&](Rank& rank) {
    PeerMember it(rank, pages);
    it.member.expect_words(refused(rank, it), {"rank 0 (", "and rank 1 (", "have MIG instances", "nvidia-smi -mig 0"});
  });
}

TEST_CASE("peer memory: ranks share a device where they may, and are told how where they may not") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(2, 1), [&](Rank& rank) {
    const int device = rank.rank() / 2;
    PeerMember it(rank, pages, seconds(20), device);
    {
      const parallel::PeerSums sums = it.sums({.shared_devices = true, .proof_wait = seconds(20)});
      rank.expect(sums.why_not.empty(), sums.why_not);
    }
    it.member.expect_words(refused(rank, it),
                           {"rank 0 (", "and rank 1 (", "have the same device", "--oversubscribe-devices"});
  });
}

TEST_CASE("peer memory: hidden devices are opened all the same, and where that fails, named as hidden") {
  const bool fails = GENERATE(false, true);
  const PeerPages pages(2);
  in_processes(2, peers_machine(2), [&](Rank& rank) {
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank.rank()).c_str(), 1);
    emulation::Options options = peers_machine(2);
    if (fails) options.failing = {{.function = "cudaIpcOpenMemHandle", .error = cudaErrorInvalidDevice}};
    emulation::restart(options);
    PeerMember it(rank, pages, seconds(20), 0);
    if (!fails) {
      const parallel::PeerSums sums = it.sums();
      rank.expect(sums.why_not.empty(), sums.why_not);
      return;
    }
    it.member.expect_words(refused(rank, it),
                           {"rank 0 (", "does not see the device of rank 1 (", "CUDA error 101", "--gpu-bind=none"});
  });
}

TEST_CASE("peer memory: an IPC that fails on one rank alone is told on all") {
  struct Slip {
    const char* function;
    int error;
    std::vector<std::string> words;
  };
  const Slip slip = GENERATE(values<Slip>(
      {{"cudaIpcOpenMemHandle",
        cudaErrorInvalidResourceHandle,
        {"rank 1 (", "cannot open the memory of rank 0 (", "CUDA error 400", "--ipc=host"}},
       {"cudaIpcGetMemHandle", cudaErrorNotSupported, {"rank 1 (", "cannot share its memory", "CUDA error 801"}}}));
  const PeerPages pages(3);
  in_processes(3, peers_machine(3), [&](Rank& rank) {
    if (rank.rank() == 1) {
      emulation::Options options = peers_machine(3);
      options.failing = {{.function = slip.function, .error = slip.error}};
      emulation::restart(options);
    }
    PeerMember it(rank, pages);
    it.member.expect_words(refused(rank, it), slip.words);
  });
}

TEST_CASE("peer memory: a rank that cannot allocate fails, and the others leave the word to it") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3), [&](Rank& rank) {
    if (rank.rank() == 2) {
      emulation::Options options = peers_machine(3);
      options.failing = {{.function = "cudaMalloc", .error = cudaErrorMemoryAllocation}};
      emulation::restart(options);
    }
    PeerMember it(rank, pages);
    const std::string text = it.member.outcome([&] { it.sums(); });
    if (rank.rank() == 2) {
      it.member.expect_words(text, {"CUDA error 2", "for what peers send", "device 2 of rank 2"});
    } else {
      rank.expect(text == "peer failure", text);
    }
  });
}

TEST_CASE("peer memory: a rank that dies or stands still on the way is named in time") {
  struct End {
    bool dies;
    int before;  // the how-many-th time that hosts meet
  };
  // While facts and handles are exchanged, before the proof's first round, and after it.
  const End end = GENERATE(values<End>({{true, 0}, {true, 6}, {false, 3}, {true, 10}, {false, 11}}));
  INFO("before meeting " << end.before << (end.dies ? ", dies" : ", stands still"));
  constexpr milliseconds kTimeout{4000};
  const PeerPages pages(3);
  const std::vector<Outcome> outcomes = in_processes(3, peers_machine(3), [&](Rank& rank) {
    PeerMember it(rank, pages, end.dies ? milliseconds(300'000) : kTimeout);
    if (rank.rank() == 1) {
      it.host.at_meeting(end.before, [&] {
        if (end.dies) rank.die();
        rank.stop_here();
      });
    }
    const Clock::time_point begin = Clock::now();
    const std::string text = it.member.outcome([&] { it.sums(); });
    rank.expect(!text.empty(), "it went on");
    rank.expect(Clock::now() - begin < seconds(50), "in time");
    if (text != "peer failure") {
      it.member.expect_words(text, {end.dies ? "rank 1 has died" : "rank 1 made no progress for 4 s"});
    }
  });
  CHECK(outcomes[1].end == (end.dies ? Outcome::End::kDied : Outcome::End::kStopped));
}

}  // namespace shardscope::test
