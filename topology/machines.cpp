// The table of the catalogue: NVLinks, PCIe and networks as vendors describe them. What a recorded file shows is
// marked, and tests hold the two against each other.
#include "topology/boards.hpp"
#include "topology/catalogue.hpp"

namespace shardscope::topology {
namespace {

using namespace boards;

constexpr std::string_view kFromMemory = "its vendor's description, not cross-checked";
constexpr std::string_view kTopoMatrix = "a recorded nvidia-smi topo -m";
constexpr std::string_view kSameTray = "the recorded matrix of a GB200 compute tray";
constexpr std::string_view kAzureTree =
    "Azure/azhpc-images' topology file for its NUMA nodes, NVLinks by the GPUs' data sheet";

// The cube mesh in the order in which Azure's machine shows its GPUs; its NUMA nodes are hidden.
constexpr Machine kNd40 = cube_mesh("v100-sxm2-32gb",
                                    "02120010"
                                    "20210001"
                                    "12012000"
                                    "21100200"
                                    "00200112"
                                    "00021021"
                                    "10001202"
                                    "01002120",
                                    "00000000");
constexpr std::string_view kNd96Nodes = "11003322";

struct Entry {
  std::string_view name, instance, what, network, source;
  bool recorded = false;
};
constexpr Machine named(const Entry& entry, Machine board) {
  board.name = entry.name;
  board.instance = entry.instance;
  board.what = entry.what;
  board.network = entry.network;
  board.source = entry.source;
  board.recorded = entry.recorded;
  return board;
}

constexpr Machine kMachines[] = {
    named({"aws-p3", "p3.16xlarge", "AWS p3.16xlarge: 8 x V100 SXM2 16 GB, cube mesh", "25 Gb/s Ethernet", kFromMemory},
          cube_mesh("v100-sxm2-16gb")),
    named(
        {"aws-p3dn", "p3dn.24xlarge", "AWS p3dn.24xlarge: 8 x V100 SXM2 32 GB, cube mesh", "100 Gb/s EFA", kFromMemory},
        cube_mesh("v100-sxm2-32gb")),
    named(
        {"aws-g4dn-12xlarge", "g4dn.12xlarge", "AWS g4dn.12xlarge: 4 x T4, PCIe only", "50 Gb/s Ethernet", kFromMemory},
        cards("t4", 3, "0000", PathKind::kPhb)),
    named({"aws-g5-12xlarge", "g5.12xlarge", "AWS g5.12xlarge: 4 x A10G, PCIe only", "40 Gb/s Ethernet", kFromMemory},
          cards("a10g", 4, "0000", PathKind::kPhb)),
    named(
        {"aws-g5-48xlarge", "g5.48xlarge", "AWS g5.48xlarge: 8 x A10G, PCIe only, two NUMA nodes", "100 Gb/s Ethernet",
         "aws/aws-ofi-nccl's topology file for its NUMA nodes, the rest by its vendor's description"},
        cards("a10g", 4, kTwoNodes, PathKind::kPhb)),
    named({"aws-g6-48xlarge", "g6.48xlarge", "AWS g6.48xlarge: 8 x L4, PCIe only, two NUMA nodes", "100 Gb/s Ethernet",
           kFromMemory},
          cards("l4", 4, kTwoNodes, PathKind::kPhb)),
    named({"aws-g6e-48xlarge", "g6e.48xlarge", "AWS g6e.48xlarge: 8 x L40S, PCIe only, two NUMA nodes", "400 Gb/s EFA",
           kFromMemory},
          cards("l40s", 4, kTwoNodes, PathKind::kPhb)),
    named({"aws-p4d", "p4d.24xlarge", "AWS p4d.24xlarge: 8 x A100 SXM 40 GB, NVSwitch", "4 x 100 Gb/s EFA",
           "a recorded nvidia-smi topo -m, and aws/aws-ofi-nccl's topology file", true},
          switched("a100-40gb", 12, 3)),
    named({"aws-p4de", "p4de.24xlarge", "AWS p4de.24xlarge: 8 x A100 SXM 80 GB, NVSwitch", "4 x 100 Gb/s EFA",
           kTopoMatrix, true},
          switched("a100-80gb-sxm", 12, 3)),
    named({"aws-p5", "p5.48xlarge", "AWS p5.48xlarge: 8 x H100 SXM, NVSwitch", "3200 Gb/s EFA",
           "aws/aws-ofi-nccl's topology file for its GPUs and NICs, the rest by its vendor's description"},
          kH100),
    named({"aws-p5e", "p5e.48xlarge", "AWS p5e.48xlarge: 8 x H200 SXM, NVSwitch", "3200 Gb/s EFA", kFromMemory}, kH200),
    named({"aws-p5en", "p5en.48xlarge", "AWS p5en.48xlarge: 8 x H200 SXM, NVSwitch", "3200 Gb/s EFA", kFromMemory},
          kH200),
    named({"aws-p6-b200", "p6-b200.48xlarge", "AWS p6-b200.48xlarge: 8 x B200 SXM, NVSwitch", "8 x 400 Gb/s EFA",
           kFromMemory},
          kB200),
    named({"aws-p6e-gb200", "p6e-gb200.36xlarge", "AWS p6e-gb200.36xlarge: 4 x GB200, NVSwitch of a whole rack", "EFA",
           kSameTray},
          kGb200Tray),

    named({"azure-nd40rs-v2", "Standard_ND40rs_v2", "Azure ND40rs v2: 8 x V100 SXM2 32 GB, cube mesh",
           "100 Gb/s InfiniBand", kTopoMatrix, true},
          kNd40),
    named({"azure-nd96asr-v4", "Standard_ND96asr_v4", "Azure ND96asr v4: 8 x A100 SXM 40 GB, NVSwitch",
           "8 x 200 Gb/s InfiniBand", kAzureTree},
          switched("a100-40gb", 12, 4, kNd96Nodes)),
    named({"azure-nd96amsr-v4", "Standard_ND96amsr_A100_v4", "Azure ND96amsr A100 v4: 8 x A100 SXM 80 GB, NVSwitch",
           "8 x 200 Gb/s InfiniBand", kAzureTree},
          switched("a100-80gb-sxm", 12, 4, kNd96Nodes)),
    named(
        {"azure-nc96ads-v4", "Standard_NC96ads_A100_v4", "Azure NC96ads A100 v4: 4 x A100 PCIe 80 GB, bridged in pairs",
         "Ethernet", "a recorded nvidia-smi topo -m, and Azure's topology file", true},
        bridged_pairs("a100-80gb-pcie", 4, "0123")),
    named({"azure-nc80adis-h100-v5", "Standard_NC80adis_H100_v5",
           "Azure NC80adis H100 v5: 2 x H100 NVL, one bridged pair", "Ethernet", kFromMemory},
          bridged_pairs("h100-nvl", 5, "??")),
    named({"azure-nd96isr-h100-v5", "Standard_ND96isr_H100_v5", "Azure ND96isr H100 v5: 8 x H100 SXM, NVSwitch",
           "8 x 400 Gb/s InfiniBand", kAzureTree, true},
          kH100),
    named({"azure-nd96isr-h200-v5", "Standard_ND96isr_H200_v5", "Azure ND96isr H200 v5: 8 x H200 SXM, NVSwitch",
           "8 x 400 Gb/s InfiniBand", kFromMemory},
          kH200),

    named({"gcp-a2-highgpu-8g", "a2-highgpu-8g", "GCP a2-highgpu-8g: 8 x A100 SXM 40 GB, NVSwitch", "100 Gb/s Ethernet",
           kFromMemory},
          kA100Small),
    named({"gcp-a2-megagpu-16g", "a2-megagpu-16g", "GCP a2-megagpu-16g: 16 x A100 SXM 40 GB behind the same NVSwitches",
           "100 Gb/s Ethernet", kFromMemory},
          switched("a100-40gb", 12, 4, "0000000011111111")),
    named({"gcp-a2-ultragpu-8g", "a2-ultragpu-8g", "GCP a2-ultragpu-8g: 8 x A100 SXM 80 GB, NVSwitch",
           "100 Gb/s Ethernet", kFromMemory},
          kA100Large),
    named({"gcp-a3-highgpu-8g", "a3-highgpu-8g", "GCP a3-highgpu-8g: 8 x H100 SXM, NVSwitch", "4 x 200 Gb/s (TCPX)",
           kFromMemory},
          kH100),
    named({"gcp-a3-megagpu-8g", "a3-megagpu-8g", "GCP a3-megagpu-8g: 8 x H100 SXM, NVSwitch", "8 x 200 Gb/s (TCPXO)",
           kFromMemory},
          kH100),
    named({"gcp-a3-ultragpu-8g", "a3-ultragpu-8g", "GCP a3-ultragpu-8g: 8 x H200 SXM, NVSwitch", "8 x 400 Gb/s RoCE",
           kFromMemory},
          kH200),
    named({"gcp-a4-highgpu-8g", "a4-highgpu-8g", "GCP a4-highgpu-8g: 8 x B200 SXM, NVSwitch", "8 x 400 Gb/s RoCE",
           "a recorded run of nccl-tests for its GPUs, the rest by its vendor's description"},
          kB200),
    named({"gcp-a4x", "a4x-highgpu-4g", "GCP a4x-highgpu-4g: 4 x GB200, NVSwitch of a whole rack", "RoCE", kSameTray},
          kGb200Tray),
    named({"gcp-g2-standard-96", "g2-standard-96", "GCP g2-standard-96: 8 x L4, PCIe only, two NUMA nodes",
           "100 Gb/s Ethernet", kFromMemory},
          cards("l4", 4, kTwoNodes, PathKind::kPhb)),

    named({"oci-bm-gpu4.8", "BM.GPU4.8", "OCI BM.GPU4.8: 8 x A100 SXM 40 GB, NVSwitch", "16 x 100 Gb/s RoCE",
           "oracle-quickstart/oci-hpc's topology file for its NUMA nodes, NVLinks by the GPUs' data sheet", true},
          switched("a100-40gb", 12, 4, "33117755")),
    named({"oci-bm-gpu-a100-v2.8", "BM.GPU.A100-v2.8", "OCI BM.GPU.A100-v2.8: 8 x A100 SXM 80 GB, NVSwitch",
           "16 x 100 Gb/s RoCE", kFromMemory},
          switched("a100-80gb-sxm", 12, 4, "????????")),
    named({"oci-bm-gpu-h100.8", "BM.GPU.H100.8", "OCI BM.GPU.H100.8: 8 x H100 SXM, NVSwitch", "16 x 200 Gb/s RoCE",
           kFromMemory},
          kH100),

    named({"nebius-h100", "gpu-h100-sxm", "Nebius: 8 x H100 SXM, NVSwitch", "8 x 400 Gb/s InfiniBand", kFromMemory},
          kH100),
    named(
        {"digitalocean-h100", "gpu-h100x8-640gb", "DigitalOcean: 8 x H100 SXM, NVSwitch", "8 x 400 Gb/s", kFromMemory},
        kH100),
    named({"dgx-1", "DGX-1V", "NVIDIA DGX-1 with 8 x V100 SXM2 32 GB, cube mesh", "4 x 100 Gb/s InfiniBand",
           "NVIDIA's whitepaper, not cross-checked"},
          cube_mesh("v100-sxm2-32gb")),
    named({"dgx-h100", "DGX H100", "NVIDIA DGX H100: 8 x H100 SXM, NVSwitch", "8 x 400 Gb/s InfiniBand", kTopoMatrix,
           true},
          kH100),
    named({"gb200-tray", "GB200 NVL72 compute tray", "GB200 NVL72 compute tray: 4 x GB200, NVSwitch of a whole rack",
           "4 x 400 Gb/s InfiniBand", kTopoMatrix, true},
          kGb200Tray),
    named({"leonardo", "Leonardo Booster", "Leonardo Booster (CINECA): 4 x custom A100 64 GB, each linked to each",
           "4 x 100 Gb/s InfiniBand", kTopoMatrix, true},
          kLeonardo),
};

}  // namespace

std::span<const Machine> machines() {
  return kMachines;
}

}  // namespace shardscope::topology
