#include "parallel/cuda/peer_copies.hpp"

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/emulation/emulation.hpp"

using namespace shardscope;
using emulation::MachineTable;
using emulation::PeerAccess;
using parallel::PeerCopies;
using parallel::PeerCopyFigure;

namespace {

constexpr int64_t kBytes = 4096;

PeerCopies measured(const MachineTable& table) {
  emulation::restart({.table = table});
  PeerCopies copies =
      parallel::measure_peer_copies(std::nullopt, {.bytes = kBytes, .copies = 2, .tell = {}, .look = {}});
  CHECK(emulation::take_reports().empty());
  CHECK(emulation::not_given_back().empty());
  return copies;
}

auto count(const PeerCopies& copies, const auto& holds) {
  return std::count_if(copies.figures.begin(), copies.figures.end(), holds);
}

}  // namespace

TEST_CASE("measure_peer_copies: every ordered pair through the host, by peer access and both ways, then all at once") {
  for (const int gpus : {2, 3, 5}) {
    const PeerCopies copies = measured(emulation::make_table("h100", gpus));
    const int pairs = gpus * (gpus - 1);
    REQUIRE(std::ssize(copies.devices) == gpus);
    const auto plain = [](const PeerCopyFigure& f) { return !f.both_ways && !f.together; };
    for (const bool peer_access : {false, true}) {
      const auto of_size = [&](int64_t bytes) {
        return count(copies, [&](const PeerCopyFigure& f) {
          return plain(f) && f.peer_access == peer_access && f.bytes == bytes;
        });
      };
      CHECK(of_size(kBytes) == pairs);
      CHECK(of_size(16) == pairs);
    }
    CHECK(count(copies, [](const PeerCopyFigure& f) { return f.both_ways; }) == pairs);
    CHECK(count(copies, [](const PeerCopyFigure& f) { return f.together; }) == (gpus > 2 ? pairs : 0));
    for (const PeerCopyFigure& figure : copies.figures) {
      CHECK(figure.from != figure.to);
      CHECK(figure.us > 0);
      CHECK(figure.right);
    }
  }
}

TEST_CASE("measure_peer_copies: one device has nothing to measure") {
  const PeerCopies copies = measured(emulation::make_table("a100", 1));
  CHECK(copies.devices.size() == 1);
  CHECK(copies.figures.empty());
}

TEST_CASE("measure_peer_copies: pairs without peer access are measured through the host alone") {
  MachineTable table = emulation::make_table("a100", 3);
  table.peers[0][2] = PeerAccess::kNone;
  const PeerCopies copies = measured(table);
  CHECK_FALSE(copies.can.at(0).at(2));
  CHECK(copies.can.at(2).at(0));
  const auto of_pair = [&](int from, int to, bool peer_access) {
    return count(copies, [&](const PeerCopyFigure& f) {
      return f.from == from && f.to == to && f.peer_access == peer_access && !f.both_ways && !f.together;
    });
  };
  CHECK(of_pair(0, 2, false) == 2);
  CHECK(of_pair(0, 2, true) == 0);
  CHECK(of_pair(2, 0, true) == 2);
  CHECK(count(copies, [](const PeerCopyFigure& f) { return f.both_ways && f.from + f.to == 2; }) == 0);
}

TEST_CASE("measure_peer_copies: what peer access loses is seen, and only there") {
  MachineTable table = emulation::make_table("h100", 3);
  table.peers[1][2] = PeerAccess::kLosesWrites;
  const PeerCopies copies = measured(table);
  for (const PeerCopyFigure& figure : copies.figures) {
    CAPTURE(figure.from, figure.to, figure.peer_access, figure.both_ways, figure.together, figure.bytes);
    CHECK(figure.right == !(figure.peer_access && figure.from == 1 && figure.to == 2));
  }
}

TEST_CASE("measure_peer_copies: an exception amid it leaves nothing behind") {
  emulation::restart({.table = emulation::make_table("h100", 2)});
  int told = 0;
  const auto tell = [&](const std::string&) {
    if (++told == 3) throw SystemError("the run has ended", "here", "");
  };
  CHECK_THROWS_AS(parallel::measure_peer_copies(std::nullopt, {.bytes = kBytes, .copies = 2, .tell = tell, .look = {}}),
                  SystemError);
  CHECK(emulation::not_given_back().empty());
}
