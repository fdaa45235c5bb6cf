// The driver of products: shares the weights' panels among the threads by bytes, prepares activations once, and walks
// panels (outer, so that they are read from memory once) and tiles of tokens (inner).
#include "kernels/cpu/products.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace shardscope::kernels::cpu {
namespace {

constexpr int64_t kTileFloats = kMaxPanels * kMaxTileTokens * kPanelRows;
constexpr int64_t kOwnTokens = 2;                    // up to so many tokens every member prepares for itself
constexpr int64_t kChunkBytes = int64_t{384} << 10;  // prepared activations per sweep of the weights: within L2

/// Prepared activations of one kind: full tiles, then one narrower tile whose missing tokens are zeros.
struct Inputs {
  const ProductKernels* kernels = nullptr;
  std::byte* data = nullptr;
  Activations x;

  int64_t tiles() const { return (x.rows + kernels->tile_tokens - 1) / kernels->tile_tokens; }
  int64_t first_token(int64_t tile) const { return tile * kernels->tile_tokens; }
  int64_t tokens(int64_t tile) const { return std::min(kernels->tile_tokens, x.rows - first_token(tile)); }
  int64_t width(int64_t tile) const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens(tile)))); }
  std::byte* tile(int64_t tile) const { return data + first_token(tile) * kernels->row_bytes(x.columns); }
  int64_t bytes() const { return tiles() * kernels->tile_tokens * kernels->row_bytes(x.columns); }

  void prepare(Range tokens_of_all) const {
    for (int64_t token = tokens_of_all.begin; token < tokens_of_all.end; ++token) {
      const int64_t at = token / kernels->tile_tokens;
      kernels->prepare(x.floats() + token * x.stride, x.columns, width(at), token - first_token(at), tile(at));
      if (token + 1 < x.rows) continue;
      for (int64_t pad = tokens(at); pad < width(at); ++pad) {
        kernels->prepare(nullptr, x.columns, width(at), pad, tile(at));
      }
    }
  }
};

struct Group {
  std::array<int64_t, kMaxPanels> panels;
  int64_t count;
};

/// Cuts panels into groups of `wide` that lie far apart, so that a thread reads several streams; then single ones.
template <typename Work>
void for_each_group(Range panels, int64_t full_panels, int64_t wide, const Work& work) {
  const Range full = intersection(panels, {0, full_panels});
  const int64_t groups = full.size() / wide;
  for (int64_t i = 0; i < groups; ++i) {
    Group group{{}, wide};
    for (int64_t j = 0; j < wide; ++j) group.panels[j] = full.begin + j * groups + i;
    work(group);
  }
  for (int64_t panel = std::max(full.begin + groups * wide, panels.begin); panel < panels.end; ++panel) {
    work(Group{{panel}, 1});
  }
}

/// out [group.count][tokens of the tile][16]
void multiply_group(const PackedPart& part, const Group& group, const Inputs& inputs, int64_t tile, float* out) {
  const int64_t width = inputs.width(tile);
  const TileKernel& kernel =
      inputs.kernels->tiles[static_cast<size_t>(part.dtype)][std::countr_zero(static_cast<uint64_t>(width))];
  PanelGroup pointers{};
  for (int64_t i = 0; i < group.count; ++i) {
    pointers.values[i] = part.panel_values(group.panels[i]);
    pointers.scales[i] = part.panel_scales(group.panels[i]);
  }
  const TileFunction function = group.count == kernel.panels ? kernel.wide : kernel.single;
  function(pointers, inputs.x.columns, part.panel_rows(group.panels[0]), inputs.tile(tile), out);
}

/// tile [tokens][16] += bias [16]
void add_bias(float* tile, int64_t tokens, const float* bias) {
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < kPanelRows; ++i) tile[token * kPanelRows + i] += bias[i];
  }
}

/// tile [tokens][16] -> `lanes` columns of rows of out
void store_panel(const float* tile, int64_t tokens, int64_t lanes, float* out, int64_t stride) {
  for (int64_t token = 0; token < tokens; ++token) {
    std::memcpy(out + token * stride, tile + token * kPanelRows, static_cast<size_t>(lanes) * sizeof(float));
  }
}

class Worker {
 public:
  Worker(const Product& product, const Inputs& f32, const Inputs& int8) : product_(product), f32_(f32), int8_(int8) {}

