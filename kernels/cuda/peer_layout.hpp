// Where the words of peer_words.cuh lie in an inbox: [2][buffer] words, then the words that blocks of one device
// exchange. A buffer is data, then a header of each rank. The regions of the data overlap, since no word of an earlier
// call is taken for one of this call; headers have places of their own, the same in all kinds of calls.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/peer_rank.hpp"

namespace shardscope::cuda {

inline constexpr int64_t kWordDataBytes = 4;  // of the 8 bytes of a word
inline constexpr int64_t kUnitWords = 4;      // 16 bytes of data: what chunks of two-shot are multiples of

/// So that a row's squares fit their words: all_reduce_norm spreads a row over at most one block for so many words.
inline constexpr int64_t kPartWords = 256;
inline constexpr int kMaxParts = 16;

/// Words of data of the chunk that each rank adds; those of the last ranks may be shorter, or empty.
constexpr int64_t peer_chunk_words(int64_t words, int ranks) {
  const int64_t units = (words + kUnitWords - 1) / kUnitWords;
  return (units + ranks - 1) / ranks * kUnitWords;
}

struct PeerLayout {
  int64_t one_shot_words;  // of each sender
  int64_t two_shot_words;  // of the result; before it, the senders' parts of the receiver's chunk
  int64_t chunk_words;     // of each sender
  int64_t header_place;    // in a buffer: of rank 0's header, the others' behind it
  int64_t buffer_words;
  int64_t partial_words;  // behind the buffers
};

constexpr PeerLayout peer_layout(int ranks, const PeerCapacity& capacity) {
  PeerLayout layout{};
  layout.one_shot_words = capacity.one_shot_bytes / kWordDataBytes;
  layout.two_shot_words = capacity.two_shot_bytes / kWordDataBytes;
  layout.chunk_words = peer_chunk_words(layout.two_shot_words, ranks);
  layout.header_place = std::max(ranks * layout.one_shot_words, ranks * layout.chunk_words + layout.two_shot_words);
  layout.buffer_words = layout.header_place + kMaxPeerRanks;
  // Only rows of more than kPartWords words have parts, at most row_words / kPartWords + 1, which is less than twice
  // row_words / kPartWords.
  layout.partial_words = 2 * std::max(layout.one_shot_words, layout.two_shot_words) / kPartWords;
  return layout;
}

}  // namespace shardscope::cuda
