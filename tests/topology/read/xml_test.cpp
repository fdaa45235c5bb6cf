// NCCL's XML, and what all XML has in common: every recorded file as INDEX.md describes it, made-up machines, and
// damage.
#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/read/links_of.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::NvLinkPort;
using topology::Topology;

namespace {

using Catch::Matchers::Contains;

std::optional<Topology> read(const std::string& text) {
  return topology::read_xml({.text = text, .file = "given.xml"});
}

Topology taken(const std::string& text) {
  return test::taken(topology::read_xml, text, "given.xml");
}

struct Recorded {
  std::string file;
  std::vector<int> numa;  // of each GPU
  size_t nics;
  int nvlinks;  // of each GPU; -1: not told
  std::string topology_class;
};

const std::vector<int> kFourAndFour = {0, 0, 0, 0, 1, 1, 1, 1};

/// INDEX.md, "nccl-xml". NICs are network devices of the tree, or <net> without one.
const std::vector<Recorded> kRecordings = {
    {"azure-ndv2-topo", kFourAndFour, 1, -1, "unknown"},
    {"azure-ndv5-topo", kFourAndFour, 8, -1, "unknown"},
    {"azure-ncv4-topo-pairs", {0, 1, 2, 3}, 1, 12, "nvlink-pairs"},
    {"aws-p4d-24xl-topo", kFourAndFour, 4, -1, "unknown"},
    {"aws-p5.48xl-topo-2026-gpu-no-nvlink", std::vector<int>(8, 0), 32, -1, "unknown"},
    {"alibaba-1xa100-1cx6-dump", {0}, 2, 12, "single"},
    {"alibaba-2xa100-1cx6-dump", {0, 0}, 2, 12, "nvswitch"},
    {"alibaba-4xa100-2cx6-dump", {0, 0, 0, 0}, 3, 12, "nvswitch"},
    {"alibaba-8xa100-4cx6-dump", kFourAndFour, 5, 12, "nvswitch"},
    {"oci-bm-gpu4.8-a100-flattened", {3, 3, 1, 1, 7, 7, 5, 5}, 8, -1, "unknown"},
};

/// A <pci> of a GPU in a dump.
std::string gpu_of(int number, const std::string& nvlinks, const std::string& sm = "80") {
  return fmt::format(
      R"(<pci busid="0000:{0:02x}:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16">
<gpu dev="{0}" sm="{1}" rank="{0}" gdr="1">{2}</gpu></pci>
)",
      number, sm, nvlinks);
}

std::string to_gpu(int number, int count) {
  return fmt::format(R"(<nvlink target="0000:{:02x}:00.0" count="{}" tclass="0x030200"/>)", number, count);
}

std::string bridge(int number, const std::string& inside) {
  return fmt::format("<pci busid=\"0000:{:02x}:00.0\" class=\"0x060400\">\n{}</pci>\n", number, inside);
}

std::string system_of(const std::string& inside) {
  return fmt::format("<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"ffffffff\">\n{}</cpu>\n</system>\n", inside);
}

const std::string kToSwitch = R"(<nvlink target="0000:c0:00.0" count="12" tclass="0x068000"/>)";

}  // namespace

TEST_CASE("read_xml: recorded NCCL topologies are what INDEX.md says", "[nccl-xml]") {
  for (const Recorded& expected : kRecordings) {
    INFO(expected.file);
    const Topology topology = recorded(fmt::format("nccl-xml/{}.xml", expected.file));
    CHECK(name_of(topology.source) == "nccl-xml");
    CHECK(topology.complete);
    REQUIRE(topology.gpu_count == static_cast<int>(expected.numa.size()));
    REQUIRE(topology.gpus.size() == expected.numa.size());
    CHECK(topology.nics.size() == expected.nics);
    CHECK(topology.nics_known);
    CHECK(name_of(topology.topology_class) == expected.topology_class);
    CHECK(topology.links.has_value() == (expected.nvlinks >= 0));
    CHECK(warned(topology, {"lists no NVLinks"}) == (expected.nvlinks < 0));
    for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
      CHECK(topology.gpus[gpu].index == static_cast<int>(gpu));
      CHECK(topology.gpus[gpu].numa_nodes == std::vector<int>{expected.numa[gpu]});
      CHECK(topology.gpus[gpu].nvlinks.value_or(-1) == expected.nvlinks);
      CHECK(topology.gpus[gpu].ports.size() == static_cast<size_t>(std::max(expected.nvlinks, 0)));
    }
  }
}

