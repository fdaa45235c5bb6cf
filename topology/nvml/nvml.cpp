// Opening NVML, and what it says of the machine and of pairs of GPUs. One GPU alone: nvml_gpu.cpp.
#include "topology/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "topology/nvml/nvml_library.hpp"

namespace shardscope::topology {
namespace {

using namespace nvml_api;  // NOLINT(google-build-using-namespace): the library's names

constexpr unsigned kMostGpus = 64;

/// What a person can do about a library that does not start.
std::string remedy(Return result) {
  switch (result) {
    case kDriverNotLoaded:
      return "load the NVIDIA driver (modprobe nvidia; dmesg says why it does not load)";
    case kVersionMismatch:
      return "driver and library are of different versions: reboot after an upgrade of the driver";
    case kNoPermission:
    case kOperatingSystem:
      return "allow this user the devices /dev/nvidia*";
    default:
      return "see whether nvidia-smi works";
  }
}

std::string peer_word(std::optional<unsigned> status) {
  if (!status) return "";
  switch (*status) {
    case kPeerOk:
      return "OK";
    case kPeerChipset:
      return "CNS";
    case kPeerGpu:
      return "GNS";
    case kPeerTopology:
      return "TNS";
    case kPeerRegistry:
      return "DR";
    case kPeerNotSupported:
      return "NS";
    case kPeerUnknown:
      return "U";
    default:
      return "";
  }
}

}  // namespace

Nvml::Library::Library(void* opened) : handle(opened) {
  visit_functions(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
  });
}

Nvml::Library::~Library() {
  if (initialised && functions.shutdown != nullptr) functions.shutdown();
  dlclose(handle);
}

std::string Nvml::Library::error_text(Return result) const {
  if (functions.error_string != nullptr) {
    const char* const text = functions.error_string(result);
    if (text != nullptr && *text != '\0') return text;
  }
  return fmt::format("NVML error {}", result);
}

Device Nvml::Library::device(int position) const {
  if (position < 0 || position >= static_cast<int>(gpus.size())) return nullptr;
  return gpus[static_cast<size_t>(position)].device;
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

std::unique_ptr<Nvml> Nvml::open(std::string& why_not, const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = dlerror();
    why_not = fmt::format("the NVIDIA driver's library cannot be opened ({})", error == nullptr ? library : error);
    return nullptr;
  }
  auto it = std::make_unique<Library>(opened);
  const Return started = call(it->functions.init);
  if (started != kSuccess) {
    why_not = fmt::format("{} does not start: {}; {}", library, it->error_text(started), remedy(started));
    return nullptr;
  }
  it->initialised = true;
  const std::optional<unsigned> count = ask<unsigned>(it->functions.count);
  if (!count) {
    why_not = fmt::format("{} does not count the GPUs; {}", library, remedy(kUnknown));
    return nullptr;
  }
  it->gpus.resize(std::min(*count, kMostGpus));
  for (unsigned i = 0; i < it->gpus.size(); ++i) {
    Library::Gpu& gpu = it->gpus[i];
    gpu.result = call(it->functions.handle, i, &gpu.device);
    if (gpu.result != kSuccess) gpu.device = nullptr;
  }
  why_not.clear();
  return std::unique_ptr<Nvml>(new Nvml(std::move(it)));
}

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 128> text{};
  if (call(library_->functions.driver_version, text.data(), static_cast<unsigned>(text.size())) != kSuccess) {
    return std::nullopt;
  }
  text.back() = '\0';
  return text.data();
}

std::optional<int> Nvml::cuda_version() const {
  return ask<int>(library_->functions.cuda_version);
}

int Nvml::gpu_count() const {
  return static_cast<int>(library_->gpus.size());
}

std::optional<PathKind> Nvml::pcie_path(int a, int b) const {
  const Device first = library_->device(a);
  const Device second = library_->device(b);
  if (first == nullptr || second == nullptr) return std::nullopt;
  if (first == second) return PathKind::kSelf;
  const std::optional<unsigned> level = ask<unsigned>(library_->functions.common_ancestor, first, second);
  if (!level) return std::nullopt;
  switch (*level) {
    case kInternal:  // two GPUs of one board, behind its own bridge: so does nvidia-smi call it
    case kSingle:
      return PathKind::kPix;
    case kMultiple:
      return PathKind::kPxb;
    case kHostBridge:
      return PathKind::kPhb;
    case kNode:
      return PathKind::kNode;
    case kSystem:
      return PathKind::kSys;
    default:
      return std::nullopt;
  }
}

std::optional<unsigned> Nvml::peer_status(int from, int to, unsigned capability) const {
  const Device who = library_->device(from);
  const Device whose = library_->device(to);
  if (who == nullptr || whose == nullptr || who == whose) return std::nullopt;
  return ask<unsigned>(library_->functions.peer, who, whose, capability);
}

std::string Nvml::p2p_read(int from, int to) const {
  return peer_word(peer_status(from, to, kPeerRead));
}

std::string Nvml::p2p_write(int from, int to) const {
  return peer_word(peer_status(from, to, kPeerWrite));
}

std::optional<bool> Nvml::reached_by_nvlink(int from, int to) const {
  const std::optional<unsigned> status = peer_status(from, to, kPeerNvLink);
  if (!status || *status == kPeerUnknown) return std::nullopt;
  return *status == kPeerOk;
}

}  // namespace shardscope::topology
