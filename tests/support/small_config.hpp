// A model whose bytes and operations can be counted by hand.
#pragma once

#include "runtime/model/config.hpp"

namespace shardscope::test {

/// 4 query and 2 KV heads of 32 on hidden 128, FFN 256, 1000 tokens, 3 layers.
inline runtime::ModelConfig small_config(bool tied) {
  return {.layers = 3,
          .hidden = 128,
          .query_heads = 4,
          .kv_heads = 2,
          .head_dim = 32,
          .ffn = 256,
          .vocab = 1000,
          .max_positions = 512,
          .tied_embeddings = tied};
}

}  // namespace shardscope::test
