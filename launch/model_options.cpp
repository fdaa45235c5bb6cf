#include "launch/model_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/output.hpp"

namespace shardscope::launch {
namespace {

using namespace std::string_view_literals;

constexpr std::array kWeights = {"auto"sv, "synthetic"sv};
constexpr std::array kBackends = {"auto"sv, "cuda"sv, "cpu"sv};
constexpr std::array kDTypes = {"auto"sv, "fp32"sv, "fp16"sv, "bf16"sv};
constexpr std::array kActivations = {"auto"sv, "fp32"sv, "int8"sv};
constexpr std::array kAllReduces = {"auto"sv, "nccl"sv, "mpi"sv, "shm"sv};
constexpr std::array kSwitch = {"on"sv, "off"sv};
constexpr std::array kProgress = {"auto"sv, "always"sv, "never"sv};

/// Boost reads "-1" as 2^64 - 1.
uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, seed);
  if (code != std::errc() || stop != end) {
    throw UserError(fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text), "--seed", "use e.g. 1");
  }
  return seed;
}

}  // namespace

void add_model_options(po::options_description& options) {
  const std::string names = fmt::format(
      "model: a Hugging Face folder, a .gguf file, a config.json (--dry-run or "
      "synthetic weights), or one of {}",
      fmt::join(runtime::named_configurations(), ", "));
  options.add_options()                                                            //
      ("model", po::value<std::string>()->value_name("PATH|NAME"), names.c_str())  //
      ("weights", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "auto: the file's, synthetic for named configurations; synthetic: random from --seed")   //
      ("layers", po::value<int64_t>()->value_name("N"), "cut the model to its first N layers")  //
      ("backend", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "auto (cuda where every rank sees a device that can be used, else cpu), cuda, cpu")  //
      ("dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of unquantised weights and, on a GPU, activations: auto (the file's; bf16 for named configurations, fp16 for "
       "block-quantised files), fp32, fp16, bf16")  //
      ("kv-dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of the KV cache: auto (as activations), fp32, fp16, bf16; on the cpu fp32 alone")  //
      ("graphs", po::value<std::string>()->default_value("on")->value_name("WHEN"),
       "on a GPU: on (decode steps are captured and replayed), off")  //
      ("cpu-activations", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "inputs of products on block-quantised weights: auto (int8, the faster), fp32, int8")  //
      ("allreduce", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "on a GPU: auto, nccl; on the cpu: auto (measured at start), mpi, shm")  //
      ("threads", po::value<int64_t>()->value_name("N"),
       "threads of one rank; default: usable cores of the host / ranks on it")  //
      ("seed", po::value<std::string>()->default_value("0")->value_name("N"),
       "of sampling, prompts, synthetic weights")                                                     //
      ("dry-run", po::bool_switch(), "print shard plan, memory and bytes per step; load no weights")  //
      ("timeout", po::value<double>()->default_value(60)->value_name("S"),
       "seconds without progress of a rank after which the run ends and names it")  //
      ("progress", po::value<std::string>()->default_value("auto")->value_name("WHEN"),
       "auto: bars on a terminal when started without a launcher, else lines; always: bars; never")  //
      ("config", po::value<std::string>()->value_name("FILE"),
       "options from a file, one 'name = value' a line; those of the command line win")  //
      ("verbose,v", po::bool_switch(), "say more on standard error")                     //
      ("help,h", po::bool_switch(), "print this help");
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
  constexpr std::array kBackendKinds = {BackendKind::kAuto, BackendKind::kCuda, BackendKind::kCpu};
  options.backend = kBackendKinds[choice("backend", kBackends)];
  const size_t dtype = choice("dtype", kDTypes);
  if (dtype > 0) options.open.dtype = kernels::dtype_named(kDTypes[dtype]);
  const size_t kv_dtype = choice("kv-dtype", kDTypes);
  if (kv_dtype > 0) options.kv_dtype = kernels::dtype_named(kDTypes[kv_dtype]);
  options.graphs = choice("graphs", kSwitch) == 0;
  constexpr std::array kModes = {kernels::ActivationMode::kAuto, kernels::ActivationMode::kF32,
                                 kernels::ActivationMode::kInt8};
  options.activations = kModes[choice("cpu-activations", kActivations)];
  constexpr std::array kKinds = {parallel::CommunicatorKind::kAuto, parallel::CommunicatorKind::kAuto,
                                 parallel::CommunicatorKind::kMpi, parallel::CommunicatorKind::kShm};
  const size_t all_reduce = choice("allreduce", kAllReduces);
  options.communicator = kKinds[all_reduce];
  options.nccl = kAllReduces[all_reduce] == "nccl";
  choice("progress", kProgress);
  options.progress =
      progress_mode(values["progress"].as<std::string>(), session.launcher.use_mpi, errors_on_terminal());
  if (values.count("layers") > 0) {
    options.open.layers = values["layers"].as<int64_t>();
    check_range(*options.open.layers, "--layers", 1, 100'000);
  }
  if (values.count("threads") > 0) options.threads = values["threads"].as<int64_t>();
  options.open.seed = parse_seed(values["seed"].as<std::string>());
  options.dry_run = values["dry-run"].as<bool>();
  options.open.headers_only = options.dry_run;
  options.verbose = values["verbose"].as<bool>();
  const double timeout = values["timeout"].as<double>();
  constexpr double kLongestTimeout = 86'400;
  if (!(timeout >= 1 && timeout <= kLongestTimeout)) {
    throw UserError(fmt::format("{} is out of range", timeout), "--timeout", "use 1 to 86400 seconds");
  }
  session.world.set_timeout(std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3)));
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