TEST_CASE("read_xml: NVLinks through switches and between pairs", "[nccl-xml]") {
  const Topology switched = recorded("nccl-xml/alibaba-8xa100-4cx6-dump.xml");
  CHECK(switched.switched == true);
  CHECK(link(switched, 0, 7) == "NV12");
  CHECK(link(switched, 3, 4) == "NV12");
  CHECK(switched.gpus[0].compute == "8.0");
  CHECK(switched.gpus[4].cpu_affinity == "32-63,96-127");
  CHECK(switched.gpus[0].ports[0].remote == NvLinkPort::Remote::kSwitch);
  CHECK(switched.gpus[0].ports[0].remote_bus_id == "0000:c3:00.0");
  CHECK(switched.gpus[0].ports[11].link == 11);
  const Topology pairs = recorded("nccl-xml/azure-ncv4-topo-pairs.xml");
  CHECK(pairs.switched == false);
  CHECK(link(pairs, 0, 1) == "NV12");
  CHECK(link(pairs, 2, 3) == "NV12");
  CHECK(link(pairs, 1, 2) == "SYS");
  CHECK_FALSE(pairs.gpus[0].pcie_generation);  // link_speed "", link_width 0
  CHECK_FALSE(pairs.gpus[0].pcie_width);
  CHECK(pairs.nics[0].name == "eth0");
  CHECK_FALSE(pairs.nics[0].numa_node);  // no PCI device: its place is unknown
  CHECK(nic_link(pairs, 0, 0) == "unknown");
}

TEST_CASE("read_xml: PCIe speeds of both spellings, and NICs by the tree", "[nccl-xml]") {
  const Topology p4 = recorded("nccl-xml/aws-p4d-24xl-topo.xml");
  CHECK(p4.gpus[0].pcie_gt_per_s == 8.0);
  CHECK(p4.gpus[0].pcie_generation == 3);
  CHECK(p4.gpus[0].pcie_width == 16);
  CHECK(p4.gpus[0].cpu_affinity == "0-23,48-71");
  CHECK(p4.nics[1].name == "0000:20:1b.0");
  CHECK(nic_link(p4, 2, 1) == "PIX");
  CHECK(nic_link(p4, 2, 0) == "PHB");
  CHECK(nic_link(p4, 2, 2) == "SYS");
  const Topology p5 = recorded("nccl-xml/aws-p5.48xl-topo-2026-gpu-no-nvlink.xml");
  CHECK(p5.gpus[0].pcie_generation == 5);
  CHECK(p5.nics[31].name == "rdmap201s0");
  CHECK(nic_link(p5, 7, 31) == "PIX");
  CHECK(warned(p5, {"All 8 GPUs and 32 NICs", "one NUMA node", "0-47"}));
  CHECK_FALSE(warned(p4, {"one NUMA node"}));
  CHECK_FALSE(warned(recorded("nccl-xml/alibaba-4xa100-2cx6-dump.xml"), {"one NUMA node"}));
}

TEST_CASE("read_xml: a cut dump of a virtual machine keeps its intact part", "[nccl-xml]") {
  const Topology topology = recorded("nccl-xml/vm-8xh200-passthrough-dump-truncated-nvswitch-hidden.xml");
  CHECK_FALSE(topology.complete);
  CHECK(warned(topology, {"line 13", "ends before its root"}));
  CHECK(warned(topology, {"hidden by virtualisation"}));
  CHECK(warned(topology, {"numaid -1"}));
  CHECK(topology.virtual_machine == true);
  CHECK(topology.switched == true);
  CHECK_FALSE(topology.nics_known);
  REQUIRE(topology.gpus.size() == 1);  // of 8: the others are cut away
  CHECK(topology.gpus[0].numa_nodes.empty());
  CHECK(topology.gpus[0].cpu_affinity.empty());
  CHECK(topology.gpus[0].nvlinks == 18);
  CHECK(topology.gpus[0].pcie_generation == 4);
  CHECK(name_of(topology.topology_class) == "unknown");
}

