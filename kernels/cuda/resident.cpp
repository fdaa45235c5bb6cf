#include "kernels/cuda/resident.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/block_planes.hpp"
#include "kernels/cuda/weight_layout.hpp"

namespace shardscope::cuda {

using kernels::DType;

namespace {

constexpr int64_t kAlignment = 16;  // bytes, of rows of activations, and of planes on their way

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_block_format(DType dtype) {
  return kernels::facts(dtype).block_quantised;
}

const std::byte* bytes_at(const void* base, int64_t offset) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + offset;
}

}  // namespace

CudaMatrix::CudaMatrix(std::vector<Piece> pieces, int64_t rows, int64_t columns, int parts)
    : pieces_(std::move(pieces)), rows_(rows), columns_(columns), parts_(parts) {}

int64_t CudaMatrix::bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.values.bytes() + piece.scales.bytes();
  return bytes;
}

DeviceMatrix CudaMatrix::rows_view(int64_t begin, int64_t end) const {
  for (const Piece& piece : pieces_) {
    if (begin < piece.first_row || end > piece.first_row + piece.matrix.rows) continue;
    return rows_of(piece.matrix, begin - piece.first_row, end - piece.first_row);
  }
  throw BugError("rows of a matrix that lie in several pieces");
}

DeviceMatrix rows_of(const DeviceMatrix& matrix, int64_t begin, int64_t end) {
  DeviceMatrix part = matrix;
  part.rows = end - begin;
  part.values = bytes_at(matrix.values, begin * value_row_bytes(matrix.dtype, matrix.columns));
  part.scales = bytes_at(matrix.scales, begin * scale_row_bytes(matrix.dtype, matrix.columns));
  return part;
}

CudaActivations::CudaActivations(Device& device, int64_t rows, int64_t columns, DType dtype)
    : rows_(rows),
      columns_(columns),
      stride_(rounded_up(columns, kAlignment / kernels::facts(dtype).block_bytes)),
      dtype_(dtype),
      memory_(rows * stride_ * kernels::facts(dtype).block_bytes, "activations", device.where()) {
  require(rows >= 0 && columns >= 0, "make_activations: a negative dimension");
  if (memory_.bytes() == 0) return;
  device.check(cudaMemsetAsync(memory_.data(), 0, static_cast<size_t>(memory_.bytes()), device.lend_stream()),
               "cudaMemsetAsync");
}

CudaKvCache::CudaKvCache(Device& device, const kernels::KvShape& shape, DType dtype) : shape_(shape), dtype_(dtype) {
  constexpr int64_t kHeadGranule = 8;
  constexpr int64_t kMostHeadDim = 256;
  if (shape.head_dim % kHeadGranule != 0 || shape.head_dim > kMostHeadDim) {
    throw UserError(fmt::format("heads of {} dimensions do not run on the cuda backend", shape.head_dim),
                    "--backend cuda", "use --backend cpu (the kernels take multiples of 8 up to 256)");
  }
  memory_ = DeviceBuffer(bytes_per_position() * shape.slots * shape.positions, "the KV cache", device.where());
}

int64_t CudaKvCache::bytes_per_position() const {
  constexpr int64_t kKeysAndValues = 2;
  return kKeysAndValues * shape_.layers * shape_.kv_heads * shape_.head_dim * element_bytes();
}

KvView CudaKvCache::layer(int64_t layer) const {
  require(layer >= 0 && layer < shape_.layers, "attention: no such layer in the cache");
  const int64_t head = shape_.positions * shape_.head_dim;
  const int64_t slot = shape_.kv_heads * head;
  const int64_t plane = shape_.slots * slot * element_bytes();
  std::byte* keys = memory_.as<std::byte>() + 2 * layer * plane;
  return {.dtype = dtype_,
          .keys = keys,
          .values = keys + plane,
          .slot_stride = slot,
          .head_stride = head,
          .position_stride = shape_.head_dim};
}

Uploader::Uploader(Device& device, WeightMemory& memory, int64_t buffer_bytes)
    : device_(device), memory_(memory), buffer_bytes_(buffer_bytes) {}

Uploader::Slot& Uploader::next_slot(int64_t bytes) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  if (!slot.done) slot.done = make_event(device_.where());
  if (slot.busy) device_.wait(slot.done.get(), "loading weights");
  slot.busy = false;
  if (slot.buffer.bytes() < bytes) {
    slot.buffer = PinnedBuffer(std::max(bytes, buffer_bytes_), "weights on their way", device_.where());
  }
  return slot;
}

