// What a command computes with: the backend of this rank, on the CPU or on a device of its own, and what follows from
// that choice for communicators, memory and reports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/device_facts.hpp"
#include "launch/model_options.hpp"
#include "launch/session.hpp"
#include "parallel/communicator.hpp"
#include "runtime/measure/sweep.hpp"
#include "runtime/model/open_model.hpp"

namespace shardscope::launch {

/// A rank's device, as every rank knows it.
struct RankDevice {
  cuda::DeviceFacts facts;
  int64_t free_bytes = 0;  // with a context on it, before anything else
};

struct Engine {
  std::unique_ptr<kernels::Backend> backend;
  parallel::OnDevice on_device;                 // empty on the CPU
  bool emulated = false;                        // on stand-ins for devices
  bool graphs = true;                           // decode steps are recorded, on devices
  int64_t reserved_bytes = 0;                   // of a device, what the backend takes for itself
  std::vector<RankDevice> devices;              // of each rank; empty on the CPU
  std::map<std::string, std::string> versions;  // of the libraries that devices need, by name

  bool on_devices() const { return !devices.empty(); }
  std::vector<int64_t> free_bytes() const;  // of each rank's device
};

/// Element types of activations and KV cache with that backend: fp32 on the CPU; on a device what --dtype and
/// --kv-dtype say, or the model's: that of its unquantised weights, fp16 for block-quantised ones. Throws UserError for
/// a type that the backend does not have.
kernels::Precision precision_of(const ModelOptions& options, const runtime::OpenedModel& model, bool on_devices);

/// Whether --backend means devices; collective, the same on every rank, and cheap: nothing is put on a device. Throws
/// UserError if devices were asked for and a rank has none, or if ranks would share one.
struct BackendChoice {
  bool on_devices = false;
  std::string why_none;                  // with --backend auto: why there are no devices
  int device = -1;                       // of this rank
  std::vector<cuda::DeviceFacts> facts;  // of each rank's device
  std::vector<int> ordinals;             // of each rank's device, as this rank numbers it; -1: it does not see it
  std::vector<int> blind;                // ranks that do not see the devices of all
};
struct BackendRequest {  // of a command, with or without a model
  BackendKind kind = BackendKind::kAuto;
  bool sums_on_hosts = false;   // asked for by name: with kAuto no devices are taken
  bool shared_devices = false;  // ranks may share one
  bool planned = false;         // with kCuda: of devices that need not be here
};
BackendChoice choose_backend(const BackendRequest& request, Session& session);
BackendChoice choose_backend(const ModelOptions& options, Session& session);

/// The backend of this rank. Collective. Notes which and why.
struct EngineRequest {
  kernels::Precision precision;  // on devices
  bool graphs = true;            // on devices
  bool shared_devices = false;
  kernels::ActivationMode activations = kernels::ActivationMode::kAuto;  // on the CPU
  bool quiet = false;
  bool moves = false;              // ranks go to other places later (remake_backend)
  std::vector<int> later_devices;  // then: the devices that this one goes to, as it numbers them
};
Engine make_engine(const EngineRequest& request, const BackendChoice& choice, const Place& place, Session& session);
Engine make_engine(const ModelOptions& options, const runtime::OpenedModel& model, const BackendChoice& choice,
                   const Place& place, Session& session);
/// What the options ask of it. Throws UserError for those of the other kind of backend; notes those that are not used.
EngineRequest engine_request(const ModelOptions& options, const runtime::OpenedModel& model,
                             const BackendChoice& choice, const Session& session);

/// For a rank that goes to another place, between two groups: ends its backend, then makes it anew there, on that
/// device or on the place's cores.
void end_backend(Engine& engine);
void remake_backend(Engine& engine, const EngineRequest& request, int device, const Place& place, Session& session);

/// Throws UserError, which says how much is missing where, unless the shards fit their devices, or this host's memory.
void refuse_too_large(const runtime::OpenedModel& model, const parallel::ShardPlan& plan,
                      const runtime::DecoderOptions& options, const Engine& engine, const Place& place,
                      const Session& session);

}  // namespace shardscope::launch
