// Why ranks cannot share their devices' memory: each situation has a line of its own, which names ranks and devices and
// says what to do.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "parallel/cuda/peer_facts.hpp"

namespace shardscope::test {
namespace {

using parallel::PeerDevice;
using parallel::PeerReach;
using parallel::PeerWords;

std::vector<PeerDevice> four_devices() {
  std::vector<PeerDevice> devices;
  for (const char* bus : {"0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0", "0000:0d:00.0"}) {
    devices.push_back({.host = "node7", .name = "NVIDIA A100", .uuid = std::string("GPU-") + bus, .pci_bus_id = bus});
  }
  return devices;
}

void check_words(const std::string& text, const std::vector<std::string>& words) {
  INFO(text);
  for (const std::string& word : words) {
    INFO(word);
    CHECK(text.find(word) != std::string::npos);
  }
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find("what to do: ") != std::string::npos);
}

}  // namespace

TEST_CASE("peer facts: a device's facts come back from their text, whatever is empty") {
  const std::vector<PeerDevice> devices{
      {.host = "a", .name = "NVIDIA H100 80GB HBM3", .uuid = "GPU-1", .pci_bus_id = "0000:1b:00.0"},
      {.host = "b", .name = "", .uuid = "", .pci_bus_id = "", .mig = true}};
  for (const PeerDevice& device : devices) {
    CHECK(parallel::decode_peer_device(parallel::encode(device), device.host) == device);
  }
  CHECK_THROWS_AS(parallel::decode_peer_device("gpu\nGPU-1\n0000:1b:00.0", "a"), BugError);
  CHECK_THROWS_AS(parallel::decode_peer_device("cpu\n\n\n", "a"), BugError);
}

TEST_CASE("peer facts: devices of one host and one each stand in nobody's way") {
  CHECK(parallel::why_not_together(four_devices(), false).empty());
  CHECK(parallel::why_not_together({}, false).empty());
  std::vector<PeerDevice> nameless = four_devices();
  for (PeerDevice& device : nameless) device.uuid.clear();
  CHECK(parallel::why_not_together(nameless, false).empty());
}

TEST_CASE("peer facts: several hosts are named") {
  std::vector<PeerDevice> devices = four_devices();
  devices[2].host = devices[3].host = "node8";
  devices[2].pci_bus_id = devices[0].pci_bus_id;  // of another host: not the same device
  const std::string why = parallel::why_not_together(devices, true);
  check_words(why, {"rank 0 is on node7 and rank 2 on node8", "--allreduce nccl"});
}

TEST_CASE("peer facts: one device for two ranks needs the switch that allows it") {
  std::vector<PeerDevice> devices = four_devices();
  devices[3] = devices[1];
  check_words(
      parallel::why_not_together(devices, false),
      {"rank 1 (0000:0b:00.0) and rank 3 (0000:0b:00.0) on node7 have the same device", "--oversubscribe-devices"});
  CHECK(parallel::why_not_together(devices, true).empty());
  devices[1].uuid = devices[3].uuid = "";  // then by the address
  CHECK_FALSE(parallel::why_not_together(devices, false).empty());
}

TEST_CASE("peer facts: MIG instances are found by their own sign, and by an address that several UUIDs have") {
  std::vector<PeerDevice> devices = four_devices();
  devices[1].mig = true;
  check_words(parallel::why_not_together(devices, true),
              {"rank 0 (0000:0a:00.0) and rank 1 (0000:0b:00.0) on node7 have MIG instances (and so for 2 more)",
               "nvidia-smi -mig 0"});
  devices[1].mig = false;
  devices[2].pci_bus_id = devices[1].pci_bus_id;
  check_words(parallel::why_not_together(devices, false), {"rank 1 (0000:0b:00.0) and rank 2", "MIG instances"});
  // Ranks in one instance share a device, which is allowed where they asked for it.
  const std::vector<PeerDevice> one(2, {.host = "h", .name = "A", .uuid = "u", .pci_bus_id = "b", .mig = true});
  CHECK(parallel::why_not_together(one, true).empty());
  check_words(parallel::why_not_together(one, false), {"have the same device"});
}