  /// Panels of the part at row `first_row` of the matrix, or of both parts where gated.
  void work(const PackedPart& part, int64_t first_row, Range panels) {
    const Inputs& inputs = inputs_of(part);
    const int64_t tile_bytes = inputs.kernels->tile_tokens * inputs.kernels->row_bytes(inputs.x.columns);
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, tile_bytes));
    const int64_t full_tiles = inputs.x.rows / inputs.kernels->tile_tokens;
    for (int64_t tile = 0; tile < full_tiles; tile += chunk) {
      work_tiles(part, first_row, panels, {tile, std::min(tile + chunk, full_tiles)});
    }
    if (full_tiles < inputs.tiles()) work_tiles(part, first_row, panels, {full_tiles, full_tiles + 1});
  }

  /// Whether a part's inputs are int8.
  static bool takes_int8(const Product& product, DType dtype) { return product.int8 && facts(dtype).block_quantised; }

 private:
  const Inputs& inputs_of(const PackedPart& part) const { return takes_int8(product_, part.dtype) ? int8_ : f32_; }

  void work_tiles(const PackedPart& part, int64_t first_row, Range panels, Range tiles) {
    const Inputs& inputs = inputs_of(part);
    const int64_t width_index = std::countr_zero(static_cast<uint64_t>(inputs.width(tiles.begin)));
    int64_t wide = inputs.kernels->tiles[static_cast<size_t>(part.dtype)][width_index].panels;
    if (product_.gated) {
      const PackedPart& up = product_.weights->parts()[1];
      const auto& kernels = inputs_of(up).kernels->tiles[static_cast<size_t>(up.dtype)];
      if (kernels[width_index].panels != wide) wide = 1;
    }
    for_each_group(panels, part.rows / kPanelRows, wide, [&](const Group& group) {
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) work_group(part, first_row, group, tile);
    });
  }

  void work_group(const PackedPart& part, int64_t first_row, const Group& group, int64_t tile) {
    const Inputs& inputs = inputs_of(part);
    const int64_t floats = inputs.width(tile) * kPanelRows;  // of one panel
    multiply_group(part, group, inputs, tile, sums_.data());
    if (product_.gated) apply_gate(group, tile);
    for (int64_t i = 0; i < group.count; ++i) {
      float* sums = &sums_[i * floats];
      const int64_t row = first_row + group.panels[i] * kPanelRows;
      if (!product_.gated && product_.bias != nullptr) add_bias(sums, inputs.width(tile), product_.bias + row);
      store_panel(sums, inputs.tokens(tile), part.panel_rows(group.panels[i]),
                  product_.out.floats() + inputs.first_token(tile) * product_.out.stride + row, product_.out.stride);
    }
  }

  /// sums_ holds the gate's panels: becomes silu(gate) * up, biases included.
  void apply_gate(const Group& group, int64_t tile) {
    const PackedPart& up = product_.weights->parts()[1];
    const Inputs& inputs = inputs_of(up);
    const int64_t floats = inputs.width(tile) * kPanelRows;  // of one panel
    multiply_group(up, group, inputs, tile, up_.data());
    for (int64_t i = 0; i < group.count && product_.bias != nullptr; ++i) {
      const float* bias = product_.bias + group.panels[i] * kPanelRows;
      add_bias(&sums_[i * floats], inputs.width(tile), bias);
      add_bias(&up_[i * floats], inputs.width(tile), bias + up.rows);
    }
    silu_multiply(sums_.data(), up_.data(), group.count * floats);
  }

  const Product& product_;
  const Inputs& f32_;
  const Inputs& int8_;
  alignas(64) std::array<float, kTileFloats> sums_;
  alignas(64) std::array<float, kTileFloats> up_;
};

/// The panels of a part whose first byte lies in `share`, where the part's panels begin at byte `base`.
Range panels_in(Range share, int64_t base, int64_t panels, int64_t panel_bytes) {
  const int64_t begin = std::clamp<int64_t>((share.begin - base + panel_bytes - 1) / panel_bytes, 0, panels);
  const int64_t end = std::clamp<int64_t>((share.end - base + panel_bytes - 1) / panel_bytes, 0, panels);
  return {begin, std::max(begin, end)};
}

void work_member(const Product& product, const Inputs& f32, const Inputs& int8, int member, int members) {
  Worker worker(product, f32, int8);
  const auto parts = product.weights->parts();
  int64_t total = 0;
  for (const PackedPart& part : parts) total += part.panels() * part.panel_bytes();
  const Range share = even_share(total, member, members);
  if (product.gated) {
    const int64_t pair_bytes = parts[0].panel_bytes() + parts[1].panel_bytes();
    worker.work(parts[0], 0, panels_in(share, 0, parts[0].panels(), pair_bytes));
    return;
  }
  int64_t base = 0;
  int64_t first_row = 0;
  for (const PackedPart& part : parts) {
    worker.work(part, first_row, panels_in(share, base, part.panels(), part.panel_bytes()));
    base += part.panels() * part.panel_bytes();
    first_row += part.rows;
  }
}

/// A matrix without columns: the sums are empty.
void fill_empty(const Product& product) {
  for (int64_t row = 0; row < product.out.rows; ++row) {
    float* out = product.out.floats() + row * product.out.stride;
    for (int64_t i = 0; i < product.out.columns; ++i) {
      out[i] = product.bias == nullptr ? 0.0F : product.bias[i];
      if (!product.gated) continue;
      const float up = product.bias == nullptr ? 0.0F : product.bias[product.out.columns + i];
      silu_multiply(&out[i], &up, 1);
    }
  }
}

}  // namespace

void run_product(const Product& product, ThreadTeam& team, ProductScratch& scratch) {
  if (product.out.rows == 0 || product.out.columns == 0) return;
  if (product.x.columns == 0) {
    fill_empty(product);
    return;
  }
  std::array<Inputs, 2> kinds = {Inputs{&f32_products(), nullptr, product.x},
                                 Inputs{&int8_products(), nullptr, product.x}};
  std::array<bool, 2> used = {false, false};
  for (const PackedPart& part : product.weights->parts()) {
    used[Worker::takes_int8(product, part.dtype) ? 1 : 0] |= part.rows > 0;
  }
  const bool own = product.x.rows <= kOwnTokens && team.size() > 1;
  scratch.own.resize(static_cast<size_t>(team.size()));
  for (size_t kind = 0; kind < 2; ++kind) {
    if (!used[kind]) continue;
    if (own) {
      for (auto& member : scratch.own) member[kind].reserve(kinds[kind].bytes());
    } else {
      scratch.shared[kind].reserve(kinds[kind].bytes());
    }
  }
  team.run([&](int member) {
    std::array<Inputs, 2> inputs = kinds;
    for (size_t kind = 0; kind < 2; ++kind) {
      if (!used[kind]) continue;
      inputs[kind].data = (own ? scratch.own[member][kind] : scratch.shared[kind]).data();
      inputs[kind].prepare(own ? Range{0, product.x.rows} : even_share(product.x.rows, member, team.size()));
    }
    if (!own) team.barrier();
    work_member(product, inputs[0], inputs[1], member, team.size());
  });
}

}  // namespace shardscope::kernels::cpu