TEST_CASE("read_xml: PIX, PXB, PHB and SYS between GPUs that cannot have NVLink", "[nccl-xml]") {
  const std::string first =
      bridge(0x80, bridge(0x81, gpu_of(0, "", "89") + gpu_of(1, "", "89")) + bridge(0x82, gpu_of(2, "", "89")));
  const std::string second = bridge(0x90, gpu_of(3, "", "89"));
  const std::string other =
      fmt::format(R"(<cpu numaid="1" affinity="ffffffff,00000000">{}</cpu>)", gpu_of(4, "", "89"));
  const Topology topology =
      taken(fmt::format("<system version=\"1\"><cpu numaid=\"0\" affinity=\"00000000,ffffffff\">{}{}</cpu>{}</system>",
                        first, second, other));
  CHECK(topology.complete);
  CHECK(topology.warnings.empty());
  CHECK(link(topology, 0, 0) == "X");
  CHECK(link(topology, 0, 1) == "PIX");
  CHECK(link(topology, 0, 2) == "PXB");
  CHECK(link(topology, 0, 3) == "PHB");
  CHECK(link(topology, 0, 4) == "SYS");
  CHECK(link(topology, 4, 0) == "SYS");
  CHECK_FALSE(topology.switched);
  CHECK(topology.gpus[4].cpu_affinity == "32-63");
}

TEST_CASE("read_xml: NVLinks that contradict each other are unknown", "[nccl-xml]") {
  const Topology topology =
      taken(system_of(gpu_of(0, to_gpu(1, 4) + to_gpu(2, 4)) + gpu_of(1, to_gpu(0, 3)) + gpu_of(2, to_gpu(0, 4))));
  CHECK_FALSE(topology.complete);
  CHECK(link(topology, 0, 1) == "unknown");
  CHECK(link(topology, 1, 0) == "unknown");
  CHECK(link(topology, 0, 2) == "NV4");
  CHECK(link(topology, 1, 2) == "PHB");
  CHECK(warned(topology, {"line 3", "GPU0", "4", "GPU1", "3"}));
}

TEST_CASE("read_xml: fewer links of one GPU, and one without any", "[nccl-xml]") {
  const std::string ten = R"(<nvlink target="0000:c0:00.0" count="10" tclass="0x068000"/>)";
  const Topology topology = taken(system_of(gpu_of(0, kToSwitch) + gpu_of(1, ten) + gpu_of(2, "")));
  CHECK(link(topology, 0, 1) == "NV10");
  CHECK(link(topology, 0, 2) == "PHB");
  CHECK(topology.gpus[2].nvlinks == 0);
}

TEST_CASE("read_xml: damaged attributes become unknown", "[nccl-xml]") {
  const std::string odd = R"(<nvlink target="0000:c0:00.0" count="1x" tclass="0x068000"/>)";
  const std::string strange = R"(<nvlink target="0000:c0:00.0" count="12" tclass="0x0a8000"/>)";
  const Topology topology = taken(system_of(gpu_of(0, kToSwitch) + gpu_of(1, odd) + gpu_of(2, strange) +
                                            gpu_of(3, strange) + gpu_of(4, kToSwitch)));
  CHECK_FALSE(topology.complete);
  CHECK(link(topology, 0, 1) == "unknown");
  CHECK_FALSE(topology.gpus[1].nvlinks);
  CHECK(link(topology, 2, 3) == "unknown");  // may lead to each other
  CHECK(link(topology, 0, 4) == "NV12");
  CHECK(warned(topology, {"\"1x\"", "no number of NVLinks"}));
  const Topology mask = taken(
      R"(<system><cpu numaid="x" affinity="00zz"><pci busid="0:1" class="0x030200" link_speed="99999 GT/s"/></cpu></system>)");
  CHECK(mask.gpus.at(0).numa_nodes.empty());
  CHECK(mask.gpus.at(0).cpu_affinity.empty());
  CHECK_FALSE(mask.gpus.at(0).pcie_gt_per_s);
  CHECK_FALSE(mask.complete);
}

