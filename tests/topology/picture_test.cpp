// Topologies as SVG: well-formed, complete, and laid out so that no text lies on another.
#include "topology/draw/picture.hpp"

#include <filesystem>
#include <locale>
#include <set>

#include <pugixml.hpp>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/drawing.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Picture;
using topology::PictureItem;
using topology::Topology;

namespace {

pugi::xml_document parsed(const Topology& topology) {
  const std::string svg = topology_svg(topology);
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(svg.data(), svg.size(), pugi::parse_default);
  INFO(result.description() << " at " << result.offset);
  REQUIRE(result);
  CHECK(std::string(document.document_element().name()) == "svg");
  return document;
}

/// How many elements have that class and, if given, that data attribute.
size_t count_of(const pugi::xml_document& svg, const std::string& css, const std::string& key = "",
                const std::string& value = "") {
  size_t count = 0;
  for (const pugi::xml_node& item : svg.document_element().children("g")) {
    const bool same = key.empty() || item.attribute(("data-" + key).c_str()).value() == value;
    if (item.attribute("class").value() == css && same) ++count;
  }
  return count;
}

Topology named(Topology topology, const std::string& name) {
  for (topology::Gpu& gpu : topology.gpus) gpu.name = name;
  return topology;
}

Topology on_nodes(Topology topology, const std::vector<int>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) topology.gpus[i].numa_nodes = {nodes[i]};
  return topology;
}

TEST_CASE("topology_svg: GPUs on switches hang on one bar, each by one line with its count") {
  const Topology machine =
      understood(on_nodes(named(joined(8, "NV12"), "NVIDIA A100-SXM4-80GB"), {0, 0, 0, 0, 1, 1, 1, 1}));
  const pugi::xml_document svg = parsed(machine);
  CHECK(count_of(svg, "gpu") == 8);
  CHECK(count_of(svg, "bar", "link", "NVSwitch") == 1);
  CHECK(count_of(svg, "link", "link", "NV12") == 8);
  CHECK(count_of(svg, "area") == 2);
  CHECK(topology_svg(machine).find("NVSwitch · 12 NVLinks from each GPU · 300 GB/s each way") != std::string::npos);
  CHECK(topology_svg(machine).find("dashed\"") == std::string::npos);
}

TEST_CASE("topology_svg: a weak link to the switches is dashed and says so, a missing one too") {
  Topology machine = named(joined(8, "NV18"), "NVIDIA H100 80GB HBM3");
  for (int other = 0; other < 8; ++other) {
    if (other != 2) join(machine, 2, other, other < 4 ? "NODE" : "SYS");
    if (other != 5 && other != 2) join(machine, 5, other, "NV16");
  }
  const std::string svg = topology_svg(understood(machine));
  CHECK(svg.find(">NV16 of 18</text>") != std::string::npos);
  CHECK(svg.find(">no NVLink</text>") != std::string::npos);
  CHECK(svg.find("\"nv dashed\"") != std::string::npos);
  const pugi::xml_document document = parsed(understood(machine));
  CHECK(count_of(document, "link", "link", "none") == 1);
  CHECK(count_of(document, "bar", "link", "NODE") == 1);
  CHECK(count_of(document, "bar", "link", "SYS") == 1);
}

TEST_CASE("topology_svg: pairs are linked directly, and meet others over PCIe") {
  const Topology machine = recorded("nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt");
  const pugi::xml_document svg = parsed(machine);
  CHECK(count_of(svg, "gpu") == 4);
  CHECK(count_of(svg, "link", "link", "NV12") == 2);
  CHECK(count_of(svg, "bar", "link", "SYS") == 1);
  CHECK(count_of(svg, "area") == 4);
}

TEST_CASE("topology_svg: a cube mesh has its 16 lines, and a bar for the 12 pairs without") {
  const Topology machine = recorded("nvidia-smi/slurm-8xv100-hcm-srun-noise.txt");
  const pugi::xml_document svg = parsed(machine);
  CHECK(count_of(svg, "link", "link", "NV1") + count_of(svg, "link", "link", "NV2") == 16);
  CHECK(count_of(svg, "label") == 16);
  CHECK(count_of(svg, "bar", "link", "SYS") == 1);
  CHECK(topology_svg(machine).find("12 pairs without a line") != std::string::npos);
  CHECK(count_of(svg, "nic") == 4);  // of GPUs 2, 3, 6 and 7
}

TEST_CASE("topology_svg: PCIe is a tree of islands") {
  const Topology machine = recorded("nvidia-smi/wrx90-8x-rtxpro6000-pix-pxb-node.txt");
  const pugi::xml_document svg = parsed(machine);
  CHECK(count_of(svg, "bar", "link", "PIX") == 4);
  CHECK(count_of(svg, "bar", "link", "PXB") == 2);
  CHECK(count_of(svg, "bar", "link", "NODE") == 1);
  CHECK(count_of(svg, "link") == 0);
  CHECK(count_of(svg, "bar", "gpus", "4 5") == 1);
}

