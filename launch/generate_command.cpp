// shardscope generate: prompts in, streamed text out.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/config_file.hpp"
#include "launch/engine.hpp"
#include "launch/host_topology.hpp"
#include "launch/model_options.hpp"
#include "launch/output.hpp"
#include "launch/prompts.hpp"
#include "launch/session.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/measure/statistics.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/report_file.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

constexpr int64_t kMostTokens = 1 << 24;

struct GenerateArguments {
  ModelOptions model;
  PromptOptions prompts;
  int tp = 1;
  int64_t max_tokens = 0;
  runtime::SamplingOptions sampling;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  int64_t top_logits = 0;
  std::string json;  // empty: none; "-": standard output
};

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()                                                                                         //
      ("prompt", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"), "prompt; repeatable")  //
      ("prompt-file", po::value<std::string>()->value_name("FILE"),
       "one prompt: a whole file, - for standard input")  //
      ("prompt-ids", po::value<std::vector<std::string>>()->composing()->value_name("LIST"),
       "prompt as token ids: 1,2,3; repeatable")                                                                   //
      ("special", po::bool_switch(), "special tokens typed in a prompt are parsed; else they are plain text")      //
      ("max-tokens", po::value<int64_t>()->default_value(128)->value_name("N"), "new tokens at most, per prompt")  //
      ("temperature", po::value<double>()->default_value(0)->value_name("T"), "0: greedy")                         //
      ("top-k", po::value<int64_t>()->default_value(0)->value_name("K"), "draw from the K likeliest; 0: all")      //
      ("top-p", po::value<double>()->default_value(1)->value_name("P"),
       "draw from the likeliest that reach this probability; 1: all")  //
      ("min-p", po::value<double>()->default_value(0)->value_name("P"),
       "drop tokens below this share of the likeliest; 0: none")  //
      ("repetition-penalty", po::value<double>()->default_value(1)->value_name("R"),
       "above 1: repeat less; 1: none")  //
      ("stop", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"),
       "end before this text; repeatable")                         //
      ("ignore-eos", po::bool_switch(), "go on after end tokens")  //
      ("top-logits", po::value<int64_t>()->default_value(0)->value_name("K"),
       "report the K largest logits before each token (with --json)")                            //
      ("tp", po::value<int64_t>()->value_name("N"), "ranks that share the model; default: all")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write ids, text and timing; - for standard output");
  add_model_options(options);
  return options;
}

GenerateArguments arguments_of(const po::variables_map& values, Session& session) {
  GenerateArguments arguments{.model = model_options(values, session)};
  const auto texts = [&](const char* name) {
    return values.count(name) > 0 ? values[name].as<std::vector<std::string>>() : std::vector<std::string>{};
  };
  arguments.prompts = {
      .texts = texts("prompt"), .id_lists = texts("prompt-ids"), .parse_specials = values["special"].as<bool>()};
  if (values.count("prompt-file") > 0) arguments.prompts.file = values["prompt-file"].as<std::string>();
  arguments.prompts.alive = [&] { session.world.progress("reading standard input"); };
  arguments.max_tokens = values["max-tokens"].as<int64_t>();
  check_range(arguments.max_tokens, "--max-tokens", 0, kMostTokens);
  arguments.sampling = {.temperature = values["temperature"].as<double>(),
                        .top_k = values["top-k"].as<int64_t>(),
                        .top_p = values["top-p"].as<double>(),
                        .min_p = values["min-p"].as<double>(),
                        .repetition_penalty = values["repetition-penalty"].as<double>(),
                        .seed = arguments.model.open.seed};
  arguments.sampling.validate();
  for (const char* name : {"top-k", "top-p", "min-p"}) {
    if (arguments.sampling.greedy() && !values[name].defaulted()) {
      session.note(fmt::format("--{} has no effect at --temperature 0 (greedy)", name));
    }
  }
  arguments.stops = texts("stop");
  for (const std::string& stop : arguments.stops) {
    if (stop.empty()) throw UserError("empty stop text", "--stop", "write a text");
  }
  arguments.ignore_eos = values["ignore-eos"].as<bool>();
  arguments.top_logits = values["top-logits"].as<int64_t>();
  check_range(arguments.top_logits, "--top-logits", 0, 4096);
  if (values.count("json") > 0) arguments.json = values["json"].as<std::string>();
  if (arguments.top_logits > 0 && arguments.json.empty()) {
    throw UserError("the logits are part of the document alone", "--top-logits", "add --json FILE");
  }
  const int64_t tp = values.count("tp") > 0 ? values["tp"].as<int64_t>() : session.world.size();
  check_range(tp, "--tp", 1, parallel::kMaxRanks);
  if (tp > session.world.size() && !arguments.model.dry_run) {
    throw UserError(
        fmt::format("{} rank{} started, --tp {}", session.world.size(), session.world.size() == 1 ? "" : "s", tp),
        "command line",
        fmt::format("start more ranks (mpirun -np {0} …) or use --tp {1} or less", tp, session.world.size()));
  }
  arguments.tp = static_cast<int>(tp);
  return arguments;
}

