#include "launch/plan_options.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/engine.hpp"
#include "launch/topology_files.hpp"

namespace shardscope::launch {
namespace {

using namespace std::string_view_literals;

constexpr std::array kDTypes = {"auto"sv, "fp32"sv, "fp16"sv, "bf16"sv};
constexpr std::array kKvDTypes = {"auto"sv, "fp32"sv, "fp16"sv, "bf16"sv, "fp8"sv, "int8"sv};
constexpr std::array kQuantisations = {"none"sv, "int8"sv, "int4"sv, "nf4"sv, "fp8"sv};
constexpr double kByteBits = 8;
constexpr double kScaleBits = 16;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

/// Where several begin like the text, they; else the nearest by spelling; else all.
std::string meant_text(const std::string& text, const std::vector<std::string>& known) {
  std::vector<std::string> alike;
  for (const std::string& name : known) {
    if (!text.empty() && name.starts_with(text)) alike.push_back(name);
  }
  if (alike.empty()) {
    if (const std::optional<std::string> near = nearest_name(text, known)) alike.push_back(*near);
  }
  if (alike.empty()) return fmt::format("use one of: {}", fmt::join(known, ", "));
  return fmt::format("did you mean {}?", fmt::join(alike, ", "));
}

std::vector<std::string> software_names() {
  std::vector<std::string> names;
  for (const runtime::Software& software : runtime::plan_constants().software) names.push_back(software.name);
  return names;
}

constexpr size_t kMostWorkloads = 2000;

std::vector<runtime::Workload> workloads_of(const po::variables_map& values) {
  std::vector<runtime::Workload> workloads = sweep_workloads(values);
  if (workloads.size() > kMostWorkloads) {
    throw UserError(fmt::format("{} workloads: more than anybody reads", workloads.size()),
                    "--batch, --prompt-tokens, --output-tokens", "use doubling lists, such as 1..256x2");
  }
  return workloads;
}

/// A path as it is; of a name that is no file the configuration, in capitals or not, or an error with the nearest.
std::string model_named(const std::string& model) {
  std::error_code ignored;
  if (model.find('/') != std::string::npos || std::filesystem::exists(model, ignored)) return model;
  return known_name(model, "--model", "model", runtime::named_configurations());
}

runtime::OpenOptions open_options(const po::variables_map& values) {
  runtime::OpenOptions open{.model = values.count("model") > 0 ? values["model"].as<std::string>() : "",
                            .headers_only = true};
  if (!open.model.empty()) open.model = model_named(open.model);
  const size_t dtype = parse_choice(values["dtype"].as<std::string>(), "--dtype", kDTypes);
  if (dtype > 0) open.dtype = kernels::dtype_named(kDTypes[dtype]);
  if (values.count("layers") > 0) {
    open.layers = values["layers"].as<int64_t>();
    check_range(*open.layers, "--layers", 1, 100'000);
  }
  return open;
}

/// Throws unless exactly one thing is asked for.
void check_asked(const PlanArguments& arguments) {
  const bool plans = !arguments.open.model.empty() || !arguments.gpu.empty() || !arguments.topology.empty();
  for (const auto& [given, option] :
       {std::pair(arguments.list, "--list"), std::pair(arguments.self_check, "--self-check")}) {
    if (!given) continue;
    if (plans || (arguments.list && arguments.self_check)) {
      throw UserError("this is asked for alone", option, "leave the other options out");
    }
    for (const auto& [file, other] :
         {std::pair(arguments.files.csv, "--csv"), std::pair(arguments.files.html, "--html")}) {
      if (!file.empty()) throw UserError(fmt::format("{} has no rows of points", option), other, "use --json FILE");
    }
    return;
  }
  if (arguments.open.model.empty()) {
    throw UserError("no model given", "--model",
                    "name a configuration such as llama2-70b, a folder, a .gguf file or a config.json");
  }
}

bool is_quantised(const runtime::OpenedModel& model) {
  return !model.config.quantisation.empty() && model.config.quantisation != "none";
}

runtime::PlanFormat format_of(const PlanArguments& arguments, const runtime::OpenedModel& model) {
  if (arguments.quantisation != "none" && is_quantised(model)) {
    throw UserError(fmt::format("its weights are quantised already ({})", model.config.quantisation),
                    fmt::format("--quant {}", arguments.quantisation), "leave --quant out, or name a plain checkpoint");
  }
  runtime::PlanFormat format = runtime::PlanFormat::quantised(arguments.quantisation, arguments.quantisation_group);
  if (arguments.kv_dtype == "fp8" || arguments.kv_dtype == "int8") {
    format.kv_name = arguments.kv_dtype;
    // int8 has a scale for each head of each position; fp8 is cast as it is.
    const double scale = arguments.kv_dtype == "int8" ? kScaleBits / static_cast<double>(model.config.head_dim) : 0;
    format.kv_bits = kByteBits + scale;
  }
  return format;
}

}  // namespace

std::string known_name(std::string_view text, std::string_view option, std::string_view kind,
                       const std::vector<std::string>& known) {
  const std::string name = lower(text);
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  throw UserError(fmt::format("'{}' is no {} that is known here", text, kind), option, meant_text(name, known));
}

po::options_description plan_option_list() {
  const std::string models = fmt::format("model: a Hugging Face folder, a .gguf file, a config.json, or one of {}",
                                         fmt::join(runtime::named_configurations(), ", "));
  const std::string families = fmt::format("whose constants: {} (see --list)", fmt::join(software_names(), ", "));
  po::options_description options("options");
  options.add_options()                                                             //
      ("model", po::value<std::string>()->value_name("PATH|NAME"), models.c_str())  //
      ("gpu", po::value<std::string>()->value_name("NAME"),
       "the GPU, such as a100-40gb (see --list); default: the topology's")  //
      ("topology", po::value<std::string>()->value_name("NAME|FILE"),
       "the machine: one of --list, or a file that topo --file reads; default: a board that the GPU is often found "
       "on")  //
      ("against", po::value<std::string>()->value_name("NAME|FILE"),
       "another machine, or another GPU: the same there, and in a paragraph what makes the difference")  //
      ("tp", po::value<std::string>()->value_name("LIST"),
       "tensor-parallel degrees: 1,2,4 or 1..8 or 1..8x2; default: 1, 2, 4, … and the machine's GPUs")  //
      ("pp", po::value<int64_t>()->default_value(1)->value_name("N"), "pipeline stages of each row")    //
      ("placement", po::value<std::string>()->default_value("best")->value_name("WHICH"),
       "which GPUs form a group: best, worst (by the links between them), linear (the first)")                        //
      ("batch", po::value<std::string>()->default_value("1")->value_name("LIST"), "sequences at once")                //
      ("prompt-tokens", po::value<std::string>()->default_value("512")->value_name("LIST"), "tokens of each prompt")  //
      ("output-tokens", po::value<std::string>()->default_value("128")->value_name("LIST"), "tokens generated")       //
      ("dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of weights and activations: auto (the file's; bf16 for configurations), fp32, fp16, bf16")  //
      ("quant", po::value<std::string>()->default_value("none")->value_name("SCHEME"),
       "the layers' weights quantised: none, int8, int4, nf4, fp8")  //
      ("quant-group", po::value<int64_t>()->value_name("N"),
       "weights that share a scale, of int8, int4 and fp8; default: 128 for int4, a row for the others")  //
      ("kv-dtype", po::value<std::string>()->default_value("auto")->value_name("TYPE"),
       "of the KV cache: auto (as activations), fp32, fp16, bf16, fp8, int8")                                    //
      ("layers", po::value<int64_t>()->value_name("N"), "cut the model to its first N layers")                   //
      ("software", po::value<std::string>()->default_value("shardscope")->value_name("NAME"), families.c_str())  //
      ("calibrate", po::value<std::vector<std::string>>()->multitoken()->composing()->value_name("FILE"),
       "your own measurements in the place of constants: reports of bench or scale on one of these GPUs, documents of "
       "comm, output of nccl-tests")  //
      ("slo-tpot-ms", po::value<double>()->value_name("MS"),
       "the most that a token may take: what gives most tokens per second within it")                            //
      ("json", po::value<std::string>()->value_name("FILE"), "write the document; - for standard output")        //
      ("csv", po::value<std::string>()->value_name("FILE"), "write a line for each row; - for standard output")  //
      ("html", po::value<std::string>()->value_name("FILE"),
       "write a page for a browser: plots, tables, the report")                                   //
      ("list", po::bool_switch(), "show the GPUs, machines, models and software that are known")  //
      ("self-check", po::bool_switch(),
       "predict what others published, and show how wrong that is; exit status 1 where a rule fails");
  add_run_options(options);
  return options;
}

PlanArguments plan_arguments(const po::variables_map& values, Session& session) {
  PlanArguments arguments{.open = open_options(values),
                          .gpu = file_named(values, "gpu"),
                          .topology = file_named(values, "topology"),
                          .against = file_named(values, "against")};
  arguments.verbose = run_options(values, session).verbose;
  if (values.count("tp") > 0) {
    for (const int64_t degree : parse_list(values["tp"].as<std::string>(), "--tp", 1, parallel::kMaxRanks)) {
      arguments.degrees.push_back(static_cast<int>(degree));
    }
  }
  check_range(values["pp"].as<int64_t>(), "--pp", 1, parallel::kMaxRanks);
  arguments.stages = static_cast<int>(values["pp"].as<int64_t>());
  arguments.workloads = workloads_of(values);
  arguments.placement = topology::kPlacements[parse_choice(values["placement"].as<std::string>(), "--placement",
                                                           topology::kPlacementNames)];
  arguments.quantisation = kQuantisations[parse_choice(values["quant"].as<std::string>(), "--quant", kQuantisations)];
  if (values.count("quant-group") > 0) {
    arguments.quantisation_group = values["quant-group"].as<int64_t>();
    check_range(arguments.quantisation_group, "--quant-group", 1, 65'536);
    if (arguments.quantisation == "none" || arguments.quantisation == "nf4") {
      throw UserError("only int8, int4 and fp8 have groups to choose", "--quant-group",
                      "add --quant int4, or leave it out");
    }
  }
  arguments.kv_dtype = kKvDTypes[parse_choice(values["kv-dtype"].as<std::string>(), "--kv-dtype", kKvDTypes)];
  arguments.software = known_name(values["software"].as<std::string>(), "--software", "software", software_names());
  if (values.count("slo-tpot-ms") > 0) {
    arguments.slo_tpot_ms = positive(values, "slo-tpot-ms", "number of milliseconds", "use e.g. 25");
  }
  if (values.count("calibrate") > 0) arguments.calibrate = values["calibrate"].as<std::vector<std::string>>();
  arguments.list = values["list"].as<bool>();
  arguments.self_check = values["self-check"].as<bool>();
  arguments.files = {.json = file_named(values, "json"),
                     .csv = file_named(values, "csv"),
                     .resume = "",
                     .html = file_named(values, "html")};
  check_files(arguments.files);
  check_inputs(arguments.files, values, {"config", "topology", "against"});
  for (const std::string& file : arguments.calibrate) {
    check_not_read(file, "--calibrate", {arguments.files.json, arguments.files.csv, arguments.files.html});
  }
  check_asked(arguments);
  return arguments;
}

runtime::PlanOptions plan_options(const PlanArguments& arguments, const runtime::OpenedModel& model) {
  check_lengths({.workloads = arguments.workloads}, model.config);
  if (arguments.stages > model.config.layers) {
    throw UserError(fmt::format("{} stages of {} layers", arguments.stages, model.config.layers), "--pp",
                    fmt::format("use up to {}", model.config.layers));
  }
  ModelOptions typed{.open = arguments.open};
  const bool plain_kv = arguments.kv_dtype == "fp32" || arguments.kv_dtype == "fp16" || arguments.kv_dtype == "bf16";
  if (plain_kv) typed.kv_dtype = kernels::dtype_named(arguments.kv_dtype);
  return {.degrees = {},
          .stages = arguments.stages,
          .workloads = arguments.workloads,
          .placement = arguments.placement,
          .format = format_of(arguments, model),
          .precision = precision_of(typed, model, /*on_devices=*/true),
          .software = arguments.software,
          .slo_tpot_ms = arguments.slo_tpot_ms};
}

std::vector<int> plan_degrees(const PlanArguments& arguments, const runtime::PlanMachine& machine) {
  const int most = machine.gpus() / arguments.stages;
  if (most < 1) {
    throw UserError(fmt::format("{} stages on {} GPU{} ({})", arguments.stages, machine.gpus(),
                                machine.gpus() == 1 ? "" : "s", machine.name),
                    "--pp", fmt::format("use up to {}", machine.gpus()));
  }
  if (arguments.degrees.empty()) {
    std::vector<int> degrees;
    for (int degree = 1; degree < most; degree *= 2) degrees.push_back(degree);
    degrees.push_back(most);
    return degrees;
  }
  if (arguments.degrees.back() > most) {
    const std::string stages = arguments.stages > 1 ? fmt::format(" x {} stages", arguments.stages) : "";
    throw UserError(fmt::format("TP {}{} needs more than the {} GPU{} of {}", arguments.degrees.back(), stages,
                                machine.gpus(), machine.gpus() == 1 ? "" : "s", machine.name),
                    "--tp", fmt::format("use degrees up to {}", most));
  }
  return arguments.degrees;
}

}  // namespace shardscope::launch
