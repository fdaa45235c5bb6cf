#include "kernels/cpu/attention_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/operations.hpp"

namespace shardscope::kernels::cpu {
namespace {

constexpr int64_t kItemQueries = 16;      // queries (tokens x heads) of an item where a prompt has that many tokens
constexpr int64_t kMostQueries = 64;      // more query heads of one KV head are cut into several items
constexpr int64_t kSplitPositions = 256;  // a part of fewer positions is not worth the putting together

}  // namespace

void AttentionRunner::list_items(const AttentionJob& job) {
  items_.clear();
  scratch_floats_ = 0;
  const HeadLayout& heads = *job.heads;
  int64_t row = 0;
  for (const StepSequence& sequence : job.sequences) {
    for (int64_t kv = heads.kv_heads.begin; kv < heads.kv_heads.end; ++kv) {
      const Range group = intersection(heads.query_heads, {kv * heads.queries_per_kv, (kv + 1) * heads.queries_per_kv});
      for (int64_t query = group.begin; query < group.end; query += kMostQueries) {
        const Range some = {query, std::min(query + kMostQueries, group.end)};
        const int64_t step = std::max<int64_t>(1, kItemQueries / some.size());
        for (int64_t token = 0; token < sequence.count; token += step) {
          const int64_t tokens = std::min(step, sequence.count - token);
          items_.push_back({sequence.slot, row + token, tokens, sequence.first_position + token, kv, some});
          scratch_floats_ = std::max(scratch_floats_, attention_scratch_floats(tokens * some.size(), heads.head_dim));
        }
      }
    }
    row += sequence.count;
  }
}

int64_t AttentionRunner::splits(int members) const {
  if (members == 1 || items_.empty()) return 1;
  int64_t positions = 0;
  for (const Item& item : items_) {
    if (item.tokens > 1) return 1;
    positions = std::max(positions, item.first_position + 1);
  }
  const auto items = static_cast<int64_t>(items_.size());
  const int64_t wanted = (2 * members + items - 1) / items;
  return items >= 2 * members ? 1 : std::clamp<int64_t>(positions / kSplitPositions, 1, wanted);
}

void AttentionRunner::run(const AttentionJob& job, ThreadTeam& team) {
  list_items(job);
  const int64_t parts = splits(team.size());
  const auto units = static_cast<int64_t>(items_.size()) * parts;
  const int64_t areas = parts > 1 ? units : team.size();
  scratch_.reserve(areas * scratch_floats_ * static_cast<int64_t>(sizeof(float)));
  if (team.size() == 1) {
    for (int64_t unit = 0; unit < units; ++unit) work_part(job, unit, 1, scratch_.floats());
    return;
  }
  next_.store(0, std::memory_order_relaxed);
  team.run([&](int member) {
    for (int64_t unit = next_.fetch_add(1); unit < units; unit = next_.fetch_add(1)) {
      work_part(job, unit, parts, scratch_.floats() + (parts > 1 ? unit : member) * scratch_floats_);
    }
    if (parts == 1) return;
    team.barrier();
    const Range mine = even_share(std::ssize(items_), member, team.size());
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      combine(job, item, parts, scratch_.floats() + item * parts * scratch_floats_);
    }
  });
}

void AttentionRunner::work_part(const AttentionJob& job, int64_t unit, int64_t parts, float* scratch) const {
  const Item& item = items_[unit / parts];
  const HeadLayout& heads = *job.heads;
  std::array<const float*, kMostQueries> queries;
  std::array<int64_t, kMostQueries> visible;
  const int64_t count = item.tokens * item.queries.size();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = i / item.queries.size();
    const int64_t head = item.queries.begin + i % item.queries.size() - heads.query_heads.begin;
    queries[i] = job.qkv.floats() + (item.first_row + token) * job.qkv.stride + head * heads.head_dim;
    visible[i] = item.first_position + token + 1;
  }
  const int64_t kv_head = item.kv_head - heads.kv_heads.begin;
  const Range part = even_share(visible[count - 1], static_cast<int>(unit % parts), static_cast<int>(parts));
  const auto whole_blocks = [&](int64_t position) {
    return position == visible[count - 1] ? position : position / kKeyBlock * kKeyBlock;
  };
  const AttentionPart result = attend({.keys = job.cache->keys(job.layer, item.slot, kv_head),
                                       .values = job.cache->values(job.layer, item.slot, kv_head),
                                       .capacity = job.cache->shape().positions,
                                       .head_dim = heads.head_dim,
                                       .scale = heads.scale,
                                       .positions = {whole_blocks(part.begin), whole_blocks(part.end)},
                                       .queries = std::span(queries).first(static_cast<size_t>(count)),
                                       .visible = std::span(visible).first(static_cast<size_t>(count)),
                                       .scratch = scratch});
  if (parts > 1) return;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = i / item.queries.size();
    const int64_t head = item.queries.begin + i % item.queries.size() - heads.query_heads.begin;
    float* out = job.out.floats() + (item.first_row + token) * job.out.stride + head * heads.head_dim;
    const float factor = 1.0F / result.sum[i];
    for (int64_t dim = 0; dim < heads.head_dim; ++dim) out[dim] = result.out[i * result.out_stride + dim] * factor;
  }
}

void AttentionRunner::combine(const AttentionJob& job, int64_t item_index, int64_t parts, const float* scratch) const {
  const Item& item = items_[item_index];
  const HeadLayout& heads = *job.heads;
  const int64_t count = item.queries.size();  // one token
  for (int64_t i = 0; i < count; ++i) {
    const int64_t head = item.queries.begin + i - heads.query_heads.begin;
    float* out = job.out.floats() + item.first_row * job.out.stride + head * heads.head_dim;
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t p = 0; p < parts; ++p) {
      maximum = std::max(maximum, attention_part(scratch + p * scratch_floats_, count, heads.head_dim).maximum[i]);
    }
    float sum = 0;
    std::fill(out, out + heads.head_dim, 0.0F);
    for (int64_t p = 0; p < parts; ++p) {
      const AttentionPart part = attention_part(scratch + p * scratch_floats_, count, heads.head_dim);
      const float factor = std::exp(part.maximum[i] - maximum);
      sum += part.sum[i] * factor;
      for (int64_t dim = 0; dim < heads.head_dim; ++dim) out[dim] += part.out[i * part.out_stride + dim] * factor;
    }
    for (int64_t dim = 0; dim < heads.head_dim; ++dim) out[dim] /= sum;
  }
}

}  // namespace shardscope::kernels::cpu
