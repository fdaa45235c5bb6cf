#include "topology/gpu_names.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/base/error.hpp"

namespace shardscope::topology {
namespace {

/// Both parts must occur in a name.
struct Sign {
  std::string_view part, other, row;
};

// The first that fits counts. Memory in the name decides between models that differ by it alone. "H100 80GB HBM3" is
// the SXM one, "GH200 480GB" has that much of the CPU's memory. An A100 that tells no size is not to be told.
constexpr Sign kSigns[] = {
    {"V100-SXM2-16GB", "", "v100-sxm2-16gb"},
    {"V100-SXM2-32GB", "", "v100-sxm2-32gb"},
    {"V100-PCIE-16GB", "", "v100-pcie-16gb"},
    {"V100-PCIE-32GB", "", "v100-pcie-32gb"},
    {"A100-SXM", "-40GB", "a100-40gb"},
    {"A100-SXM", "-64GB", "a100-64gb"},
    {"A100-SXM", "-80GB", "a100-80gb-sxm"},
    {"A100-PCIE-40GB", "", "a100-40gb"},
    {"A100 80GB PCIe", "", "a100-80gb-pcie"},
    {"H100 PCIe", "", "h100-pcie"},
    {"H100 80GB HBM3", "", "h100-sxm"},
    {"H100 NVL", "", "h100-nvl"},
    {"GH200 480GB", "", "gh200-96gb"},
    {"GH200 144G", "", "gh200-144gb"},
    {"RTX 3090", "", "rtx-3090"},
    {"RTX 4090", "", "rtx-4090"},
    {"RTX 5090", "", "rtx-5090"},
    {"RTX PRO 6000 Blackwell", "", "rtx-pro-6000"},
};

// The whole name: longer ones are other models ("A10G" and "A10", "H200" and "H200 NVL").
struct WholeName {
  std::string_view name, row;
};
constexpr WholeName kWholeNames[] = {
    {"T4", "t4"},     {"A10G", "a10g"}, {"L4", "l4"},       {"L40S", "l40s"},
    {"H200", "h200"}, {"B200", "b200"}, {"GB200", "gb200"},
};

// Parts of names of other models, or of parts of GPUs. A server's RTX PRO 6000 has slower memory than a workstation's.
constexpr std::string_view kUnlike[] = {"MIG ", "RTX 3090 Ti", "RTX 4090 D", "RTX 5090 D", "Laptop", "Server Edition"};

struct RowName {
  std::string_view row, name;
};
constexpr RowName kDriverNames[] = {
    {"v100-sxm2-16gb", "Tesla V100-SXM2-16GB"},
    {"v100-sxm2-32gb", "Tesla V100-SXM2-32GB"},
    {"v100-pcie-16gb", "Tesla V100-PCIE-16GB"},
    {"v100-pcie-32gb", "Tesla V100-PCIE-32GB"},
    {"t4", "Tesla T4"},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB"},
    {"a100-64gb", "NVIDIA A100-SXM-64GB"},
    {"a100-80gb-sxm", "NVIDIA A100-SXM4-80GB"},
    {"a100-80gb-pcie", "NVIDIA A100 80GB PCIe"},
    {"a10g", "NVIDIA A10G"},
    {"l4", "NVIDIA L4"},
    {"l40s", "NVIDIA L40S"},
    {"h100-pcie", "NVIDIA H100 PCIe"},
    {"h100-sxm", "NVIDIA H100 80GB HBM3"},
    {"h100-nvl", "NVIDIA H100 NVL"},
    {"h200", "NVIDIA H200"},
    {"gh200-96gb", "NVIDIA GH200 480GB"},
    {"gh200-144gb", "NVIDIA GH200 144G HBM3e"},
    {"b200", "NVIDIA B200"},
    {"gb200", "NVIDIA GB200"},
    {"rtx-3090", "NVIDIA GeForce RTX 3090"},
    {"rtx-4090", "NVIDIA GeForce RTX 4090"},
    {"rtx-5090", "NVIDIA GeForce RTX 5090"},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"},
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view without_maker(std::string_view name) {
  for (const std::string_view maker : {"NVIDIA ", "Tesla "}) {
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  }
  return name;
}

}  // namespace

const DevicePeaks* peaks_of_name(std::string_view driver_name) {
  if (std::any_of(std::begin(kUnlike), std::end(kUnlike),
                  [&](std::string_view unlike) { return contains(driver_name, unlike); })) {
    return nullptr;
  }
  const std::string_view bare = without_maker(driver_name);
  for (const WholeName& whole : kWholeNames) {
    if (bare == whole.name) return find_device_peaks(whole.row);
  }
  for (const Sign& sign : kSigns) {
    if (contains(driver_name, sign.part) && contains(driver_name, sign.other)) return find_device_peaks(sign.row);
  }
  return nullptr;
}

std::string_view driver_name_of(const DevicePeaks& peaks) {
  const auto* const found = std::find_if(std::begin(kDriverNames), std::end(kDriverNames),
                                         [&](const RowName& each) { return each.row == peaks.name; });
  require(found != std::end(kDriverNames), "driver_name_of: no row of device_peaks()");
  return found->name;
}

}  // namespace shardscope::topology
