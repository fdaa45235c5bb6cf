#include "launch/engine.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "kernels/cuda/backend_options.hpp"
#include "kernels/cuda/device_choice.hpp"
#include "parallel/cuda_library.hpp"
#include "runtime/measure/device_room.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

using kernels::DType;

/// A rank's view of its host's devices, as the ranks tell each other.
nlohmann::json view_json(const parallel::World& world, const cuda::DeviceProbe& probe) {
  const std::optional<std::string> visible = read_environment("CUDA_VISIBLE_DEVICES");
  nlohmann::json devices = nlohmann::json::array();
  for (const cuda::DeviceFacts& device : probe.devices) {
    devices.push_back({{"ordinal", device.ordinal},
                       {"name", device.name},
                       {"uuid", device.uuid},
                       {"pci_bus_id", device.pci_bus_id},
                       {"compute", {device.compute_major, device.compute_minor}},
                       {"memory_bytes", device.memory_bytes},
                       {"multiprocessors", device.multiprocessors},
                       {"l2_bytes", device.l2_bytes},
                       {"clock_khz", device.clock_khz},
                       {"memory_clock_khz", device.memory_clock_khz},
                       {"memory_bus_bits", device.memory_bus_bits},
                       {"refusal", device.refusal}});
  }
  return {{"host_rank", world.host_rank()},
          {"visible", visible ? nlohmann::json(*visible) : nlohmann::json(nullptr)},
          {"why_none", probe.why_none},
          {"devices", std::move(devices)}};
}

cuda::DeviceFacts facts_from(const nlohmann::json& device) {
  return {.ordinal = device.at("ordinal").get<int>(),
          .name = device.at("name").get<std::string>(),
          .uuid = device.at("uuid").get<std::string>(),
          .pci_bus_id = device.at("pci_bus_id").get<std::string>(),
          .compute_major = device.at("compute").at(0).get<int>(),
          .compute_minor = device.at("compute").at(1).get<int>(),
          .memory_bytes = device.at("memory_bytes").get<int64_t>(),
          .multiprocessors = device.at("multiprocessors").get<int>(),
          .l2_bytes = device.at("l2_bytes").get<int64_t>(),
          .clock_khz = device.at("clock_khz").get<int>(),
          .memory_clock_khz = device.at("memory_clock_khz").get<int>(),
          .memory_bus_bits = device.at("memory_bus_bits").get<int>(),
          .refusal = device.at("refusal").get<std::string>()};
}

struct RankView {
  cuda::RankDevices choice;
  std::vector<cuda::DeviceFacts> facts;  // of all devices that it sees
};

/// Collective: what every rank sees.
std::vector<RankView> gather_views(parallel::World& world, const cuda::DeviceProbe& probe) {
  const std::vector<std::string> all = world.all_gather_text(view_json(world, probe).dump(), "visible devices");
  std::vector<RankView> views;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const nlohmann::json view = nlohmann::json::parse(all[rank]);
    RankView result{.choice = {.host = world.hosts()[rank],
                               .host_rank = view.at("host_rank").get<int>(),
                               .visible_devices = std::nullopt,
                               .devices = {},
                               .why_none = view.at("why_none").get<std::string>()},
                    .facts = {}};
    if (!view.at("visible").is_null()) result.choice.visible_devices = view.at("visible").get<std::string>();
    for (const nlohmann::json& device : view.at("devices")) {
      const cuda::DeviceFacts facts = facts_from(device);
      if (facts.refusal.empty()) {
        result.choice.devices.push_back({.ordinal = facts.ordinal, .uuid = facts.uuid, .pci_bus_id = facts.pci_bus_id});
      }
      result.facts.push_back(facts);
    }
    views.push_back(std::move(result));
  }
  return views;
}

/// Of the whole model; what is quantised in blocks has no type of its own for activations.
bool block_quantised(const runtime::OpenedModel& model) {
  const std::vector<runtime::WeightId> weights = expected_weights(model.config);
  return std::any_of(weights.begin(), weights.end(), [&](const runtime::WeightId& id) {
    return kernels::facts(model.weights->dtype(id)).block_quantised;
  });
}

