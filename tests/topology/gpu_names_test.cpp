#include "topology/gpu_names.hpp"

#include <map>
#include <string>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"

using namespace shardscope;
using topology::DevicePeaks;

namespace {

std::string row_of(std::string_view name) {
  const DevicePeaks* const peaks = topology::peaks_of_name(name);
  return peaks == nullptr ? "none" : std::string(peaks->name);
}

}  // namespace

TEST_CASE("peaks_of_name: what drivers call a row's GPU means that row") {
  for (const DevicePeaks& peaks : topology::device_peaks()) CHECK(row_of(driver_name_of(peaks)) == peaks.name);
  CHECK_THROWS_AS(topology::driver_name_of(DevicePeaks{.name = "made-up"}), BugError);
}

TEST_CASE("peaks_of_name: memory, socket and model in the name decide") {
  const std::map<std::string, std::string> expected = {
      {"A100-SXM4-40GB", "a100-40gb"},  // drivers before 2021 leave the maker out
      {"NVIDIA A100-PCIE-40GB", "a100-40gb"},
      {"A100-SXM-80GB", "a100-80gb-sxm"},
      {"NVIDIA A100 80GB PCIe", "a100-80gb-pcie"},
      {"NVIDIA A100-SXM-64GB", "a100-64gb"},
      {"Tesla V100-PCIE-16GB", "v100-pcie-16gb"},
      {"NVIDIA T4", "t4"},
      {"NVIDIA H100 PCIe", "h100-pcie"},
      {"NVIDIA GH200 144G HBM3e", "gh200-144gb"},
      {"GB200", "gb200"},
      {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000"},
  };
  for (const auto& [name, row] : expected) {
    INFO(name);
    CHECK(row_of(name) == row);
  }
}

TEST_CASE("peaks_of_name: another model, a part of a GPU or an untold size is no row") {
  for (const char* const name : {"",
                                 "NVIDIA",
                                 "NVIDIA A100",
                                 "NVIDIA A100-SXM4",
                                 "NVIDIA A10",
                                 "NVIDIA L40",
                                 "NVIDIA T400",
                                 "NVIDIA T4G",
                                 "NVIDIA H200 NVL",
                                 "NVIDIA H20",
                                 "NVIDIA H800",
                                 "NVIDIA A800-SXM4-80GB",
                                 "NVIDIA H100 80GB HBM2e",
                                 "NVIDIA H100",
                                 "Tesla V100-SXM3-32GB",
                                 "Tesla V100-FHHL-16GB",
                                 "Tesla V100S-PCIE-32GB",
                                 "Tesla P100-SXM2-16GB",
                                 "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                                 "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
                                 "NVIDIA GeForce RTX 3090 Ti",
                                 "NVIDIA GeForce RTX 4090 D",
                                 "NVIDIA GeForce RTX 4090 Laptop GPU",
                                 "NVIDIA GeForce RTX 5090 D",
                                 "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                                 "NVIDIA GB300",
                                 "NVIDIA B300",
                                 "a100-40gb"}) {
    INFO(name);
    CHECK(row_of(name) == "none");
  }
}

TEST_CASE("peaks_of_name: the names in recorded machines") {
  const std::map<std::string, std::string> expected = {
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"Tesla V100-SXM2-16GB", "v100-sxm2-16gb"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA B200", "b200"},
      {"A100-SXM4-40GB", "a100-40gb"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"Tesla P100-SXM2-16GB", "none"},
      {"NVIDIA GH200 480GB", "gh200-96gb"},
      {"Tesla V100-SXM2-32GB", "v100-sxm2-32gb"},
      {"NVIDIA GB10", "none"},
  };
  std::map<std::string, std::string> found;
  test::for_recorded([&](const topology::Topology& machine) {
    for (const topology::Gpu& gpu : machine.gpus) {
      if (!gpu.name.empty()) found[gpu.name] = row_of(gpu.name);
    }
  });
  CHECK(found.size() >= 5);
  for (const auto& [name, row] : found) {
    INFO(name);
    const auto known = expected.find(name);
    CHECK(row == (known == expected.end() ? "unexpected name" : known->second));
  }
}