void Uploader::copied(Slot& slot) {
  device_.check(cudaEventRecord(slot.done.get(), device_.stream()), "cudaEventRecord");
  slot.busy = true;
}

void Uploader::copy(const std::byte* from, const void* to, int64_t bytes) {
  if (bytes == 0) return;
  device_.check(cudaMemcpyAsync(const_cast<void*>(to), from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                                device_.lend_stream()),
                "cudaMemcpyAsync", [&] { return memory_text(bytes) + " of weights"; });
}

void Uploader::rows(const kernels::MatrixPart& part, int64_t number, const DeviceMatrix& to,
                    const kernels::RowReader& read) {
  const int64_t stored_row = kernels::row_bytes(part.dtype, part.columns);
  const int64_t value_row = value_row_bytes(part.dtype, part.columns);
  const int64_t scale_row = scale_row_bytes(part.dtype, part.columns);
  if (value_row == 0) return;
  const int64_t at_once = std::max<int64_t>(1, (buffer_bytes_ - kAlignment) / (value_row + scale_row));
  for (int64_t begin = 0; begin < part.rows; begin += at_once) {
    const int64_t count = std::min(at_once, part.rows - begin);
    const int64_t value_bytes = count * value_row;
    Slot& slot = next_slot(value_bytes + count * scale_row);
    const std::span values(slot.buffer.data(), static_cast<size_t>(value_bytes));
    const std::span scales(slot.buffer.data() + value_bytes, static_cast<size_t>(count * scale_row));
    if (value_row == stored_row) {
      read(number, {begin, begin + count}, values);
    } else {
      stored_.resize(static_cast<size_t>(count * stored_row));
      read(number, {begin, begin + count}, stored_);
      if (is_block_format(part.dtype)) {
        split_blocks(part.dtype, stored_, values, scales);
      } else {
        std::memset(values.data(), 0, values.size());
        for (int64_t row = 0; row < count; ++row) {
          std::memcpy(values.data() + row * value_row, stored_.data() + row * stored_row,
                      static_cast<size_t>(stored_row));
        }
      }
    }
    const DeviceMatrix rows_to = rows_of(to, begin, begin + count);
    copy(values.data(), rows_to.values, value_bytes);
    copy(scales.data(), rows_to.scales, std::ssize(scales));
    copied(slot);
  }
}

std::unique_ptr<kernels::Matrix> Uploader::matrix(std::span<const kernels::MatrixPart> parts,
                                                  const kernels::RowReader& read) {
  const std::vector<PieceLayout> layouts = piece_layouts(parts);
  const int64_t columns = parts.front().columns;
  std::vector<CudaMatrix::Piece> pieces;
  int64_t rows = 0;
  for (const PieceLayout& layout : layouts) {
    const std::string& name = parts[layout.first_part].name;
    CudaMatrix::Piece piece{.first_row = rows,
                            .matrix = {.dtype = layout.dtype, .rows = layout.rows, .columns = columns},
                            .values = memory_.of_matrix(layout.value_bytes(), name),
                            .scales = memory_.of_matrix(layout.scale_bytes(), name)};
    piece.matrix.values = piece.values.data();
    piece.matrix.scales = piece.scales.data();
    if (!is_block_format(layout.dtype)) piece.matrix.row_bytes = layout.value_row_bytes;
    int64_t done = 0;
    for (size_t part = layout.first_part; part < layout.end_part; ++part) {
      this->rows(parts[part], static_cast<int64_t>(part), rows_of(piece.matrix, done, done + parts[part].rows), read);
      done += parts[part].rows;
    }
    rows += layout.rows;
    pieces.push_back(std::move(piece));
  }
  return std::make_unique<CudaMatrix>(std::move(pieces), rows, columns, static_cast<int>(parts.size()));
}

std::unique_ptr<kernels::Vector> Uploader::vector(std::span<const float> values) {
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  WeightPlane memory = memory_.of_vector(bytes, "a norm's weights or a bias");
  if (bytes > 0) {
    Slot& slot = next_slot(bytes);
    std::memcpy(slot.buffer.data(), values.data(), values.size_bytes());
    copy(slot.buffer.data(), memory.data(), bytes);
    copied(slot);
  }
  return std::make_unique<CudaVector>(std::move(memory), std::ssize(values));
}

}  // namespace shardscope::cuda