/// One request on its way to the user: bytes out as soon as they are safe to show.
struct TextStream {
  runtime::StreamDecoder decoder;
  std::string text;
};

/// New tokens that a prompt leaves room for. Throws UserError with both numbers when it does not fit at all.
int64_t room_for(const Prompt& prompt, int64_t max_tokens, const runtime::ModelConfig& config, Session& session) {
  const auto length = static_cast<int64_t>(prompt.ids.size());
  if (length > config.max_positions) {
    throw UserError(fmt::format("the prompt has {} tokens, the model's context has {}", length, config.max_positions),
                    prompt.source, "shorten the prompt");
  }
  const int64_t room = config.max_positions - length;
  if (max_tokens > room) {
    session.note(fmt::format("the prompt's {} tokens leave room for {} new tokens of the model's context of {}", length,
                             room, config.max_positions));
  }
  return std::min(max_tokens, room);
}

struct Output {
  std::vector<Prompt> prompts;  // rank 0 only
  std::vector<runtime::GenerationResult> results;
  std::vector<std::optional<std::string>> texts;
  double tokenise_ms = 0;
  double load_seconds = 0;
  kernels::Precision precision;
};

std::string summary(const Output& output, int tp) {
  int64_t tokens = 0;
  double end_ms = 0;
  for (const runtime::GenerationResult& result : output.results) {
    tokens += static_cast<int64_t>(result.output_ids.size());
    if (!result.token_times_ms.empty()) end_ms = std::max(end_ms, result.token_times_ms.back());
  }
  const auto text = [](const std::optional<double>& ms) { return ms ? fmt::format("{:.1f} ms", *ms) : "n/a"; };
  std::string figures = end_ms > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / end_ms * 1e3) : "n/a";
  if (output.results.size() == 1) {  // of several, each has its own in the document
    const runtime::GenerationTimes times = runtime::generation_times(output.results.front().token_times_ms);
    figures = fmt::format("TTFT {}, TPOT {}, {}", text(times.ttft_ms), text(times.tpot_ms), figures);
  }
  return fmt::format("{} token{} at tp {}: {} (load {:.2f} s, tokenising {:.1f} ms)", tokens, tokens == 1 ? "" : "s",
                     tp, figures, output.load_seconds, output.tokenise_ms);
}

runtime::Json generate_json(const Output& output, const runtime::OpenedModel& model, int tp) {
  const auto number = [](const std::optional<double>& value) {
    return value ? runtime::Json(*value) : runtime::Json(nullptr);
  };
  runtime::Json requests = runtime::Json::array();
  for (size_t i = 0; i < output.results.size(); ++i) {
    const runtime::GenerationResult& result = output.results[i];
    const runtime::GenerationTimes times = runtime::generation_times(result.token_times_ms);
    runtime::Json top = runtime::Json::array();
    for (const auto& step : result.top_logits) {
      runtime::Json row = runtime::Json::array();
      for (const kernels::Candidate& candidate : step) {
        row.push_back(runtime::Json::array({candidate.token_id, candidate.logit}));
      }
      top.push_back(std::move(row));
    }
    const auto optional_text = [](const std::optional<std::string>& text) {
      return text ? runtime::Json(*text) : runtime::Json(nullptr);
    };
    requests.push_back({{"prompt", optional_text(output.prompts[i].text)},
                        {"prompt_token_ids", output.prompts[i].ids},
                        {"output_token_ids", result.output_ids},
                        {"text", optional_text(output.texts[i])},
                        {"finish_reason", result.finish_reason == runtime::FinishReason::kStop ? "stop" : "length"},
                        {"ttft_ms", number(times.ttft_ms)},
                        {"tpot_ms", number(times.tpot_ms)},
                        {"latency_ms", number(times.latency_ms)},
                        {"top_logits", std::move(top)}});
  }
  // Of one request; with several, each has its own figures, and there is no one TPOT.
  const runtime::GenerationTimes times = output.results.size() == 1
                                             ? runtime::generation_times(output.results.front().token_times_ms)
                                             : runtime::GenerationTimes{};
  return {{"schema", "shardscope.generate/1"},
          {"model", runtime::model_json(model, output.precision)},
          {"tp", tp},
          {"requests", std::move(requests)},
          {"timing",
           {{"load_seconds", output.load_seconds},
            {"tokenise_ms", output.tokenise_ms},
            {"ttft_ms", number(times.ttft_ms)},
            {"tpot_ms", number(times.tpot_ms)},
            {"latency_ms", number(times.latency_ms)}}}};
}

