// Which devices there are, and why none: on machines of the emulation.
#include "kernels/cuda/device_probe.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "kernels/base/error.hpp"
#include "tests/emulation/emulation.hpp"

namespace shardscope::cuda {
namespace {

using emulation::MachineTable;

const std::optional<std::string> kUnset;

/// A Volta: no machine of the emulation has one.
emulation::GpuModel volta() {
  emulation::GpuModel model = *emulation::find_model("a100");
  model.name = "Tesla V100-SXM2-32GB";
  model.compute_major = 7;
  model.compute_minor = 0;
  return model;
}

/// A variable of the environment for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("explain: one line for each reason why there is no device") {
  struct Row {
    const char* name;
    cudaError_t error;
    int driver;
    int runtime;
    std::optional<std::string> visible;
    std::string text;
  };
  const Row rows[] = {
      {"no driver", cudaErrorInsufficientDriver, 0, 13000, kUnset,
       "no NVIDIA driver, what to do: install it (nvidia-smi then works), or in a container pass it through with "
       "docker "
       "--gpus all or apptainer --nv"},
      {"no driver, whatever is visible", cudaErrorInsufficientDriver, 0, 13000, "", "no NVIDIA driver, "},
      {"no driver, another error", cudaErrorNoDevice, 0, 13000, kUnset, "no NVIDIA driver, "},
      {"a driver of the major version before", cudaErrorInsufficientDriver, 12040, 13000, kUnset,
       "the NVIDIA driver supports CUDA 12.4, this build has 13.0, what to do: update the driver, or build with "
       "toolkit "
       "12.8"},
      {"a newer one of it", cudaErrorInsufficientDriver, 12090, 13020, kUnset,
       "the NVIDIA driver supports CUDA 12.9, this build has 13.2, what to do: update the driver, or build with "
       "toolkit "
       "12.9"},
      {"a driver older than any toolkit that we build with", cudaErrorInsufficientDriver, 11080, 12080, kUnset,
       "the NVIDIA driver supports CUDA 11.8, this build has 12.8, what to do: update the driver"},
      {"no device", cudaErrorNoDevice, 13000, 13000, kUnset,
       "no CUDA device is visible, what to do: see nvidia-smi -L; a container needs docker --gpus all or apptainer "
       "--nv, a "
       "Slurm job --gpus-per-task or --gres=gpu"},
      {"none counted", cudaSuccess, 13000, 13000, kUnset, "no CUDA device is visible, "},
      {"all hidden", cudaErrorNoDevice, 13000, 13000, "",
       "CUDA_VISIBLE_DEVICES is set and empty, which hides all devices, what to do: unset it, or let it name some"},
      {"names what is not there", cudaErrorNoDevice, 13000, 13000, "7",
       "CUDA_VISIBLE_DEVICES=7 hides all devices, what to do: unset it, or let it name devices that nvidia-smi -L "
       "lists"},
      {"the same by another code", cudaErrorInvalidDevice, 13000, 13000, "GPU-0",
       "CUDA_VISIBLE_DEVICES=GPU-0 hides all devices, "},
      {"fabric manager", cudaErrorSystemNotReady, 13000, 13000, kUnset,
       "CUDA error 802 (cudaErrorSystemNotReady): no device can be used, what to do: start the fabric manager"},
      {"held by others", cudaErrorDevicesUnavailable, 13000, 13000, kUnset,
       "CUDA error 46 (cudaErrorDevicesUnavailable): no device can be used, what to do: the device is held by another "
       "process in exclusive mode"},
      {"unknown", cudaErrorUnknown, 13000, 13000, kUnset, "CUDA error 999 (cudaErrorUnknown): no device can be used, "},
      {"without advice", cudaErrorNotReady, 13000, 13000, kUnset,
       "CUDA error 600 (cudaErrorNotReady): no device can be used"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    const std::string text = explain(row.error, row.driver, row.runtime, row.visible);
    CHECK(text.substr(0, row.text.size()) == row.text);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("version_text: as NVIDIA writes versions") {
  CHECK(version_text(12080) == "12.8");
  CHECK(version_text(13000) == "13.0");
  CHECK(version_text(11020) == "11.2");
}

TEST_CASE("refusal_of: what is older than sm_80 is refused by name") {
  CHECK(refusal_of("Tesla V100", 7, 0) ==
        "Tesla V100 (sm_70) is too old: compute capability 8.0 (A100) or later is needed");
  CHECK(refusal_of("T4", 7, 5).find("T4 (sm_75) is too old") == 0);
  CHECK(refusal_of("A100", 8, 0).empty());
  CHECK(refusal_of("B200", 10, 0).empty());
}

TEST_CASE("probe_devices: tells of each device what is known of its model, and makes nothing on it") {
  emulation::restart({.devices = 3, .model = "h100"});
  const DeviceProbe probe = probe_devices(kUnset);
  CHECK(probe.usable());
  CHECK(probe.driver_version == 13000);
  CHECK(probe.runtime_version == CUDART_VERSION);
  REQUIRE(probe.devices.size() == 3);
  const emulation::GpuModel& model = *emulation::find_model("h100");
  const MachineTable table = emulation::make_table("h100", 3);
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    INFO(ordinal);
    const DeviceFacts& device = probe.devices[static_cast<size_t>(ordinal)];
    const emulation::Gpu& gpu = table.gpus[static_cast<size_t>(ordinal)];
    CHECK(device.ordinal == ordinal);
    CHECK(device.name == model.name);
    CHECK(device.uuid == gpu.uuid);
    CHECK("0000" + device.pci_bus_id == gpu.pci_bus_id);
    CHECK(device.compute_major == 9);
    CHECK(device.compute_minor == 0);
    CHECK(device.memory_bytes == model.memory_bytes);
    CHECK(device.multiprocessors == 132);
    CHECK(device.l2_bytes == model.l2_bytes);
    CHECK(device.clock_khz == model.clock_khz);
    CHECK(device.memory_clock_khz == model.memory_clock_khz);
    CHECK(device.memory_bus_bits == model.memory_bus_bits);
    CHECK(device.refusal.empty());
  }
  const std::vector<VisibleDevice> usable = usable_devices(probe);
  REQUIRE(usable.size() == 3);
  CHECK(usable[2] == VisibleDevice{2, probe.devices[2].uuid, probe.devices[2].pci_bus_id});
  // Contexts cost memory and seconds: neither is made by asking.
  for (const char* function : {"cudaSetDevice", "cudaMemGetInfo", "cudaMalloc"}) {
    CHECK(emulation::calls().count(function) == 0);
  }
}

TEST_CASE("probe_devices: without a driver, with an old one, and with none visible it says so and throws nothing") {
  MachineTable table = emulation::make_table("h100", 1);
  table.cuda_driver_version = 0;
  const emulation::FailingCall refused{
      .function = "cudaGetDeviceCount", .error = cudaErrorInsufficientDriver, .from_then_on = true};
  emulation::restart({.table = table, .failing = {refused}});
  DeviceProbe probe = probe_devices(kUnset);
  CHECK_FALSE(probe.usable());
  CHECK(probe.devices.empty());
  CHECK(probe.why_none.find("no NVIDIA driver") == 0);
  CHECK(cudaGetLastError() == cudaSuccess);

  table.cuda_driver_version = 12020;
  emulation::restart({.table = table, .failing = {refused}});
  CHECK(probe_devices(kUnset).why_none.find("the NVIDIA driver supports CUDA 12.2, this build has ") == 0);

  {
    const Variable none("CUDA_VISIBLE_DEVICES", "");
    emulation::restart({.devices = 2});
    CHECK(probe_devices("").why_none.find("CUDA_VISIBLE_DEVICES is set and empty") == 0);
  }
  {
    const Variable another("CUDA_VISIBLE_DEVICES", "5");
    emulation::restart({.devices = 2});
    CHECK(probe_devices("5").why_none.find("CUDA_VISIBLE_DEVICES=5 hides all devices") == 0);
  }
  const Variable second("CUDA_VISIBLE_DEVICES", "1");
  emulation::restart({.devices = 2});
  probe = probe_devices("1");
  CHECK(probe.usable());
  REQUIRE(probe.devices.size() == 1);
  CHECK(probe.devices[0].uuid == emulation::make_table("h100", 2).gpus[1].uuid);
}

TEST_CASE("probe_devices: devices that are too old are refused by name, and others are used") {
  const Variable order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // else the slower one comes last
  const emulation::GpuModel old = volta();
  MachineTable table = emulation::make_table("a100", 2);
  table.gpus[0].model = &old;
  emulation::restart({.table = table});
  DeviceProbe probe = probe_devices(kUnset);
  CHECK(probe.usable());
  REQUIRE(probe.devices.size() == 2);
  CHECK(probe.devices[0].refusal.find("Tesla V100-SXM2-32GB (sm_70) is too old") == 0);
  REQUIRE(usable_devices(probe).size() == 1);
  CHECK(usable_devices(probe)[0].ordinal == 1);

  table.gpus[1].model = &old;
  emulation::restart({.table = table});
  probe = probe_devices(kUnset);
  CHECK(probe.why_none ==
        "no device can be used: Tesla V100-SXM2-32GB (sm_70) is too old: compute capability 8.0 (A100) or later is "
        "needed");
  emulation::restart({});  // not with the model of this test
}

TEST_CASE("probe_devices: a device that does not answer is refused, what it does not tell is left out") {
  emulation::restart({.devices = 2,
                      .failing = {{.function = "cudaGetDeviceProperties", .nth = 2, .error = cudaErrorECCUncorrectable},
                                  {.function = "cudaDeviceGetPCIBusId", .nth = 1},
                                  {.function = "cudaDeviceGetAttribute", .nth = 1},
                                  {.function = "cudaDriverGetVersion", .nth = 2},
                                  {.function = "cudaRuntimeGetVersion", .nth = 2}}});
  DeviceProbe probe = probe_devices(kUnset);
  CHECK(probe.usable());
  REQUIRE(probe.devices.size() == 2);
  CHECK(probe.devices[0].pci_bus_id.empty());
  CHECK(probe.devices[0].clock_khz == 0);
  CHECK(probe.devices[0].memory_clock_khz > 0);
  CHECK(probe.devices[0].refusal.empty());
  CHECK(probe.devices[1].refusal.find("device 1: CUDA error 214 (cudaErrorECCUncorrectable), the hardware reports") ==
        0);
  CHECK(cudaGetLastError() == cudaSuccess);
  probe = probe_devices(kUnset);
  CHECK(probe.driver_version == 0);
  CHECK(probe.runtime_version == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("read_memory: free and total of the current device, and an error that says what to do") {
  emulation::restart({.device_memory_bytes = 1 << 20});
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 18) == cudaSuccess);
  const DeviceMemory read = read_memory();
  CHECK(read.total_bytes == 1 << 20);
  CHECK(read.free_bytes <= (1 << 20) - (1 << 18));
  CHECK(read.free_bytes > 0);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  emulation::restart({.failing = {{.function = "cudaMemGetInfo", .error = cudaErrorDevicesUnavailable}}});
  CHECK_THROWS_WITH(read_memory(), Catch::Contains("CUDA error 46") && Catch::Contains("exclusive mode"));
}

}  // namespace shardscope::cuda
