// Binds the tensors that a weight file stores to those that a model needs: names, shapes and types are checked here,
// and rows are read in the order that the model wants. Readers of each format (safetensors, gguf) fill a StoredTensors.
// Who owns: StoredTensors, then the weight source made from it, owns the maps into which every `data` points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/mapped_file.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

struct StoredTensor {
  std::string name;
  std::string type;                     // as the format calls it
  std::optional<kernels::DType> dtype;  // absent: a valid type that cannot be run
  std::vector<int64_t> shape;           // [rows, columns] or [elements]
  std::span<const std::byte> data;      // its whole stored size
  std::string file;                     // for errors
};

struct StoredTensors {
  std::string where;  // file or folder, for errors
  Naming naming = Naming::kHuggingFace;
  bool interleaved_rotary = false;  // rows of q and k stand in pairs (2i, 2i+1), as GGUF's arch llama has them
  std::vector<MappedFile> files;
  std::vector<StoredTensor> tensors;
  uint64_t identity_hash = 0;  // over headers, sizes and samples of the data (fnv1a_sampled) of all files
};

const StoredTensor* find_tensor(const StoredTensors& stored, std::string_view name);

/// What the file decides about a model whatever its configuration says: whether the head is tied, and which block
/// format it is called after (config.quantisation).
void settle_by_file(ModelConfig& config, const StoredTensors& stored);

/// A source over the tensors that `config` expects. Throws UserError naming the file and the tensor for one that is
/// missing, that nothing uses (known buffers and layers cut off by --layers excepted), or whose shape or type is wrong.
std::unique_ptr<WeightSource> bind_weights(const ModelConfig& config, StoredTensors stored);

}  // namespace shardscope::runtime
