// Which backend, and which device for each rank: what all ranks see is gathered, and each decides the same from it.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "kernels/cuda/device_choice.hpp"
#include "launch/engine.hpp"
#include "parallel/cuda_library.hpp"

namespace shardscope::launch {
namespace {

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

bool same_device(const cuda::DeviceFacts& a, const cuda::DeviceFacts& b) {
  return a.uuid.empty() || b.uuid.empty() ? a.pci_bus_id == b.pci_bus_id : a.uuid == b.uuid;
}

/// Of each device: its ordinal in that view, -1 where it is not in it.
std::vector<int> ordinals_seen(const RankView& view, const std::vector<cuda::DeviceFacts>& devices) {
  std::vector<int> ordinals;
  for (const cuda::DeviceFacts& device : devices) {
    const auto found = std::find_if(view.facts.begin(), view.facts.end(), [&](const cuda::DeviceFacts& own) {
      return own.refusal.empty() && same_device(own, device);
    });
    ordinals.push_back(found == view.facts.end() ? -1 : found->ordinal);
  }
  return ordinals;
}

}  // namespace

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
  BackendChoice choice{.on_devices = true, .why_none = {}, .device = ordinals[static_cast<size_t>(world.rank())]};
  for (size_t rank = 0; rank < views.size(); ++rank) {
    for (const cuda::DeviceFacts& facts : views[rank].facts) {
      if (facts.ordinal == ordinals[rank]) choice.facts.push_back(facts);
    }
  }
  require(choice.facts.size() == views.size(), "a device was chosen that nobody has");
  choice.ordinals = ordinals_seen(views[static_cast<size_t>(world.rank())], choice.facts);
  for (size_t rank = 0; rank < views.size(); ++rank) {
    const std::vector<int> seen = ordinals_seen(views[rank], choice.facts);
    if (std::count(seen.begin(), seen.end(), -1) > 0) choice.blind.push_back(static_cast<int>(rank));
  }
  return choice;
}

BackendChoice choose_backend(const ModelOptions& options, Session& session) {
  return choose_backend({.kind = options.backend,
                         .sums_on_hosts = sums_on_hosts(options.communicator),
                         .shared_devices = options.shared_devices,
                         .planned = options.dry_run},
                        session);
}

}  // namespace shardscope::launch