TEST_CASE(
    "peer facts: a driver that offers no peer access is told from mixed models, and hidden devices may be tried") {
  std::vector<PeerDevice> devices = four_devices();
  std::vector<PeerReach> reach(16, PeerReach::kOffered);
  reach[4 * 1 + 1] = PeerReach::kRefused;  // of itself: nobody asks that
  reach[4 * 0 + 3] = PeerReach::kHidden;
  reach[4 * 0 + 2] = PeerReach::kSame;
  CHECK(parallel::why_not_reached(devices, reach).empty());
  reach[4 * 2 + 3] = PeerReach::kRefused;
  check_words(parallel::why_not_reached(devices, reach),
              {"the driver offers no peer access from rank 2 (0000:0c:00.0) to rank 3 (0000:0d:00.0) on node7",
               "NVIDIA A100", "nvidia-smi topo -p2p w", "nccl"});
  devices[3].name = "NVIDIA H200";
  check_words(parallel::why_not_reached(devices, reach),
              {"rank 2 (0000:0c:00.0) has NVIDIA A100 and rank 3 (0000:0d:00.0) has NVIDIA H200, on node7",
               "CUDA_VISIBLE_DEVICES"});
}

TEST_CASE("peer facts: memory that cannot be shared or opened names CUDA's error, and hidden devices as such") {
  const std::vector<PeerDevice> devices = four_devices();
  std::vector<PeerReach> reach(16, PeerReach::kOffered);
  std::vector<int> errors(16, 0);
  CHECK(parallel::why_not_opened(devices, reach, errors).empty());
  errors[4 * 3 + 1] = 400;
  check_words(parallel::why_not_opened(devices, reach, errors),
              {"rank 3 (0000:0d:00.0) cannot open the memory of rank 1 (0000:0b:00.0) on node7",
               "CUDA error 400 (cudaErrorInvalidResourceHandle)", "--ipc=host --pid=host"});
  reach[4 * 3 + 1] = PeerReach::kHidden;
  check_words(parallel::why_not_opened(devices, reach, errors),
              {"rank 3 (0000:0d:00.0) does not see the device of rank 1 (0000:0b:00.0) on node7", "CUDA error 400",
               "--gpus-per-node", "--gpu-bind=none"});
  errors[4 * 2 + 2] = 801;
  check_words(parallel::why_not_opened(devices, reach, errors),
              {"rank 2 (0000:0c:00.0) on node7 cannot share its memory",
               "CUDA error 801 (cudaErrorNotSupported) (and so for 1 more)"});
}

TEST_CASE("peer facts: words that do not arrive, or are not read back, name direction, pair and how many") {
  const std::vector<PeerDevice> devices = four_devices();
  std::vector<PeerWords> proof(16, {100, 100});
  CHECK(parallel::why_not_proved(devices, proof, 100).empty());
  proof[4 * 1 + 2].read_back = 99;
  check_words(parallel::why_not_proved(devices, proof, 100),
              {"rank 1 (0000:0b:00.0) does not read back from rank 2 (0000:0c:00.0) on node7", "(99 of 100 words)"});
  proof[4 * 3 + 0].received = 7;
  proof[4 * 3 + 1].received = 101;  // more than there are is wrong, too
  check_words(parallel::why_not_proved(devices, proof, 100),
              {"writes of rank 0 (0000:0a:00.0) do not arrive at rank 3 (0000:0d:00.0) on node7 (7 of 100 words)",
               "(and so for 1 more)", "ACS", "IOMMU", "nvidia-smi topo -p2p w"});
  proof[4 * 2 + 2].received = 0;
  check_words(parallel::why_not_proved(devices, proof, 100),
              {"rank 2 (0000:0c:00.0) on node7 does not keep what it writes to its own memory"});
}

}  // namespace shardscope::test
