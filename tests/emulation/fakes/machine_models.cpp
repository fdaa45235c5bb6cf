// The kinds of GPUs that a machine table can have.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "tests/emulation/fakes/machine_table.hpp"

namespace shardscope::emulation {
namespace {

// Where the numbers are from. Compute capability, shared memory, threads and blocks: CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability". Multiprocessors, caches, bus, memory, links: NVIDIA's data
// sheets and architecture papers; 2 x memory clock x bus / 8 gives their bandwidths (1555, 2039, 3352, 4917, 898 and
// 1008 GB/s; the H200 sheet says 4.8 TB/s, the V100's 900 GB/s). Names, clocks, bytes of memory, PCI ids, speeds of
// links: what drivers were seen to answer in published outputs of deviceQuery, nvidia-smi and PyTorch's device
// properties; bytes differ a little between drivers.
constexpr GpuModel kModels[] = {
    {.key = "a100",
     .name = "NVIDIA A100-SXM4-80GB",
     .compute_major = 8,
     .compute_minor = 0,
     .multiprocessors = 108,
     .memory_bytes = 84'974'239'744,
     .shared_bytes_per_multiprocessor = 164 << 10,
     .most_shared_bytes_per_block = 163 << 10,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .l2_bytes = 40 << 20,
     .memory_bus_bits = 5120,
     .memory_clock_khz = 1'593'000,
     .clock_khz = 1'410'000,
     .frame_buffer_bytes = int64_t{81'920} << 20,
     .links = 12,
     .link_generation = 3,
     .link_megabytes_per_second = 25'000,
     .pcie_generation = 4,
     .pci_device_id = 0x20B210DE,
     .pci_subsystem_id = 0x147F10DE,
     .joins_fabric = false},
    {.key = "a100-40gb",
     .name = "NVIDIA A100-SXM4-40GB",
     .compute_major = 8,
     .compute_minor = 0,
     .multiprocessors = 108,
     .memory_bytes = 42'298'834'944,
     .shared_bytes_per_multiprocessor = 164 << 10,
     .most_shared_bytes_per_block = 163 << 10,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .l2_bytes = 40 << 20,
     .memory_bus_bits = 5120,
     .memory_clock_khz = 1'215'000,
     .clock_khz = 1'410'000,
     .frame_buffer_bytes = int64_t{40'960} << 20,
     .links = 12,
     .link_generation = 3,
     .link_megabytes_per_second = 25'000,
     .pcie_generation = 4,
     .pci_device_id = 0x20B010DE,
     .pci_subsystem_id = 0x134F10DE,
     .joins_fabric = false},
    {.key = "h100",
     .name = "NVIDIA H100 80GB HBM3",
     .compute_major = 9,
     .compute_minor = 0,
     .multiprocessors = 132,
     .memory_bytes = 85'029'158'912,
     .shared_bytes_per_multiprocessor = 228 << 10,
     .most_shared_bytes_per_block = 227 << 10,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .l2_bytes = 50 << 20,
     .memory_bus_bits = 5120,
     .memory_clock_khz = 2'619'000,
     .clock_khz = 1'980'000,
     .frame_buffer_bytes = int64_t{81'559} << 20,
     .links = 18,
     .link_generation = 4,
     .link_megabytes_per_second = 26'562,
     .pcie_generation = 5,
     .pci_device_id = 0x233010DE,
     .pci_subsystem_id = 0x16C110DE,
     .joins_fabric = true},
    {.key = "h200",
     .name = "NVIDIA H200",
     .compute_major = 9,
     .compute_minor = 0,
     .multiprocessors = 132,
     .memory_bytes = int64_t{143'156} << 20,
     .shared_bytes_per_multiprocessor = 228 << 10,
     .most_shared_bytes_per_block = 227 << 10,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .l2_bytes = 60 << 20,
     .memory_bus_bits = 6144,
     .memory_clock_khz = 3'201'000,
     .clock_khz = 1'980'000,
     .frame_buffer_bytes = int64_t{143'771} << 20,
     .links = 18,
     .link_generation = 4,
     .link_megabytes_per_second = 26'562,
     .pcie_generation = 5,
     .pci_device_id = 0x233510DE,
     .pci_subsystem_id = 0x18BE10DE,
     .joins_fabric = true},
    {.key = "v100",
     .name = "Tesla V100-SXM2-16GB",
     .compute_major = 7,
     .compute_minor = 0,
     .multiprocessors = 80,
     .memory_bytes = 16'945'512'448,
     .shared_bytes_per_multiprocessor = 96 << 10,
     .most_shared_bytes_per_block = 96 << 10,
     .threads_per_multiprocessor = 2048,
     .blocks_per_multiprocessor = 32,
     .l2_bytes = 6 << 20,
     .memory_bus_bits = 4096,
     .memory_clock_khz = 877'000,
     .clock_khz = 1'530'000,
     .frame_buffer_bytes = int64_t{16'384} << 20,
     .links = 6,
     .link_generation = 2,
     .link_megabytes_per_second = 25'781,
     .pcie_generation = 3,
     .pci_device_id = 0x1DB110DE,
     .pci_subsystem_id = 0x121210DE,
     .joins_fabric = false},
    {.key = "rtx-4090",
     .name = "NVIDIA GeForce RTX 4090",
     .compute_major = 8,
     .compute_minor = 9,
     .multiprocessors = 128,
     .memory_bytes = 25'393'692'672,
     .shared_bytes_per_multiprocessor = 100 << 10,
     .most_shared_bytes_per_block = 99 << 10,
     .threads_per_multiprocessor = 1536,
     .blocks_per_multiprocessor = 24,
     .l2_bytes = 72 << 20,
     .memory_bus_bits = 384,
     .memory_clock_khz = 10'501'000,
     .clock_khz = 3'105'000,
     .frame_buffer_bytes = int64_t{24'564} << 20,
     .links = 0,
     .link_generation = 0,
     .link_megabytes_per_second = 0,
     .pcie_generation = 4,
     .pci_device_id = 0x268410DE,
     .pci_subsystem_id = 0,  // each maker of cards has its own
     .joins_fabric = false},
};

}  // namespace

const GpuModel* find_model(std::string_view key) {
  const auto* const found =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const GpuModel& model) { return model.key == key; });
  return found == std::end(kModels) ? nullptr : found;
}

std::string model_keys() {
  std::string keys;
  for (const GpuModel& model : kModels) keys += fmt::format("{}{}", keys.empty() ? "" : ", ", model.key);
  return keys;
}

}  // namespace shardscope::emulation