TEST_CASE("read_xml: a count of NVLinks that no integer holds with those before it is no number of them",
          "[nccl-xml]") {
  for (const char* count : {"18446744073709551615", "18446744073709551614", "63", "65"}) {
    const std::string huge = fmt::format(R"(<nvlink target="0000:01:00.0" count="{}" tclass="0x030200"/>)", count);
    const Topology topology = taken(system_of(gpu_of(0, to_gpu(1, 2) + huge) + gpu_of(1, to_gpu(0, 2))));
    CHECK(warned(topology, {"count", count}));
    CHECK(topology.gpus.at(0).ports.empty());
    CHECK_FALSE(topology.gpus.at(0).nvlinks);
  }
}

TEST_CASE("read_xml: GPUs are numbered by dev, others by what is left", "[nccl-xml]") {
  const Topology topology = taken(system_of(
      gpu_of(2, kToSwitch) + R"(<pci busid="0000:77:00.0" class="0x030200" vendor="0x10de"/>)" + gpu_of(0, kToSwitch)));
  REQUIRE(topology.gpus.size() == 3);
  CHECK(topology.gpus[0].pci_bus_id == "0000:00:00.0");
  CHECK(topology.gpus[1].pci_bus_id == "0000:77:00.0");
  CHECK(topology.gpus[1].index == 1);
  CHECK(topology.gpus[2].index == 2);
  CHECK(warned(topology, {"no number of its own"}));
  CHECK(link(topology, 0, 2) == "NV12");
  CHECK(link(topology, 0, 1) == "unknown");  // no <gpu>: its NVLinks are not told
}

TEST_CASE("read_xml: a missing end tag makes PCIe distances unknown, NVLinks stay", "[nccl-xml]") {
  std::string text = recorded_text("nccl-xml/alibaba-8xa100-4cx6-dump.xml");
  const size_t tag = text.rfind("        </pci>");  // of the last NIC's bridge
  REQUIRE(tag != std::string::npos);
  text.erase(tag, 14);
  const Topology topology = taken(text);
  CHECK_FALSE(topology.complete);
  REQUIRE(topology.gpus.size() == 8);
  CHECK(link(topology, 0, 7) == "NV12");
  CHECK(nic_link(topology, 0, 0) == "unknown");
  CHECK(warned(topology, {"</cpu> where <pci> is open"}));
}

TEST_CASE("read_xml: text before and after the root is passed over", "[nccl-xml]") {
  const std::string inside = system_of(gpu_of(0, kToSwitch) + gpu_of(1, kToSwitch));
  for (const std::string& text : {
           fmt::format("$ cat /tmp/topo.xml\n{}$ <prompt>\n", inside),
           fmt::format("```xml\n<?xml version=\"1.0\"?>\n<!-- <system> in a comment -->\n{}```\n", inside),
           fmt::format("<REDACTED> host\n{}", inside),
           fmt::format("\xEF\xBB\xBF{}{}", inside, std::string(3, '\0')),
       }) {
    const Topology topology = taken(text);
    CHECK(topology.complete);
    CHECK(link(topology, 0, 1) == "NV12");
  }
  std::string windows;
  for (const char c : inside) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  CHECK(link(taken(windows), 0, 1) == "NV12");
}

TEST_CASE("read_xml: other XML is refused by name, other text is not taken", "[nccl-xml]") {
  const auto refused = [](const std::string& text, const std::string& part) {
    INFO(text.substr(0, 200));
    CHECK_THROWS_AS(read(text), UserError);
    CHECK_THROWS_WITH(read(text), Contains(part));
  };
  refused(recorded_text("nccl-xml/azure-ncv4-graph.xml"), "NCCL graph");
  refused("<?xml version=\"1.0\"?><nvidia_smi_log><gpu/></nvidia_smi_log>", "<nvidia_smi_log>");
  refused("<!DOCTYPE html>\n<html><body>topology</body></html>", "<html>");
  refused(
      R"(<system><cpu numaid="0"><pci busid="0000:01:00.0" class="0x038000" vendor="0x1002"><gpu dev="0" sm="94"/></pci></cpu></system>)",
      "other GPUs than NVIDIA's");
  refused(R"(<system><cpu numaid="0" host_hash="0x1"/><cpu numaid="0" host_hash="0x2"/></system>)", "several machines");
  refused("<system version=", "cannot be read");
  CHECK_FALSE(read("GPU0 <-> GPU1"));
  CHECK_FALSE(read("<b>bold"));
  CHECK_FALSE(read(""));
  CHECK_FALSE(read("systems <systemd.unit> and <topologyx>"));
}

