#include "runtime/model/open_model.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.hpp"
#include "runtime/model/config_json.hpp"
#include "runtime/model/converting.hpp"
#include "runtime/model/file_weights.hpp"
#include "runtime/model/gguf_model.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/model/named.hpp"
#include "runtime/model/safetensors.hpp"
#include "runtime/model/synthetic.hpp"
#include "runtime/text/tokenizer.hpp"

namespace shardscope::runtime {
namespace {

namespace fs = std::filesystem;
using kernels::DType;

constexpr DType kPlanDType = DType::kBF16;  // of weights that no file stores, unless --dtype says otherwise
constexpr std::string_view kNoWeights = "add --weights synthetic, or --dry-run for the plan alone";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    files.push_back(entry->path());
  }
  if (error) throw UserError("cannot list the folder: " + error.message(), folder.string(), "check its permissions");
  std::sort(files.begin(), files.end());
  return files;
}

void cut_layers(ModelConfig& config, const OpenOptions& options) {
  if (!options.layers) return;
  if (*options.layers < 1 || *options.layers > config.layers_in_file) {
    throw UserError(fmt::format("--layers {} is not from 1 to {}", *options.layers, config.layers_in_file),
                    options.model, "choose a number in that range");
  }
  config.layers = *options.layers;
}

/// The type of plain matrices: of the embedding if that is plain, else of the first plain matrix.
DType plain_dtype(const ModelConfig& config, const WeightSource& weights) {
  for (const WeightId id : expected_weights(config)) {
    const DType dtype = weights.dtype(id);
    if (!rule_of(id.role).vector && !kernels::facts(dtype).block_quantised) return dtype;
  }
  return DType::kF32;
}

void use_synthetic(OpenedModel& opened, const OpenOptions& options) {
  opened.dtype = options.dtype.value_or(kPlanDType);
  opened.config.quantisation = "none";
  opened.weights = synthetic_weights(opened.config, opened.dtype, options.seed);
  opened.kind = "synthetic";
}

void use_stored(OpenedModel& opened, StoredTensors stored, const OpenOptions& options) {
  const Naming naming = stored.naming;
  const std::string where = stored.where;
  opened.weights = bind_weights(opened.config, std::move(stored));
  if (options.dtype) {
    opened.weights = converting_weights(std::move(opened.weights), *options.dtype, naming, where);
  }
  opened.dtype = plain_dtype(opened.config, *opened.weights);
}

/// A model of which only the configuration is known: its weights are synthetic. `kind` stays "config" where they were
/// not asked for and serve as shapes alone.
OpenedModel open_configuration(ModelConfig config, const OpenOptions& options, const char* kind) {
  OpenedModel opened;
  opened.config = std::move(config);
  opened.tokenizer_missing_reason = fmt::format("{} is only a configuration", opened.config.name);
  cut_layers(opened.config, options);
  use_synthetic(opened, options);
  opened.kind = kind;
  return opened;
}

OpenedModel open_gguf(const fs::path& path, const OpenOptions& options) {
  GgufFile file(path.string());
  OpenedModel opened;
  opened.config = gguf_config(file);
  opened.config.name = path.filename().string();
  cut_layers(opened.config, options);
  opened.tokenizer = gguf_tokenizer(file, opened.config, opened.tokenizer_missing_reason);
  StoredTensors stored = file.take_tensors();
  stored.interleaved_rotary = gguf_interleaves_rotary(opened.config);
  settle_by_file(opened.config, stored);
  opened.kind = "gguf";
  if (options.synthetic) {
    use_synthetic(opened, options);
  } else {
    use_stored(opened, std::move(stored), options);
  }
  return opened;
}

/// The weights of a folder, or the reason why there are none that can be read.
StoredTensors read_folder(const fs::path& folder) {
  if (is_there(folder / "model.safetensors")) return read_safetensors((folder / "model.safetensors").string());
  if (const fs::path index = folder / "model.safetensors.index.json"; is_there(index)) {
    return read_sharded_safetensors(index.string());
  }
  for (const fs::path& file : files_in(folder)) {
    const std::string name = file.filename().string();
    if (has_pickle_name(name)) refuse_stand_in({}, file.string());
    if (name.starts_with("model-") && name.ends_with(".safetensors")) {
      throw UserError(fmt::format("{} is here but model.safetensors.index.json is missing", printable(name)),
                      folder.string(), "fetch the index of the checkpoint");
    }
  }
  throw UserError("neither model.safetensors nor model.safetensors.index.json is in the folder", folder.string(),
                  "fetch the weights, or add --weights synthetic");
}

