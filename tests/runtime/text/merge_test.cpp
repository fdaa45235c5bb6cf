#include "runtime/text/merge.hpp"

#include <catch2/catch.hpp>
#include <random>

namespace shardscope::runtime {
namespace {

// The definition: look over all pairs for the lowest rank, the leftmost of equals, replace it, begin again.
std::vector<int32_t> merge_plainly(const MergeTable& table, std::vector<int32_t> symbols) {
  while (true) {
    const Merge* best = nullptr;
    size_t best_at = 0;
    for (size_t at = 0; at + 1 < symbols.size(); ++at) {
      const Merge* merge = table.find(symbols[at], symbols[at + 1]);
      if (merge == nullptr || (best != nullptr && merge->rank >= best->rank)) continue;
      best = merge;
      best_at = at;
    }
    if (best == nullptr) return symbols;
    symbols[best_at] = best->token;
    symbols.erase(symbols.begin() + static_cast<int64_t>(best_at) + 1);
  }
}

TEST_CASE("merge: a piece without symbols or merges stays as it is") {
  const MergeTable table;
  PieceMerger merger(table);
  std::vector<int32_t> out{7};
  merger.append({}, out);
  merger.append(std::vector<int32_t>{1, 2, 3}, out);
  CHECK(out == std::vector<int32_t>{7, 1, 2, 3});
}

TEST_CASE("merge: of equal ranks the leftmost pair goes first") {
  MergeTable table;
  table.set(1, 1, {.rank = 0, .token = 2});
  PieceMerger merger(table);
  std::vector<int32_t> out;
  merger.append(std::vector<int32_t>{1, 1, 1}, out);
  CHECK(out == std::vector<int32_t>{2, 1});
}

TEST_CASE("merge: a pair that is set twice has the later rank") {
  MergeTable table;
  table.set(1, 2, {.rank = 0, .token = 10});
  table.set(2, 3, {.rank = 1, .token = 11});
  table.set(1, 2, {.rank = 2, .token = 10});
  PieceMerger merger(table);
  std::vector<int32_t> out;
  merger.append(std::vector<int32_t>{1, 2, 3}, out);
  CHECK(out == std::vector<int32_t>{1, 11});
}

TEST_CASE("merge: equals the definition on random vocabularies") {
  std::mt19937 random(11);
  const auto pick = [&](int below) { return std::uniform_int_distribution<int>(0, below - 1)(random); };
  for (int round = 0; round < 200; ++round) {
    const int alphabet = 1 + pick(4);
    MergeTable table;
    std::vector<int32_t> known;
    for (int symbol = 0; symbol < alphabet; ++symbol) known.push_back(symbol);
    for (int32_t rank = 0; rank < 30; ++rank) {
      const int32_t left = known[pick(static_cast<int>(known.size()))];
      const int32_t right = known[pick(static_cast<int>(known.size()))];
      if (table.find(left, right) != nullptr) continue;
      table.set(left, right, {.rank = rank, .token = 100 + rank});
      known.push_back(100 + rank);
    }
    PieceMerger merger(table);
    for (int piece = 0; piece < 20; ++piece) {
      std::vector<int32_t> symbols(pick(60));
      for (int32_t& symbol : symbols) symbol = pick(alphabet);
      std::vector<int32_t> out;
      merger.append(symbols, out);
      REQUIRE(out == merge_plainly(table, symbols));
    }
  }
}

}  // namespace
}  // namespace shardscope::runtime
