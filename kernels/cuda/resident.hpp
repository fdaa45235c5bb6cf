// What a backend keeps in device memory: matrices in their stored formats, vectors, activations, the KV cache; and how
// weights get there, through pinned buffers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/base/error.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/kv_view.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/weight_memory.hpp"

namespace shardscope::cuda {

/// The object as this backend made it. Throws BugError for one of another backend.
template <typename Own, typename Interface>
Own& own(Interface& object) {
  auto* mine = dynamic_cast<Own*>(&object);
  require(mine != nullptr, "an object of another backend was given to the CUDA backend");
  return *mine;
}

/// A view of activations, as the kernels on rows take it.
inline Rows rows_of(const kernels::Activations& x) {
  return {.dtype = x.dtype, .data = x.data, .rows = x.rows, .columns = x.columns, .stride = x.stride};
}

class CudaMatrix final : public kernels::Matrix {
 public:
  /// Adjacent parts of one format, as one matrix.
  struct Piece {
    int64_t first_row = 0;  // within the whole
    DeviceMatrix matrix;
    WeightPlane values;
    WeightPlane scales;
  };

  CudaMatrix(std::vector<Piece> pieces, int64_t rows, int64_t columns, int parts);
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override;
  int parts() const { return parts_; }  // that were stacked

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Rows [begin, end), which lie within one piece.
  DeviceMatrix rows_view(int64_t begin, int64_t end) const;

 private:
  std::vector<Piece> pieces_;
  int64_t rows_;
  int64_t columns_;
  int parts_;
};

/// Rows [begin, end) of a matrix.
DeviceMatrix rows_of(const DeviceMatrix& matrix, int64_t begin, int64_t end);

class CudaVector final : public kernels::Vector {
 public:
  CudaVector(WeightPlane memory, int64_t size) : memory_(std::move(memory)), size_(size) {}
  int64_t size() const override { return size_; }
  const float* data() const { return reinterpret_cast<const float*>(memory_.data()); }

 private:
  WeightPlane memory_;
  int64_t size_;
};

/// Rows begin at multiples of 16 bytes.
class CudaActivations final : public kernels::ActivationBuffer {
 public:
  CudaActivations(Device& device, int64_t rows, int64_t columns, kernels::DType dtype);
  kernels::Activations view() const override { return {memory_.data(), rows_, columns_, stride_, dtype_}; }
  int64_t bytes() const override { return memory_.bytes(); }

 private:
  int64_t rows_;
  int64_t columns_;
  int64_t stride_;
  kernels::DType dtype_;
  DeviceBuffer memory_;
};

/// [layer][keys, values][slot][kv head][position][head_dim]
class CudaKvCache final : public kernels::KvCache {
 public:
  /// Throws UserError for head sizes that the attention kernels do not have.
  CudaKvCache(Device& device, const kernels::KvShape& shape, kernels::DType dtype);
  const kernels::KvShape& shape() const override { return shape_; }
  int64_t bytes() const override { return memory_.bytes(); }
  int64_t bytes_per_position() const override;
  KvView layer(int64_t layer) const;
  kernels::DType dtype() const { return dtype_; }
  const std::byte* data() const { return memory_.as<std::byte>(); }

 private:
  int64_t element_bytes() const { return kernels::facts(dtype_).block_bytes; }

  kernels::KvShape shape_;
  kernels::DType dtype_;
  DeviceBuffer memory_;
};

/// Brings stored weights into device memory: read, taken apart into planes, and copied, each while the others go on.
class Uploader {
 public:
  Uploader(Device& device, WeightMemory& memory, int64_t buffer_bytes);

  std::unique_ptr<kernels::Matrix> matrix(std::span<const kernels::MatrixPart> parts, const kernels::RowReader& read);
  std::unique_ptr<kernels::Vector> vector(std::span<const float> values);

 private:
  struct Slot {
    PinnedBuffer buffer;
    Event done;  // the copies from it
    bool busy = false;
  };

  void rows(const kernels::MatrixPart& part, int64_t number, const DeviceMatrix& to, const kernels::RowReader& read);
  Slot& next_slot(int64_t bytes);
  void copied(Slot& slot);
  void copy(const std::byte* from, const void* to, int64_t bytes);

  Device& device_;
  WeightMemory& memory_;
  int64_t buffer_bytes_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
  std::vector<std::byte> stored_;  // rows as the file has them, before they are taken apart
};

}  // namespace shardscope::cuda