TEST_CASE("topology_svg: pairs that nobody knows make a bar dashed, or one of their own") {
  const Topology cut = recorded("nvidia-smi/envdump-8gpu-pix-pxb-truncated-mid-row.txt");
  CHECK(topology_svg(cut).find("1 pair unknown") != std::string::npos);
  CHECK(topology_svg(cut).find("pix dashed") != std::string::npos);
  Topology silent = joined(4, "");
  silent.links.reset();
  const pugi::xml_document svg = parsed(understood(silent));
  CHECK(count_of(svg, "gpu") == 4);
  CHECK(count_of(svg, "bar", "link", "unknown") == 1);
}

TEST_CASE("topology_svg: a matrix that is no tree is not drawn as if it were one") {
  Topology odd = joined(3, "PIX");
  join(odd, 0, 2, "SYS");
  CHECK(topology_svg(understood(odd)).find("1 pair farther") != std::string::npos);
}

TEST_CASE("topology_svg: 16 GPUs on switches stand in two rows, and unknown cells mark their lines") {
  const Topology machine = recorded("nvidia-smi/dgx2-16xv100-nv6-10hca-truncated.txt");
  const Picture picture = picture_of(machine);
  std::set<double> rows;
  for (const PictureItem& item : picture.items) {
    if (item.css == "gpu") rows.insert(item.boxes.front().y);
  }
  CHECK(rows.size() == 2);
  const std::string svg = topology_svg(machine);
  CHECK(svg.find(">NV6 ?</text>") != std::string::npos);
  CHECK(svg.find("The source is cut or damaged") != std::string::npos);
}

TEST_CASE("topology_svg: a NIC is far only where all its paths are known") {
  Topology machine = joined(2, "PHB");
  machine.nics = {{.name = "near"}, {.name = "far"}, {.name = "dark"}};
  machine.nic_links.emplace(2, std::vector<std::optional<topology::Path>>(3));
  (*machine.nic_links)[0] = {topology::path_of("PIX"), topology::path_of("SYS"), topology::path_of("SYS")};
  (*machine.nic_links)[1] = {topology::path_of("PIX"), topology::path_of("NODE"), std::nullopt};
  const std::string svg = topology_svg(understood(machine));
  CHECK(svg.find("Not near any GPU (farther than PHB): far.") != std::string::npos);
  CHECK(count_of(parsed(understood(machine)), "nic") == 1);  // shared by both GPUs
}

TEST_CASE("topology_svg: text of any origin is escaped") {
  Topology machine = joined(2, "PHB");
  machine.gpus[0].name = "<script>\"a\" & 'b'</script>\x01";
  machine.gpus[1].cpu_affinity = "]]>\xff";
  machine.gpus[0].numa_nodes = machine.gpus[1].numa_nodes = {0};
  machine.nics = {{.name = "\"><g onload='x'>"}};
  machine.nic_links.emplace(2, std::vector<std::optional<topology::Path>>(1, topology::path_of("PIX")));
  machine.host = "--><svg>";
  const std::string svg = topology_svg(understood(machine));
  CHECK(svg.find("<script") == std::string::npos);
  CHECK(svg.find("<g onload") == std::string::npos);
  const pugi::xml_document document = parsed(understood(machine));
  const std::string title = document.document_element().child("title").text().get();
  CHECK(title.find("<script>\"a\" & 'b'</script>?") != std::string::npos);
}

TEST_CASE("topology_svg: has a title and a description, scales, and needs nothing from outside") {
  const std::string svg = topology_svg(recorded("nvidia-smi/onprem-8xh200-8nic-trailing-tabs.txt"));
  const pugi::xml_document document = parsed(recorded("nvidia-smi/onprem-8xh200-8nic-trailing-tabs.txt"));
  const pugi::xml_node root = document.document_element();
  CHECK(std::string(root.first_child().name()) == "title");
  CHECK(std::string(root.child("desc").text().get()).find("28 pairs NV18") != std::string::npos);
  CHECK(root.attribute("viewBox"));
  CHECK_FALSE(root.attribute("width"));
  CHECK(svg.find("prefers-color-scheme: dark") != std::string::npos);
  CHECK(svg.find("http", svg.find("xmlns") + 40) == std::string::npos);
  CHECK(svg.find("url(") == std::string::npos);
}

class CommaPoint : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST_CASE("topology_svg: the same text in every locale and every time") {
  const Topology machine = recorded("nvidia-smi/slurm-8xv100-hcm-srun-noise.txt");
  const std::string here = topology_svg(machine);
  CHECK(here == topology_svg(machine));
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new CommaPoint));
  const std::string there = topology_svg(machine);
  std::locale::global(before);
  CHECK(here == there);
}

TEST_CASE("topology_svg: every recorded machine is well-formed and has all of its GPUs") {
  for_recorded([](const Topology& machine) { CHECK(count_of(parsed(machine), "gpu") == machine.gpus.size()); });
}

}  // namespace
