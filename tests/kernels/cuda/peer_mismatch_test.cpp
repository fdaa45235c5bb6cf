// Ranks that make different calls at the same time: each finds it at once, and says whose call is another one.
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>

#include "tests/kernels/cuda/peer_calls.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using kernels::DType;

namespace {

using Add = std::function<void(Sequence&)>;

struct Mismatch {
  std::string text;
  Add most;  // the call of ranks 0 and 2
  Add one;   // and of rank 1
};

Add sum(Shots shots, DType dtype, int64_t count) {
  return [=](Sequence& sequence) { sequence.add_sum(shots, dtype, count); };
}
Add norm(Shots shots, DType dtype, int64_t rows, int64_t columns) {
  return [=](Sequence& sequence) { sequence.add_norm(shots, {.dtype = dtype, .rows = rows, .columns = columns}); };
}
Add candidates(int64_t rows) {
  return [=](Sequence& sequence) { sequence.add_candidates(rows); };
}

/// Of equally many words where that can be: all that the words do not tell.
std::vector<Mismatch> mismatches() {
  std::vector<Mismatch> all = {
      {"one-shot against two-shot", sum(Shots::kOne, DType::kF32, 300), sum(Shots::kTwo, DType::kF32, 300)},
      {"one row each, one-shot against two-shot", norm(Shots::kOne, DType::kF16, 1, 64),
       norm(Shots::kTwo, DType::kF16, 1, 64)},
      {"candidates against a sum", candidates(50), sum(Shots::kOne, DType::kF32, 100)},
      {"other candidates", candidates(50), candidates(49)},
  };
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    const std::string by = shots == Shots::kOne ? "one-shot: " : "two-shot: ";
    const std::array<Mismatch, 7> these = {{
        {by + "a longer sum", sum(shots, DType::kF32, 300), sum(shots, DType::kF32, 700)},
        {by + "half a word more", sum(shots, DType::kF16, 299), sum(shots, DType::kF16, 300)},
        {by + "so short that two-shot leaves ranks without a part", sum(shots, DType::kF32, 1),
         sum(shots, DType::kF32, 2)},
        {by + "other types of one width", sum(shots, DType::kF16, 300), sum(shots, DType::kBF16, 300)},
        {by + "other types, as many words", sum(shots, DType::kF32, 100), sum(shots, DType::kBF16, 200)},
        {by + "a sum against a norm", sum(shots, DType::kF32, 120), norm(shots, DType::kF32, 1, 120)},
        {by + "rows and columns swapped", norm(shots, DType::kF32, 3, 40), norm(shots, DType::kF32, 40, 3)},
    }};
    all.insert(all.end(), these.begin(), these.end());
  }
  return all;
}

/// No limit: what ends, ends because the other call was found.
constexpr uint64_t kForEver = std::numeric_limits<uint64_t>::max();

void check_refused(const Ranks& ranks, int rank, uint32_t calls) {
  INFO("rank " << rank);
  const cuda::PeerState state = ranks.state(rank);
  CHECK((state.failure & cuda::kAnotherCall) != 0);
  const uint32_t other = (state.failure & ~cuda::kAnotherCall) - 1;
  if (rank == 1) {
    CHECK((other == 0 || other == 2));
  } else {
    CHECK(other == 1);
  }
  CHECK(state.calls == calls);
  CHECK(state.counted_blocks == 0);
}

}  // namespace

TEST_CASE("cuda peer calls: a rank that makes another call is found at once by all, and named") {
  for (const Mismatch& mismatch : mismatches()) {
    INFO(mismatch.text);
    under_conditions({.devices = 3, .seeds = 3}, [&] {
      const Ranks ranks(3, {.wait_ns = kForEver, .log_entries = 4});
      Sequence most(ranks);
      Sequence one(ranks);
      for (Sequence* const sequence : {&most, &one}) {
        sequence->add_sum(Shots::kTwo, DType::kF32, 33);  // which is the same on all ranks
        (sequence == &most ? mismatch.most : mismatch.one)(*sequence);
        sequence->add_sum(Shots::kOne, DType::kF32, 33);
      }
      for (int rank = 0; rank < 3; ++rank) (rank == 1 ? one : most).enqueue_all(rank, false);
      for (int rank = 0; rank < 3; ++rank) {
        check_refused(ranks, rank, 3);
        const std::vector<cuda::CallTimes> log = ranks.log(rank);
        CHECK(log[1].arrived_ns > 0);
        for (const int call : {2, 3}) {
          CHECK(log[call].number == static_cast<uint64_t>(call));
          CHECK(log[call].arrived_ns == 0);
          CHECK(log[call].end_ns > 0);
        }
      }
      CHECK((ranks.failure_on_host() & cuda::kAnotherCall) != 0);
    });
  }
}

// Words that have not come are no other call: who is late is waited for.
TEST_CASE("cuda peer calls: a rank that makes another call and comes late is named, too") {
  for (const bool late_is_one : {true, false}) {
    under_conditions({.devices = 3, .seeds = 3}, [&] {
      const Ranks ranks(3, {.wait_ns = kForEver});
      Sequence most(ranks);
      Sequence one(ranks);
      most.add_sum(Shots::kTwo, DType::kBF16, 100);
      one.add_sum(Shots::kTwo, DType::kBF16, 99);
      for (const int rank : {0, 1, 2}) {
        if ((rank == 1) != late_is_one) (rank == 1 ? one : most).enqueue_all(rank, false);
      }
      for (int i = 0; i < 20; ++i) static_cast<void>(cudaStreamQuery(ranks.stream(1)));
      for (const int rank : {0, 1, 2}) {
        if ((rank == 1) == late_is_one) (rank == 1 ? one : most).enqueue_all(rank, false);
      }
      for (int rank = 0; rank < 3; ++rank) check_refused(ranks, rank, 1);
    });
  }
}
