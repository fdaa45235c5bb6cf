#include "launch/model_options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

using namespace std::string_view_literals;

constexpr std::array kWeights = {"auto"sv, "synthetic"sv};
constexpr std::array kDTypes = {"auto"sv, "fp32"sv, "fp16"sv, "bf16"sv};
constexpr std::array kActivations = {"auto"sv, "fp32"sv, "int8"sv};
constexpr std::array kSwitch = {"on"sv, "off"sv};

}  // namespace

void add_model_options(po::options_description& options) {
  const std::string names = fmt::format(
      "model: a Hugging Face folder, a .gguf file, a config.json (--dry-run or "
      "synthetic weights), or one of {}",
      fmt::join(runtime::named_configurations(), ", "));
  options.add_options()                                                            //
      ("model", po::value<std::string>()->value_name("PATH|NAME"), names.c_str())  //
      ("weights", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "auto: the file's, synthetic for named configurations; synthetic: random from --seed")  //
      ("layers", po::value<int64_t>()->value_name("N"), "cut the model to its first N layers");
  add_backend_option(options);
  options.add_options()  //
      ("dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of unquantised weights and, on a GPU, activations: auto (the file's; bf16 for named configurations, fp16 for "
       "block-quantised files), fp32, fp16, bf16")  //
      ("kv-dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of the KV cache: auto (as activations), fp32, fp16, bf16; on the cpu fp32 alone")  //
      ("graphs", po::value<std::string>()->default_value("on")->value_name("WHEN"),
       "on a GPU: on (decode steps are captured and replayed), off")  //
      ("cpu-activations", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "on the cpu: inputs of products on block-quantised weights: auto (int8, the faster), fp32, int8")  //
      ("allreduce", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "auto (measured at start for the messages of this run); on GPUs: nccl, nccl-symmetric, one-shot, two-shot; on "
       "the cpu: mpi, shm")  //
      ("oversubscribe-devices", po::bool_switch(),
       "ranks may share a GPU, for trying things out: sums then are one-shot or two-shot, and times say little")  //
      ("threads", po::value<int64_t>()->value_name("N"),
       "on the cpu: threads of one rank; default: usable cores of the host / ranks on it")  //
      ("seed", po::value<std::string>()->default_value("0")->value_name("N"),
       "of sampling, prompts, synthetic weights")  //
      ("dry-run", po::bool_switch(), "print shard plan, memory and bytes per step; load no weights");
  add_run_options(options);
}

ModelOptions model_options(const po::variables_map& values, Session& session) {
  if (values.count("model") == 0) {
    throw UserError("no model given", "--model", "name a folder, a .gguf file or a configuration such as smollm2-135m");
  }
  const auto choice = [&](const char* option, std::span<const std::string_view> known) {
    return parse_choice(values[option].as<std::string>(), std::string("--") + option, known);
  };
  ModelOptions options;
  options.open.model = values["model"].as<std::string>();
  options.open.synthetic = choice("weights", kWeights) == 1;
  options.backend = backend_kind(values);
  const size_t dtype = choice("dtype", kDTypes);
  if (dtype > 0) options.open.dtype = kernels::dtype_named(kDTypes[dtype]);
  const size_t kv_dtype = choice("kv-dtype", kDTypes);
  if (kv_dtype > 0) options.kv_dtype = kernels::dtype_named(kDTypes[kv_dtype]);
  options.graphs = choice("graphs", kSwitch) == 0;
  constexpr std::array kModes = {kernels::ActivationMode::kAuto, kernels::ActivationMode::kF32,
                                 kernels::ActivationMode::kInt8};
  options.activations = kModes[choice("cpu-activations", kActivations)];
  options.communicator = static_cast<parallel::CommunicatorKind>(choice("allreduce", kAllReduceNames));
  options.shared_devices = values["oversubscribe-devices"].as<bool>();
  const RunOptions run = run_options(values, session);
  options.progress = run.progress;
  options.verbose = run.verbose;
  if (values.count("layers") > 0) {
    options.open.layers = values["layers"].as<int64_t>();
    check_range(*options.open.layers, "--layers", 1, 100'000);
  }
  if (values.count("threads") > 0) options.threads = values["threads"].as<int64_t>();
  options.open.seed = parse_seed(values["seed"].as<std::string>());
  options.dry_run = values["dry-run"].as<bool>();
  options.open.headers_only = options.dry_run;
  return options;
}

runtime::OpenedModel open_model_noted(const ModelOptions& options, const Session& session) {
  session.world.progress("opening the model");
  runtime::OpenedModel model = runtime::open_model(options.open);
  const runtime::ModelConfig& config = model.config;
  if (options.verbose && !config.ignored_keys.empty()) {
    session.note(fmt::format("keys that nothing reads: {}", fmt::join(config.ignored_keys, ", ")));
  }
  if (model.kind == "synthetic") {
    session.note(
        fmt::format("weights are synthetic (random, seed {}): the model is a shape, what it says means nothing",
                    options.open.seed));
  }
  if (config.layers != config.layers_in_file) {
    session.note(fmt::format("model cut to {} of {} layers", config.layers, config.layers_in_file));
  }
  return model;
}

runtime::ReportFile report_file(const std::string& path, const ModelOptions& options,
                                const std::optional<runtime::EarlierPartial>& earlier) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path target = fs::weakly_canonical(fs::absolute(path, code), code);
  const bool own_model = fs::equivalent(target, options.open.model, code);
  const bool beside = fs::exists(target, code) && fs::equivalent(target.parent_path(), options.open.model, code);
  if (own_model || beside) {
    throw UserError(fmt::format("the report would overwrite {}the model", beside ? "a file of " : ""), path,
                    "name another file");
  }
  return earlier ? runtime::ReportFile(path, *earlier) : runtime::ReportFile(path);
}

int64_t valid_vocabulary(const runtime::OpenedModel& model) {
  if (!model.tokenizer) return model.config.vocab;
  return std::min(model.config.vocab, static_cast<int64_t>(model.tokenizer->tokens.size()));
}

}  // namespace shardscope::launch
