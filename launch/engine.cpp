#include "launch/engine.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/backend_options.hpp"
#include "parallel/cuda_library.hpp"
#include "runtime/measure/device_room.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

using kernels::DType;

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

std::unique_ptr<kernels::Backend> cpu_backend(const EngineRequest& request, const Place& place) {
  return kernels::make_cpu_backend(
      {.threads = place.threads, .cores = place.cores, .activations = request.activations});
}

cuda::BackendOptions device_options(const EngineRequest& request, int device, Session& session) {
  parallel::World& world = session.world;
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return {.device = device,
          .rank = world.size() > 1 ? world.rank() : -1,
          .precision = request.precision,
          .graphs = request.graphs,
          .wait = [&world, everyone](const std::function<bool()>& ready,
                                     const char* what) { world.wait(ready, what, everyone); },
          .look = [&world] { world.look(); }};
}

/// The backend on that device, and the sums that go with it.
void start_on_device(Engine& engine, const EngineRequest& request, int device, Session& session) {
  const parallel::CudaLibrary* library = parallel::cuda_library().library;
  require(library != nullptr, "devices were chosen without a library for them");
  engine.backend = library->make_backend(device_options(request, device, session));
  engine.on_device = [library, backend = engine.backend.get(), shared = request.shared_devices](
                         parallel::World& of, std::unique_ptr<parallel::Communicator> host,
                         const parallel::CommunicatorOptions& asked) {
    parallel::CommunicatorOptions sums = asked;
    sums.shared_devices = shared;
    return library->make_communicator(of, std::move(host), *backend, sums);
  };
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
  if (request.moves) {
    // What a context takes of a device stays taken when its rank has gone on: all are made before free memory is read.
    for (const int device : request.later_devices) library->memory(device);
    world.barrier("contexts on all devices");
  }
  const auto free_bytes = static_cast<double>(library->memory(choice.device).free_bytes);
  const std::vector<double> all = world.all_gather({&free_bytes, 1}, "free memory of the devices");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    engine.devices.push_back({.facts = choice.facts[rank], .free_bytes = static_cast<int64_t>(all[rank])});
  }
  engine.reserved_bytes = cuda::reserved_bytes(device_options(request, choice.device, session));
  start_on_device(engine, request, choice.device, session);
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

Engine make_engine(const EngineRequest& request, const BackendChoice& choice, const Place& place, Session& session) {
  Engine engine;
  if (choice.on_devices) {
    engine = make_cuda_engine(request, choice, session);
  } else {
    engine.backend = cpu_backend(request, place);
  }
  if (!request.quiet) {
    const std::string why = choice.why_none.empty() ? "" : fmt::format(" (no GPU: {})", choice.why_none);
    session.note(fmt::format("backend: {}{}", engine.backend->description(), why));
  }
  if (engine.emulated) session.note("the devices are emulated: times say nothing");
  return engine;
}

Engine make_engine(const ModelOptions& options, const runtime::OpenedModel& model, const BackendChoice& choice,
                   const Place& place, Session& session) {
  return make_engine(engine_request(options, model, choice, session), choice, place, session);
}

EngineRequest engine_request(const ModelOptions& options, const runtime::OpenedModel& model,
                             const BackendChoice& choice, const Session& session) {
  check_choice(options, model, choice.on_devices);
  if (choice.on_devices && (options.threads || options.activations != kernels::ActivationMode::kAuto)) {
    session.note("--threads and --cpu-activations are for the cpu backend: not used");
  }
  return {.precision = precision_of(options, model, choice.on_devices),
          .graphs = options.graphs,
          .shared_devices = options.shared_devices,
          .activations = options.activations,
          .quiet = options.quiet()};
}

void end_backend(Engine& engine) {
  engine.on_device = {};  // it names the backend
  engine.backend.reset();
}

void remake_backend(Engine& engine, const EngineRequest& request, int device, const Place& place, Session& session) {
  if (engine.on_devices()) {
    start_on_device(engine, request, device, session);
  } else {
    engine.backend = cpu_backend(request, place);
  }
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