/// KV cache and step sizes that hold all requests.
runtime::DecoderOptions decoder_options(const std::vector<runtime::GenerationRequest>& requests,
                                        const kernels::Precision& precision) {
  runtime::DecoderOptions shape{
      .slots = static_cast<int64_t>(requests.size()), .max_positions = 1, .precision = precision};
  int64_t prompt_tokens = 0;
  for (const runtime::GenerationRequest& request : requests) {
    const auto length = static_cast<int64_t>(request.prompt_ids.size());
    prompt_tokens += length;
    shape.max_positions = std::max(shape.max_positions, length + std::max<int64_t>(request.max_tokens - 1, 0));
  }
  constexpr int64_t kStepTokens = 512;
  shape.max_step_tokens = std::max(std::min(kStepTokens, prompt_tokens), shape.slots);
  return shape;
}

void run_group(const GenerateArguments& arguments, const runtime::OpenedModel& model,
               const std::vector<runtime::GenerationRequest>& requests, const runtime::Tokenizer* tokenizer,
               const Engine& engine, const Place& place, Session& session, Output& output) {
  kernels::Backend& backend = *engine.backend;
  runtime::DecoderOptions shape = decoder_options(requests, backend.precision());
  shape.valid_vocab = valid_vocabulary(model);
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), arguments.tp);
  refuse_too_large(model, plan, shape, engine, place, session);
  const int64_t widest = engine.on_devices() ? 0 : largest_all_reduce_floats(model.config, shape);
  const std::vector<int64_t> messages =
      all_reduce_bytes(model.config, backend, std::array{shape.slots}, std::array{shape.max_step_tokens});
  const auto communicator = parallel::make_communicator(
      session.world, {.group_size = arguments.tp,
                      .kind = arguments.model.communicator,
                      .max_floats = std::max(widest, runtime::Sampler::max_exchange_floats(shape.slots)),
                      .oversubscribed = group_place(session.world, place, arguments.tp).oversubscribed,
                      .on_device = engine.on_device,
                      .message_bytes = messages});
  const runtime::RankContext context{backend, *communicator, session.world};
  output.precision = backend.precision();
  if (!arguments.model.quiet()) session.note("loading weights");
  const runtime::Clock::time_point start = runtime::Clock::now();
  runtime::Decoder decoder(model.config, *model.weights, plan, shape, context);
  output.load_seconds = std::chrono::duration<double>(runtime::Clock::now() - start).count();
  runtime::Sampler sampler(backend, *communicator, decoder.vocab_range(), valid_vocabulary(model), shape.slots);

  const bool streaming = session.speaks() && requests.size() == 1 && arguments.json != "-";
  std::vector<TextStream> streams;
  for (size_t i = 0; i < requests.size(); ++i) streams.push_back({runtime::StreamDecoder(arguments.stops), ""});
  const auto show = [&](size_t request, const std::string& bytes) {
    if (streaming) write_out(bytes);
    streams[request].text += bytes;
  };
  runtime::GenerateOptions options{.top_logits = arguments.top_logits, .callback_may_stop = !arguments.stops.empty()};
  if (tokenizer != nullptr) {
    options.on_token = [&](size_t request, int32_t id) {
      show(request, streams[request].decoder.push(tokenizer->token_bytes(id)));
      return streams[request].decoder.stopped();
    };
  }
  output.results = generate_batch(decoder, sampler, context, requests, options);
  for (size_t i = 0; i < requests.size(); ++i) {
    show(i, streams[i].decoder.flush());
    output.texts.push_back(tokenizer != nullptr ? std::optional(streams[i].text) : std::nullopt);
  }
}

void print_texts(const Output& output) {
  for (size_t i = 0; i < output.results.size(); ++i) {
    if (output.results.size() > 1) write_out(fmt::format("--- prompt {}\n", i + 1));
    if (output.texts[i]) {
      if (output.results.size() > 1) write_out(*output.texts[i] + "\n");  // one prompt was streamed
    } else {
      write_out(fmt::format("{}\n", fmt::join(output.results[i].output_ids, ",")));
    }
  }
}