TEST_CASE("read_xml: sizes are bounded", "[nccl-xml]") {
  std::string many;
  for (int i = 0; i < 65; ++i) many += gpu_of(i, "");
  CHECK_THROWS_WITH(read(system_of(many)), Contains("more than 64 GPUs"));
  std::string nics;
  for (int i = 0; i < 257; ++i) nics += "<pci busid=\"0\" class=\"0x020000\"/>";
  CHECK_THROWS_WITH(read(system_of(nics)), Contains("more than 256 NICs"));
  std::string cpus;
  for (int i = 0; i < 300; ++i) cpus += "<cpu numaid=\"0\"/>";
  CHECK_THROWS_WITH(read(fmt::format("<system>{}</system>", cpus)), Contains("more than 256 <cpu>"));
  std::string deep = "<system>";
  for (int i = 0; i < 100000; ++i) deep += "<pci class=\"0x060400\">";
  CHECK_THROWS_WITH(read(deep), Contains("nested deeper than 64"));
  std::string tags = "<system>";
  for (int i = 0; i < 1100000; ++i) tags += "<a/>";
  CHECK_THROWS_WITH(read(tags), Contains("tags and attributes"));
  std::string comments(4 << 20, '<');
  for (size_t i = 0; i + 4 < comments.size(); i += 4) comments.replace(i, 4, "<!--");
  CHECK_FALSE(read(comments));  // in time: no quadratic search for their ends
}

TEST_CASE("read_xml: entities are not expanded", "[nccl-xml]") {
  const std::string declared =
      "<?xml version=\"1.0\"?><!DOCTYPE system [<!ENTITY a SYSTEM \"file:///etc/passwd\"><!ENTITY b \"&a;&a;&a;\">]>";
  const Topology topology = taken(
      declared +
      R"(<system><cpu numaid="0"><pci busid="1" class="0x020000"><nic><net name="&b;&amp;"/></nic></pci></cpu></system>)");
  CHECK(topology.nics.at(0).name == "&b;&");
}

TEST_CASE("read_xml: cut anywhere, nothing is told that the whole file does not tell", "[nccl-xml][hwloc-xml][cut]") {
  for (const char* const name : {"alibaba-4xa100-2cx6-dump", "azure-ncv4-topo-pairs", "aws-p4d-24xl-topo",
                                 "hwloc-power8-4xp100-cuda-nvml-nvlinkbandwidth"}) {
    const std::string text = recorded_text(fmt::format("nccl-xml/{}.xml", name));
    const Topology whole = taken(text);
    const size_t end = text.find_last_of('>');
    for (size_t cut = text.find("<system") == std::string::npos ? text.find("<topology") : text.find("<system");
         cut < end; cut += 3) {
      INFO(name << " cut at " << cut);
      std::optional<Topology> part;
      try {
        part = read(text.substr(0, cut));
      } catch (const UserError&) {
        continue;
      }
      if (!part) continue;  // before the root's name ends
      REQUIRE_FALSE(part->complete);
      REQUIRE_FALSE(part->warnings.empty());
      REQUIRE(part->gpus.size() <= whole.gpus.size());
      for (size_t i = 0; i < part->gpus.size(); ++i) {
        const topology::Gpu& gpu = part->gpus[i];
        const topology::Gpu& original = whole.gpus[i];
        REQUIRE(gpu.pci_bus_id == original.pci_bus_id);
        REQUIRE((!gpu.nvlinks || gpu.nvlinks == original.nvlinks));
        REQUIRE((gpu.numa_nodes.empty() || gpu.numa_nodes == original.numa_nodes));
        REQUIRE((gpu.cpu_affinity.empty() || gpu.cpu_affinity == original.cpu_affinity));
        for (size_t j = 0; part->links && j < part->gpus.size(); ++j) {
          if ((*part->links)[i][j]) REQUIRE((*part->links)[i][j] == (*whole.links)[i][j]);
        }
      }
    }
  }
}