void read_tokenizer(OpenedModel& opened, const fs::path& folder) {
  if (!is_there(folder / "tokenizer.json")) {
    opened.tokenizer_missing_reason = fmt::format("{} has no tokenizer.json", folder.string());
    return;
  }
  try {
    opened.tokenizer = read_tokenizer_json(folder.string());
  } catch (const UserError& error) {
    opened.tokenizer_missing_reason = error.what();
  }
}

OpenedModel open_folder(const fs::path& folder, const OpenOptions& options) {
  if (!is_there(folder / "config.json")) {
    std::vector<fs::path> models;
    for (const fs::path& file : files_in(folder)) {
      if (has_pickle_name(file.string())) refuse_stand_in({}, file.string());
      if (file.extension() == ".gguf") models.push_back(file);
    }
    if (models.size() == 1) return open_gguf(models.front(), options);
    throw UserError(models.empty() ? "the folder has neither config.json nor a .gguf file"
                                   : fmt::format("the folder has {} .gguf files", models.size()),
                    folder.string(), "name a folder with config.json, or one .gguf file");
  }
  OpenedModel opened;
  opened.config = read_config_json((folder / "config.json").string());
  const std::string name = folder.filename().string();
  opened.config.name = name.empty() || name == "." ? folder.string() : name;
  for (const std::string_view other : {"quantize_config.json", "quant_config.json"}) {
    if (!is_there(folder / other) || options.synthetic) continue;
    throw UserError(fmt::format("{} says that the weights are quantised (GPTQ, AWQ), which cannot be run yet", other),
                    folder.string(), "use an unquantised checkpoint or GGUF");
  }
  cut_layers(opened.config, options);
  if (options.synthetic) {
    use_synthetic(opened, options);
  } else {
    StoredTensors stored = read_folder(folder);
    settle_by_file(opened.config, stored);
    opened.kind = "safetensors";
    use_stored(opened, std::move(stored), options);
  }
  read_tokenizer(opened, folder);
  return opened;
}

OpenedModel open_file(const fs::path& path, const OpenOptions& options) {
  if (path.extension() == ".json") {
    ModelConfig config = read_config_json(path.string());
    config.name = path.filename().string();
    if (!options.headers_only && !options.synthetic) {
      throw UserError("a configuration alone has no weights", options.model, kNoWeights);
    }
    return open_configuration(std::move(config), options, options.synthetic ? "synthetic" : "config");
  }
  if (path.extension() == ".gguf" || MappedFile(path.string()).text().starts_with("GGUF"))
    return open_gguf(path, options);
  if (path.extension() == ".safetensors") {
    throw UserError("a .safetensors file does not say what model it is", path.string(),
                    "name the folder that holds it and its config.json");
  }
  throw UserError("this kind of file is not known", path.string(),
                  "name a folder with config.json, a .gguf file, or a config.json");
}

}  // namespace

OpenedModel open_model(const OpenOptions& options) {
  require(!options.dtype || !kernels::facts(*options.dtype).block_quantised,
          "open_model: --dtype must be a plain type");
  if (std::optional<ModelConfig> config = named_configuration(options.model)) {
    if (!options.headers_only && !named_configuration_runs(options.model)) {
      throw UserError("only the dimensions of this model are known here: its layers cannot run yet",
                      fmt::format("--model {}", options.model),
                      "plan it (shardscope plan, --dry-run), or name another");
    }
    return open_configuration(std::move(*config), options, "synthetic");
  }
  const fs::path path(options.model);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return open_folder(path, options);
  if (fs::is_regular_file(status)) return open_file(path, options);
  throw UserError(
      is_there(path) ? "neither a file nor a folder" : "no such model", printable(options.model),
      fmt::format("name a folder, a .gguf file, a config.json, or one of {}", fmt::join(named_configurations(), ", ")));
}

}  // namespace shardscope::runtime