/// The plan for the prompts given, or for one prompt of one token.
void print_plan(const GenerateArguments& arguments, const runtime::OpenedModel& model,
                std::vector<runtime::GenerationRequest> requests, const kernels::Precision& precision,
                Session& session) {
  if (!session.speaks()) return;
  if (requests.empty()) requests.push_back({.prompt_ids = {0}, .max_tokens = arguments.max_tokens});
  const runtime::Workload workload{.batch = static_cast<int64_t>(requests.size()),
                                   .prompt_tokens = static_cast<int64_t>(requests.front().prompt_ids.size()),
                                   .output_tokens = requests.front().max_tokens};
  const runtime::DecoderOptions shape = decoder_options(requests, precision);
  const std::vector<int> degrees = {arguments.tp};
  const std::string document = runtime::document_text(shards_json(model, degrees, workload, shape));
  if (arguments.json == "-") {
    write_out(document);
    return;
  }
  if (!arguments.json.empty()) report_file(arguments.json, arguments.model).finish(document);
  write_out(shards_table(model, degrees, workload, shape));
}

}  // namespace

int generate_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = option_list();
  const Settings settings = command_settings(options, words, "generate", session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) {
      write_out(help_text(
          "generate", "Runs prompts and streams text to standard output; everything else goes to standard error.",
          options, "shardscope generate --model model.gguf --prompt 'The capital of France is' --max-tokens 32"));
    }
    return 0;
  }
  const GenerateArguments arguments = settings.with_origins([&] { return arguments_of(settings.values, session); });
  const runtime::OpenedModel model = open_model_noted(arguments.model, session);
  if (!arguments.stops.empty() && !model.tokenizer) {
    throw UserError("this model has no tokenizer, so that no text can be met", "--stop", "leave it out");
  }
  std::optional<runtime::ReportFile> file;
  if (session.speaks() && !arguments.json.empty() && arguments.json != "-") {
    file.emplace(report_file(arguments.json, arguments.model));
  }
  Output output;
  std::optional<runtime::Tokenizer> tokenizer;
  std::vector<std::vector<int32_t>> to_share;  // per request: prompt ids, then the number of new tokens
  if (session.speaks()) {
    if (model.tokenizer) tokenizer.emplace(*model.tokenizer);
    const runtime::Clock::time_point start = runtime::Clock::now();
    if (!arguments.model.dry_run || !arguments.prompts.empty()) {
      output.prompts = encode_prompts(arguments.prompts, tokenizer ? &*tokenizer : nullptr, model.config);
    }
    output.tokenise_ms = std::chrono::duration<double, std::milli>(runtime::Clock::now() - start).count();
    for (const Prompt& prompt : output.prompts) {
      to_share.push_back(prompt.ids);
      to_share.back().push_back(static_cast<int32_t>(room_for(prompt, arguments.max_tokens, model.config, session)));
    }
  }
  std::vector<runtime::GenerationRequest> requests;
  for (std::vector<int32_t>& ids : share_ids(session, to_share)) {
    const int32_t max_tokens = ids.back();
    ids.pop_back();
    requests.push_back({.prompt_ids = std::move(ids),
                        .max_tokens = max_tokens,
                        .sampling = arguments.sampling,
                        .stop_ids = arguments.ignore_eos ? std::vector<int32_t>{} : model.config.eos_ids});
  }
  const BackendChoice choice = choose_backend(arguments.model, session);
  if (arguments.model.dry_run) {
    const kernels::Precision precision = precision_of(arguments.model, model, choice.on_devices);
    print_plan(arguments, model, std::move(requests), precision, session);
    return 0;
  }
  const Place place = take_place(session, arguments.model.threads, choice);
  for (const std::string& warning : place.warnings) session.note(fmt::format("warning: {}", warning));
  const Engine engine = make_engine(arguments.model, model, choice, place, session);
  if (session.world.rank() >= arguments.tp) session.world.progress("idle, not in the group");
  if (session.world.rank() < arguments.tp) {
    run_group(arguments, model, requests, tokenizer ? &*tokenizer : nullptr, engine, place, session, output);
  }
  if (session.speaks()) {
    if (arguments.json == "-") {
      write_out(runtime::document_text(generate_json(output, model, arguments.tp)));
    } else {
      print_texts(output);
      if (file) file->finish(runtime::document_text(generate_json(output, model, arguments.tp)));
    }
    if (!arguments.model.quiet()) session.note("\n" + summary(output, arguments.tp));
  }
  session.world.barrier("end of generation");
  return 0;
}

}  // namespace shardscope::launch