/// Throws UserError for options of the other kind of backend.
void check_choice(const ModelOptions& options, const runtime::OpenedModel& model, bool on_devices) {
  precision_of(options, model, on_devices);
  const std::string all_reduce(communicator_name(options.communicator));
  if (on_devices && sums_on_hosts(options.communicator)) {
    throw UserError("that sums in the hosts' memory, and the backend is cuda", "--allreduce " + all_reduce,
                    "use auto, nccl, nccl-symmetric, one-shot or two-shot, or --backend cpu");
  }
  if (on_devices && options.backend == BackendKind::kCuda) {
    for (const auto& [given, option] :
         {std::pair(options.threads.has_value(), "--threads"),
          std::pair(options.activations != kernels::ActivationMode::kAuto, "--cpu-activations")}) {
      if (given) {
        throw UserError("an option of the cpu backend, and the backend is cuda", option,
                        "leave it out, or use --backend cpu");
      }
    }
  }
  if (!on_devices && !options.graphs) {
    throw UserError("the cpu backend has no graphs", "--graphs off", "leave it out, or use --backend cuda");
  }
  if (!on_devices && sums_on_devices(options.communicator)) {
    throw UserError("that sums on GPUs, and the backend is cpu", "--allreduce " + all_reduce, "use auto, mpi or shm");
  }
}

Engine make_cpu_engine(const EngineRequest& request, const Place& place) {
  Engine engine;
  engine.backend =
      kernels::make_cpu_backend({.threads = place.threads, .cores = place.cores, .activations = request.activations});
  return engine;
}

Engine make_cuda_engine(const EngineRequest& request, const BackendChoice& choice, Session& session) {
  const parallel::CudaLibrary* library = parallel::cuda_library().library;
  require(library != nullptr, "devices were chosen without a library for them");
  parallel::World& world = session.world;
  Engine engine{.backend = nullptr,
                .on_device = {},
                .emulated = library->emulated,
                .graphs = request.graphs,
                .reserved_bytes = 0,
                .devices = {},
                .versions = library->versions()};
  world.progress("taking a device");
  const auto free_bytes = static_cast<double>(library->memory(choice.device).free_bytes);
  const std::vector<double> all = world.all_gather({&free_bytes, 1}, "free memory of the devices");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    engine.devices.push_back({.facts = choice.facts[rank], .free_bytes = static_cast<int64_t>(all[rank])});
  }
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  for (size_t rank = 0; rank < everyone.size(); ++rank) everyone[rank] = static_cast<int>(rank);
  const cuda::BackendOptions backend{
      .device = choice.device,
      .rank = world.size() > 1 ? world.rank() : -1,
      .precision = request.precision,
      .graphs = request.graphs,
      .wait = [&world, everyone](const std::function<bool()>& ready,
                                 const char* what) { world.wait(ready, what, everyone); },
      .look = [&world] { world.look(); }};
  engine.reserved_bytes = cuda::reserved_bytes(backend);
  engine.backend = library->make_backend(backend);
  engine.on_device = [library, device = engine.backend.get(), shared = request.shared_devices](
                         parallel::World& of, std::unique_ptr<parallel::Communicator> host,
                         const parallel::CommunicatorOptions& asked) {
    parallel::CommunicatorOptions sums = asked;
    sums.shared_devices = shared;
    return library->make_communicator(of, std::move(host), *device, sums);
  };
  return engine;
}

}  // namespace

std::vector<int64_t> Engine::free_bytes() const {
  std::vector<int64_t> bytes;
  for (const RankDevice& device : devices) bytes.push_back(device.free_bytes);
  return bytes;
}

kernels::Precision precision_of(const ModelOptions& options, const runtime::OpenedModel& model, bool on_devices) {
  if (!on_devices) {
    if (options.kv_dtype && *options.kv_dtype != DType::kF32) {
      throw UserError(
          fmt::format("the cpu backend keeps its KV cache in fp32, not {}", kernels::facts(*options.kv_dtype).name),
          "--kv-dtype", "use auto or fp32");
    }
    return {};
  }
  const DType own = block_quantised(model) ? DType::kF16 : model.dtype;
  const DType activations = options.open.dtype.value_or(own);
  return {.activations = activations, .kv = options.kv_dtype.value_or(activations)};
}

