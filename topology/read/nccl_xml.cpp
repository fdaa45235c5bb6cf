// NCCL's topology, given to it (NCCL_TOPO_FILE) or dumped by it. A dump knows NVLinks; the files that providers of
// machines write mostly do not, since NCCL asks NVML for them when it runs: such a file says nothing about NVLinks.
#include "topology/read/nccl_xml.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/host.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/reading.hpp"
#include "topology/read/xml_document.hpp"

namespace shardscope::topology {
namespace {

using Remote = NvLinkPort::Remote;

constexpr unsigned long kMostLinks = 64;  // of one <nvlink>: Blackwell has 18 in all

constexpr size_t kMostCpus = 256;  // NUMA nodes

struct Cpu {
  int numa = -1;
  std::vector<int> cores;
  size_t mask_bits = 0;  // that the affinity mask is wide
  std::string host;
};

class NcclReader {
 public:
  NcclReader(const XmlDocument& document, const std::string& file) : document_(document), file_(file) {
    topology_.source = SourceKind::kNcclXml;
    topology_.file = file;
  }

  Topology read() {
    walk(document_.root(), {});
    const std::optional<XmlFault>& fault = document_.fault();
    if (fault) {
      system_.nesting_trusted = system_.nesting_trusted && fault->cut;
      topology_.nics_known = false;
      faults_.fault(fmt::format("line {}: {}: what the XML holds from there on is unknown{}; {} GPUs stand before it",
                                fault->line, fault->what, fault->cut ? "" : ", and PCIe distances cannot be trusted",
                                system_.gpus.size()));
    }
    number_gpus(system_, faults_);
    fill_links();
    warn_of_numa();
    for (NcclGpu& each : system_.gpus) topology_.gpus.push_back(std::move(each.gpu));
    for (NcclNic& each : system_.nics) topology_.nics.push_back(std::move(each.nic));
    topology_.gpu_count = static_cast<int>(topology_.gpus.size());
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  /// Nesting is limited to 64 by XmlDocument.
  void walk(const pugi::xml_node& parent, const NcclPlace& place) {
    for (const pugi::xml_node& node : parent.children()) {
      const std::string_view name = node.name();
      if (name == "cpu") {
        NcclPlace inside = place;
        inside.cpu = add_cpu(node);
        walk(node, inside);
      } else if (name == "pci") {
        read_pci(node, place);
      } else if (name == "nic") {
        // Below a <cpu>: a NIC without a PCI device, which NCCL hangs below the first <cpu>, wherever it is.
        add_nics(node, {.known = false}, "");
      }
    }
  }

  int add_cpu(const pugi::xml_node& node) {
    Cpu cpu;
    const std::string_view numa = node.attribute("numaid").value();
    if (const std::optional<int64_t> id = count_of(numa); id && *id < 1024) cpu.numa = static_cast<int>(*id);
    const std::string_view mask = node.attribute("affinity").value();
    if (const auto cores = nccl_mask(mask)) {
      cpu.cores = *cores;
      cpu.mask_bits = 4 * static_cast<size_t>(std::count_if(mask.begin(), mask.end(), [](char c) { return c != ','; }));
    } else {
      faults_.fault(fmt::format("line {}: the affinity {} is no mask", document_.line_of(node), quoted(mask)));
    }
    if (cpus_.size() == kMostCpus) {
      throw UserError(fmt::format("more than {} <cpu> elements", kMostCpus), file_, "give the topology of one machine");
    }
    cpu.host = node.attribute("host_hash").value();
    if (topology_.platform.empty() && !node.attribute("vendor").empty()) {
      topology_.platform = fmt::format("{} family {} model {}", bounded_name(node.attribute("vendor").value()),
                                       node.attribute("familyid").as_int(), node.attribute("modelid").as_int());
    }
    if (!cpus_.empty() && cpus_.front().host != cpu.host) {
      throw UserError("an NCCL topology of several machines is not read", file_,
                      "dump that of one machine: run within it alone");
    }
    cpus_.push_back(std::move(cpu));
    return static_cast<int>(cpus_.size()) - 1;
  }

  void read_pci(const pugi::xml_node& node, NcclPlace place) {
    const std::string kind = lower_name(node.attribute("class").value());
    const std::string vendor = lower_name(node.attribute("vendor").value());
    const pugi::xml_node gpu = node.child("gpu");
    const bool nvidia = vendor.empty() || vendor == "0x10de";
    if (!gpu.empty() && (!nvidia || !gpu.child("xgmi").empty() || !gpu.attribute("gcn").empty())) {
      throw UserError("a topology of other GPUs than NVIDIA's (RCCL's, by its <gpu>) is not read",
                      fmt::format("{}, line {}", file_, document_.line_of(node)), "give a file of NVIDIA GPUs");
    }
    const bool by_class = kind.starts_with("0x0302") || kind.starts_with("0x0300");
    if ((by_class && nvidia) || !gpu.empty()) {
      if (!by_class) {
        faults_.fault(
            fmt::format("line {}: a device with <gpu> is of class {}", document_.line_of(node), quoted(kind)));
      }
      add_gpu(node, gpu, place);
      const size_t devices = system_.gpus.size() + system_.nics.size();
      walk(node, place);
      // Nothing stands below a GPU: an end tag is missing.
      if (system_.gpus.size() + system_.nics.size() != devices) system_.nesting_trusted = false;
    } else if (kind.starts_with("0x0200") || kind.starts_with("0x0207")) {
      add_nics(node.child("nic"), place, lower_name(node.attribute("busid").value()));
    } else {
      if (kind.starts_with("0x0604")) {
        place.bridges.push_back(next_bridge_++);
      } else if (!kind.starts_with("0x0680")) {
        faults_.note(fmt::format("line {}: a device of class {} is neither GPU, NIC nor bridge",
                                 document_.line_of(node), quoted(kind)));
      }
      walk(node, place);
    }
  }

  void add_gpu(const pugi::xml_node& node, const pugi::xml_node& element, const NcclPlace& place) {
    if (system_.gpus.size() == kMostGpus) {
      throw UserError(fmt::format("more than {} GPUs", kMostGpus),
                      fmt::format("{}, line {}", file_, document_.line_of(node)), "give the topology of one machine");
    }
    NcclGpu each;
    each.place = place;
    each.line = document_.line_of(node);
    Gpu& gpu = each.gpu;
    gpu.pci_bus_id = lower_name(node.attribute("busid").value());
    for (const NcclGpu& other : system_.gpus) {
      if (other.gpu.pci_bus_id != gpu.pci_bus_id) continue;
      faults_.fault(
          fmt::format("line {}: the GPU {} stands in line {} already", each.line, quoted(gpu.pci_bus_id), other.line));
      return;
    }
    if (place.cpu >= 0) {
      const Cpu& cpu = cpus_[static_cast<size_t>(place.cpu)];
      if (cpu.numa >= 0) gpu.numa_nodes = {cpu.numa};
      gpu.cpu_affinity = core_list_text(cpu.cores);
    }
    gpu.pcie_gt_per_s = nccl_speed(node.attribute("link_speed").value());
    if (gpu.pcie_gt_per_s) gpu.pcie_generation = pcie_generation_of(*gpu.pcie_gt_per_s);
    const std::optional<int64_t> width = count_of(node.attribute("link_width").value());
    if (width && *width > 0 && *width <= 32) gpu.pcie_width = static_cast<int>(*width);
    made_by_hand_ = made_by_hand_ || node.attribute("device").empty();
    read_gpu(element, each);
    system_.gpus.push_back(std::move(each));
  }

  void read_gpu(const pugi::xml_node& element, NcclGpu& each) {
    if (element.empty()) return;
    const std::optional<int64_t> device = count_of(element.attribute("dev").value());
    if (device && *device <= kLargestGpuIndex) each.device = static_cast<int>(*device);
    const std::optional<int64_t> sm = count_of(element.attribute("sm").value());
    if (sm && *sm >= 10 && *sm < 1000) each.gpu.compute = fmt::format("{}.{}", *sm / 10, *sm % 10);
    each.links_told = !document_.is_open(element);
    for (const pugi::xml_node& node : element.children("nvlink")) {
      if (!add_ports(node, each.gpu)) each.links_told = false;
    }
    has_nvlink_ = has_nvlink_ || !element.child("nvlink").empty();
    if (!each.links_told) each.gpu.ports.clear();
  }

  bool add_ports(const pugi::xml_node& node, Gpu& gpu) {
    const std::optional<unsigned long> count = xml_number(node.attribute("count").value());
    const size_t ports = gpu.ports.size();
    if (!count || *count == 0 || *count > kMostLinks - ports) {
      faults_.fault(fmt::format("line {}: the count {} is no number of NVLinks: those of {} are unknown",
                                document_.line_of(node), quoted(node.attribute("count").value()),
                                quoted(gpu.pci_bus_id)));
      return false;
    }
    NvLinkPort port{.active = true, .remote_bus_id = lower_name(node.attribute("target").value())};
    // NCCL's own order: kvDictPciClass of its graph/topo.cc.
    const std::string kind = lower_name(node.attribute("tclass").value());
    if (kind == "0x068001") {
      port.remote = Remote::kCpu;
    } else if (kind.starts_with("0x0680")) {
      port.remote = Remote::kSwitch;
    } else if (kind.starts_with("0x03")) {
      port.remote = Remote::kGpu;
    } else {
      faults_.fault(
          fmt::format("line {}: the class {} of an NVLink's target is unknown", document_.line_of(node), quoted(kind)));
    }
    hidden_switch_ = hidden_switch_ || (port.remote == Remote::kSwitch && port.remote_bus_id.starts_with("fffffff:"));
    for (unsigned long i = 0; i < *count; ++i) {
      port.link = static_cast<int>(gpu.ports.size());
      gpu.ports.push_back(port);
    }
    return true;
  }

  void add_nics(const pugi::xml_node& element, const NcclPlace& place, const std::string& bus_id) {
    std::vector<std::string> names;
    for (const pugi::xml_node& net : element.children("net"))
      names.push_back(bounded_name(net.attribute("name").value()));
    if (names.empty() && !bus_id.empty()) names.push_back(bus_id);
    for (const std::string& name : names) {
      if (system_.nics.size() == kMostNics) {
        throw UserError(fmt::format("more than {} NICs", kMostNics), file_, "give the topology of one machine");
      }
      NcclNic each;
      each.place = place;
      each.nic.name = name;
      if (name != bus_id) each.nic.device = name;
      if (place.known && place.cpu >= 0 && cpus_[static_cast<size_t>(place.cpu)].numa >= 0) {
        each.nic.numa_node = cpus_[static_cast<size_t>(place.cpu)].numa;
      }
      system_.nics.push_back(std::move(each));
    }
  }

  void fill_links() {
    if (!system_.gpus.empty() && !system_.nics.empty()) topology_.nic_links = nccl_nic_links(system_);
    const auto told = [](const NcclGpu& each) { return each.links_told; };
    const bool none_can = std::all_of(system_.gpus.begin(), system_.gpus.end(), [&](const NcclGpu& each) {
      return told(each) && never_has_nvlink(each.gpu.compute);
    });
    if (system_.gpus.empty()) return;
    if (!has_nvlink_ && !none_can) {
      if (!document_.fault() || document_.fault()->cut) {
        faults_.note(
            "The file lists no NVLinks: files that providers write for NCCL leave them out, since NCCL asks the driver "
            "for "
            "them. Whether the GPUs are linked is unknown; nvidia-smi topo -m tells");
      }
      return;
    }
    for (NcclGpu& each : system_.gpus) {
      if (each.links_told) each.gpu.nvlinks = static_cast<int>(each.gpu.ports.size());
      for (const NvLinkPort& port : each.gpu.ports) {
        topology_.switched = topology_.switched.value_or(false) || port.remote == Remote::kSwitch;
      }
    }
    topology_.links = nccl_gpu_links(system_, faults_);
    if (!hidden_switch_) return;
    // NVSwitches of a rack (compute capability 10.0 on) can stand outside of the machine: no proof of a virtual one.
    const std::string compute = system_.gpus.front().gpu.compute.value_or("");
    if (compute.size() == 3) topology_.virtual_machine = true;
    faults_.note(
        "NVLinks lead to a device that this machine does not see (fffffff:ff:ff.0): an NVSwitch hidden by "
        "virtualisation. NUMA nodes, PCIe distances and link speeds of such a machine need not be the hardware's");
  }

  void warn_of_numa() {
    std::set<int> used;
    for (const NcclGpu& each : system_.gpus) used.insert(each.place.cpu);
    if (used.size() != 1 || *used.begin() < 0) return;
    const Cpu& cpu = cpus_[static_cast<size_t>(*used.begin())];
    if (cpu.numa < 0) {
      faults_.note("The file does not tell NUMA nodes (numaid -1, as in virtual machines)");
      return;
    }
    // A dump lists only the nodes that its GPUs and NICs hang below, so that one node alone is odd only where it holds
    // a whole machine's GPUs, or where the file was written by hand (devices without identity).
    if (system_.gpus.size() < 2 || cpus_.size() != 1 || (system_.gpus.size() < 8 && !made_by_hand_)) return;
    if (cpu.mask_bits < cpu.cores.size() + 32) return;
    faults_.note(
        fmt::format("All {} GPUs{} stand below one NUMA node ({}), whose cores {} are only a part of the {} that the "
                    "mask has room for. "
                    "If the machine has another node, NUMA nodes and PHB distances are wrong for the GPUs there",
                    system_.gpus.size(), system_.nics.empty() ? "" : fmt::format(" and {} NICs", system_.nics.size()),
                    cpu.numa, core_list_text(cpu.cores), cpu.mask_bits));
  }

  const XmlDocument& document_;
  const std::string& file_;
  Topology topology_;
  Faults faults_;
  NcclSystem system_;
  std::vector<Cpu> cpus_;
  int next_bridge_ = 0;
  bool has_nvlink_ = false, hidden_switch_ = false, made_by_hand_ = false;
};

}  // namespace

Topology read_nccl_system(const XmlDocument& document, const std::string& file) {
  return NcclReader(document, file).read();
}

}  // namespace shardscope::topology