BackendChoice choose_backend(const BackendRequest& request, Session& session) {
  if (request.kind == BackendKind::kCpu) return {};
  if (request.kind == BackendKind::kAuto && request.sums_on_hosts) {
    BackendChoice host;
    host.why_none = "--allreduce names sums of the cpu backend";
    return host;
  }
  if (request.planned && request.kind == BackendKind::kCuda) {
    BackendChoice planned;
    planned.on_devices = true;
    return planned;
  }
  parallel::World& world = session.world;
  world.progress("looking for devices");
  const parallel::CudaLibraryResult opened = parallel::cuda_library();
  cuda::DeviceProbe probe{.why_none = opened.why_none};
  if (opened.library != nullptr) probe = opened.library->probe(read_environment("CUDA_VISIBLE_DEVICES"));
  const std::vector<RankView> views = gather_views(world, probe);
  for (size_t rank = 0; rank < views.size(); ++rank) {
    const cuda::RankDevices& view = views[rank].choice;
    if (view.why_none.empty() && !view.devices.empty()) continue;
    const std::string where = world.size() > 1 ? fmt::format("rank {} on {}: ", rank, view.host) : std::string();
    const std::string why = view.why_none.empty() ? "no device that can be used" : view.why_none;
    if (request.kind == BackendKind::kCuda) {
      throw UserError(fmt::format("{}{}", where, why), "--backend cuda", "or use --backend cpu");
    }
    BackendChoice none;
    none.why_none = where + why;
    return none;
  }
  std::vector<cuda::RankDevices> ranks;
  for (const RankView& view : views) ranks.push_back(view.choice);
  const std::vector<int> ordinals =
      choose_devices(ranks, {.group_size = world.size(), .oversubscribe = request.shared_devices});
  BackendChoice choice{
      .on_devices = true, .why_none = {}, .device = ordinals[static_cast<size_t>(world.rank())], .facts = {}};
  for (size_t rank = 0; rank < views.size(); ++rank) {
    for (const cuda::DeviceFacts& facts : views[rank].facts) {
      if (facts.ordinal == ordinals[rank]) choice.facts.push_back(facts);
    }
  }
  require(choice.facts.size() == views.size(), "a device was chosen that nobody has");
  return choice;
}

BackendChoice choose_backend(const ModelOptions& options, Session& session) {
  return choose_backend({.kind = options.backend,
                         .sums_on_hosts = sums_on_hosts(options.communicator),
                         .shared_devices = options.shared_devices,
                         .planned = options.dry_run},
                        session);
}

Engine make_engine(const EngineRequest& request, const BackendChoice& choice, const Place& place, Session& session) {
  Engine engine = choice.on_devices ? make_cuda_engine(request, choice, session) : make_cpu_engine(request, place);
  if (!request.quiet) {
    const std::string why = choice.why_none.empty() ? "" : fmt::format(" (no GPU: {})", choice.why_none);
    session.note(fmt::format("backend: {}{}", engine.backend->description(), why));
  }
  if (engine.emulated) session.note("the devices are emulated: times say nothing");
  return engine;
}

Engine make_engine(const ModelOptions& options, const runtime::OpenedModel& model, const BackendChoice& choice,
                   const Place& place, Session& session) {
  check_choice(options, model, choice.on_devices);
  Engine engine = make_engine({.precision = precision_of(options, model, choice.on_devices),
                               .graphs = options.graphs,
                               .shared_devices = options.shared_devices,
                               .activations = options.activations,
                               .quiet = options.quiet()},
                              choice, place, session);
  if (engine.on_devices() && (options.threads || options.activations != kernels::ActivationMode::kAuto)) {
    session.note("--threads and --cpu-activations are for the cpu backend: not used");
  }
  return engine;
}

void refuse_too_large(const runtime::OpenedModel& model, const parallel::ShardPlan& plan,
                      const runtime::DecoderOptions& options, const Engine& engine, const Place& place,
                      const Session& session) {
  constexpr const char* kRemedy = "use a smaller or quantised model, --layers, or fewer --max-tokens";
  if (engine.on_devices()) {
    const std::vector<int64_t> free_bytes = engine.free_bytes();
    const runtime::DeviceRoom room = tightest_room(model, plan, options, free_bytes, engine.reserved_bytes);
    if (room.lacks()) throw UserError(room.text(), model.config.name, fmt::format("{}, or a higher --tp", kRemedy));
    return;
  }
  if (place.host.memory_bytes <= 0 || !session.world.one_host()) return;
  const int64_t needed = planned_group_bytes(model.config, *model.weights, plan, options);
  if (needed <= place.host.memory_bytes) return;
  throw UserError(fmt::format("the model needs {}, this host has {}", runtime::bytes_text(static_cast<double>(needed)),
                              runtime::bytes_text(static_cast<double>(place.host.memory_bytes))),
                  model.config.name, kRemedy);
}

}  // namespace shardscope::launch
