#include "tests/emulation/fakes/machine_table.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "tests/emulation/fakes/machine_words.hpp"

namespace shardscope::test {
namespace {

using namespace emulation;
using Json = nlohmann::json;
using Catch::Matchers::Contains;

const std::string kFolder = SHARDSCOPE_TEST_DATA "/emulation/";

/// What reading this table says against it; "" if it is taken.
std::string refusal(const std::string& json) {
  try {
    static_cast<void>(parse_table(json, "machine.json"));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("machine table: models have the data sheets' bandwidth, and what every model has") {
  struct Row {
    const char* key;
    double gb_per_s;  // data sheet
    double gib;
    int multiprocessors, links;
    int shared_for_system = 1024;
  };
  for (const Row& row :
       {Row{"a100", 2039, 80, 108, 12}, Row{"a100-40gb", 1555, 40, 108, 12}, Row{"h100", 3350, 80, 132, 18},
        Row{"h200", 4800, 141, 132, 18}, Row{"v100", 900, 16, 80, 6, 0}, Row{"rtx-4090", 1008, 24, 128, 0}}) {
    INFO(row.key);
    const GpuModel* const model = find_model(row.key);
    REQUIRE(model != nullptr);
    const double gb_per_s = 2.0 * model->memory_clock_khz * 1e3 * model->memory_bus_bits / 8 / 1e9;
    CHECK(std::abs(gb_per_s - row.gb_per_s) <= 0.03 * row.gb_per_s);
    // A sheet's "80 GB" is between 80e9 bytes and 80 GiB; 141 GB are 141e9.
    CHECK(static_cast<double>(model->memory_bytes) >= row.gib * 1e9);
    CHECK(static_cast<double>(model->memory_bytes) <= row.gib * (1 << 30));
    CHECK(model->frame_buffer_bytes > model->memory_bytes);
    CHECK(model->multiprocessors == row.multiprocessors);
    CHECK(model->links == row.links);
    CHECK(model->shared_bytes_per_multiprocessor == model->most_shared_bytes_per_block + row.shared_for_system);
  }
  CHECK(find_model("h1000") == nullptr);
}

TEST_CASE("machine table: a node of 1 to 8 equal GPUs is told apart by UUID and bus, and all reach all") {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (const char* key : {"a100", "h200", "v100", "rtx-4090"}) {
      const MachineTable table = make_table(key, gpus);
      REQUIRE(table.gpus.size() == static_cast<size_t>(gpus));
      CHECK_NOTHROW(check_table(table, "here"));
      std::set<std::string> uuids, buses;
      for (const Gpu& gpu : table.gpus) {
        uuids.insert(gpu.uuid);
        buses.insert(gpu.pci_bus_id);
        CHECK(gpu.links == std::vector<NvLink>(static_cast<size_t>(gpu.model->links)));
      }
      CHECK(uuids.size() == table.gpus.size());
      CHECK(buses.size() == table.gpus.size());
      CHECK(std::all_of(table.peers.begin(), table.peers.end(), [&](const auto& row) {
        return row == std::vector<PeerAccess>(table.gpus.size(), PeerAccess::kWorks);
      }));
    }
  }
  const MachineTable whole = make_table("h100", 8);
  CHECK(make_table("h100", 8) == whole);
  CHECK(std::equal(whole.gpus.begin(), whole.gpus.begin() + 3, make_table("h100", 3).gpus.begin()));
  CHECK(whole.gpus[3].numa_node == 0);
  CHECK(whole.gpus[4].numa_node == 1);
  CHECK(whole.distances[0][3] == Distance::kNode);
  CHECK(whole.distances[3][4] == Distance::kSys);
  CHECK(whole.gpus[0].uuid != make_table("a100", 1).gpus[0].uuid);
  CHECK_THROWS_WITH(make_table("h100", 9), Contains("9 GPUs") && Contains("1 to 8"));
  CHECK_THROWS_WITH(make_table("h100", 0), Contains("0 GPUs"));
  CHECK_THROWS_WITH(make_table("k80", 1), Contains("k80") && Contains("a100, a100-40gb, h100, h200"));
}

TEST_CASE("machine table: a file says only what differs") {
  const MachineTable table = parse_table(R"({"gpus": [{"model": "h100"}, {"model": "h100"}]})", "two.json");
  CHECK(table == make_table("h100", 2));
  const MachineTable far =
      parse_table(R"({"gpus": [{"model": "h100"}, {"model": "h100", "numa_node": 1}]})", "far.json");
  CHECK(far.distances[0][1] == Distance::kSys);
}

TEST_CASE("machine table: the files of broken machines say what they are about") {
  const MachineTable degraded = read_table(kFolder + "h100-degraded.json");
  CHECK(std::count_if(degraded.gpus[2].links.begin(), degraded.gpus[2].links.end(),
                      [](const NvLink& link) { return link.active; }) == 17);
  CHECK(degraded.gpus[4].clock_reasons == 0x48);
  CHECK(degraded.gpus[5].fabric == Fabric::kInProgress);
  CHECK(degraded.gpus[6].processes == std::vector<GpuProcess>{{.pid = 4242, .used_mib = 20480}});

  const MachineTable lossy = read_table(kFolder + "pcie-loses-writes.json");
  CHECK(lossy.peers[0][1] == PeerAccess::kLosesWrites);
  CHECK(lossy.peers[1][0] == PeerAccess::kWorks);
  CHECK(lossy.peers[2][3] == PeerAccess::kNone);
  CHECK(lossy.distances[0][3] == Distance::kPhb);
  CHECK(lossy.gpus[0].links.empty());

  const MachineTable bridges = read_table(kFolder + "bridge-pairs.json");
  CHECK(bridges.gpus[3].links == std::vector<NvLink>{{.to = 2}, {.to = 2, .active = false}});

  const MachineTable mixed = read_table(kFolder + "mixed-cloud.json");
  CHECK(mixed.gpus[0].model->key == "a100-40gb");
  CHECK(mixed.gpus[2].model->key == "h200");
  CHECK(mixed.gpus[1].mig);
  CHECK(mixed.cuda_driver_version == 12040);
  CHECK(mixed.failing.at("nvmlDeviceGetP2PStatus") == "NOT_SUPPORTED");
}

TEST_CASE("machine table: what is written is read again, whole") {
  std::vector<MachineTable> tables = {make_table("a100", 1), make_table("h200", 8)};
  for (const char* name : {"h100-degraded", "pcie-loses-writes", "bridge-pairs", "mixed-cloud", "azure-nc-a100-pairs",
                           "v100-cube-mesh", "rtx-4090-eight", "a100-mesh"}) {
    tables.push_back(read_table(kFolder + name + ".json"));
  }
  tables.push_back(make_table("v100", 8));
  tables.back().gpus[3].links[2].hidden = true;
  for (const MachineTable& table : tables) CHECK(parse_table(table_json(table), "again") == table);
}

TEST_CASE("machine table: every member of a file changes the table, so that none is read and forgotten") {
  const MachineTable plain = make_table("h100", 2);
  const std::pair<const char*, Json> members[] = {{"model", "h200"},
                                                  {"uuid", "GPU-01234567-89ab-cdef-0123-456789abcdef"},
                                                  {"pci_bus_id", "00000000:01:00.0"},
                                                  {"numa_node", 1},
                                                  {"links", Json::array()},
                                                  {"pcie_generation", 3},
                                                  {"pcie_width", 8},
                                                  {"mig", true},
                                                  {"fabric", "not-started"},
                                                  {"clock_khz", 345000},
                                                  {"memory_clock_khz", 345000},
                                                  {"clock_reasons", {"sw-power-cap"}},
                                                  {"temperature_celsius", 80},
                                                  {"power_milliwatts", 699'000},
                                                  {"power_limit_milliwatts", 500'000},
                                                  {"persistence", false},
                                                  {"cpu_affinity", "0-3,8"},
                                                  {"failing", {{"nvmlDeviceGetName", "GPU_IS_LOST"}}},
                                                  {"processes", {{{"pid", 7}, {"used_mib", 8}}}}};
  std::set<std::string> seen;
  for (const auto& [name, value] : members) {
    INFO(name);
    Json document = Json::parse(table_json(plain));
    REQUIRE(document["gpus"][0].contains(name));
    if (std::string(name) == "model") document["gpus"][0].erase("links");
    document["gpus"][0][name] = value;
    const MachineTable table = parse_table(document.dump(), "changed");
    CHECK_FALSE(table.gpus[0] == plain.gpus[0]);
    CHECK(table.gpus[1] == plain.gpus[1]);
    seen.insert(name);
  }
  CHECK(seen.size() == Json::parse(table_json(plain))["gpus"][0].size());
}

TEST_CASE("machine table: what is wrong in a file is refused in one line that names file, key and what is allowed") {
  struct Row {
    const char* json;
    std::vector<std::string> said;
  };
  const Row rows[] = {
      {"", {"no JSON", "machine.json"}},
      {"[]", {"the table is []", "an object"}},
      {"{}", {"gpus is missing"}},
      {R"({"gpus": []})", {"gpus is []", "an array of 1 to 8"}},
      {R"({"gpus": [{}]})", {"gpus[0].model is missing"}},
      {R"({"gpus": [{"model": "b300"}]})", {R"(gpus[0].model is "b300")", "a100, a100-40gb, h100, h200"}},
      {R"({"gpus": [{"model": 100}]})", {"gpus[0].model is 100", "a100"}},
      {R"({"gpus": [{"model": "h100", "speed": 1}]})", {R"(unknown key "speed" in gpus[0])", "uuid"}},
      {R"({"gpus": [{"model": "h100"}], "peer": 1})", {R"(unknown key "peer")", "peers"}},
      {R"({"gpus": [{"model": "h100"}], "gpus": []})", {R"("gpus" stands twice)"}},
      {R"({"gpus": [{"model": "h100", "numa_node": "0"}]})",
       {R"(gpus[0].numa_node is "0")", "an integer from -1 to 63"}},
      {R"({"gpus": [{"model": "h100", "numa_node": 64}]})", {"gpus[0].numa_node is 64", "from -1 to 63"}},
      {R"({"gpus": [{"model": "h100", "numa_node": 0.0}]})", {"gpus[0].numa_node is 0.0"}},
      {R"({"gpus": [{"model": "h100", "numa_node": 18446744073709551615}]})", {"18446744073709551615", "-1 to 63"}},
      {R"({"gpus": [{"model": "h100", "cpu_affinity": "0-3,"}]})", {R"(gpus[0].cpu_affinity is "0-3,")", "0-23,48-71"}},
      {R"({"gpus": [{"model": "h100", "cpu_affinity": "8,0-3"}]})", {"cpu_affinity", "0-23,48-71"}},
      {R"({"gpus": [{"model": "h100", "cpu_affinity": "3-0"}]})", {"cpu_affinity", "0-23,48-71"}},
      {R"({"gpus": [{"model": "h100", "cpu_affinity": "0-1024"}]})", {"cpu_affinity", "below 1024"}},
      {R"({"gpus": [{"model": "h100", "failing": {"nvmlInit": "UNKNOWN"}}]})",
       {"gpus[0].failing.nvmlInit", "full name"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": "switch", "hidden": 1}]}]})",
       {"gpus[0].links[0].hidden is 1", "true or false"}},
      {R"({"gpus": [{"model": "h100", "mig": 1}]})", {"gpus[0].mig is 1", "true or false"}},
      {R"({"gpus": [{"model": "h100", "fabric": "done"}]})", {R"(fabric is "done")", "in-progress, completed"}},
      {R"({"gpus": [{"model": "a100", "fabric": "completed"}]})", {"gpus[0].fabric has a state", "not-supported"}},
      {R"({"gpus": [{"model": "h100", "clock_reasons": ["hot"]}]})", {R"(clock_reasons[0] is "hot")", "sw-power-cap"}},
      {R"({"gpus": [{"model": "h100", "clock_khz": 2000000}]})", {"clock_khz", "1980000"}},
      {R"({"gpus": [{"model": "a100", "pcie_generation": 5}]})", {"pcie_generation is 5", "at most 4"}},
      {R"({"gpus": [{"model": "h100", "uuid": "GPU-0"}]})", {R"(gpus[0].uuid is "GPU-0")", "8-4-4-4-12"}},
      {R"({"gpus": [{"model": "h100", "uuid": "GPU-01234567-89AB-cdef-0123-456789abcdef"}]})", {"lower-case"}},
      {R"({"gpus": [{"model": "h100", "pci_bus_id": "0000:1b:00.0"}]})", {"pci_bus_id", "00000000:1B:00.0"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100", "pci_bus_id": "00000000:1B:00.0"}]})", {"are the same"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100", "pci_bus_id": "00000000:01:00.0"}]})", {"order of their PCI"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": 1}]}]})", {"links[0].to is 1", "from 0 to 0"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": 0}]}]})", {"leads to 0", "another GPU"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": "moon"}]}]})", {R"(is "moon")", "switch"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": "switch", "count": 19}]}]})", {"19 links", "at most 18"}},
      {R"({"gpus": [{"model": "h100", "links": [{"to": 1}]}, {"model": "h100"}]})", {"1 links to 1", "0 back"}},
      {R"({"gpus": [{"model": "h100"}], "peers": [[]]})", {"peers[0] is []", "an array of 1"}},
      {R"({"gpus": [{"model": "h100"}], "peers": [["works"]]})", {"peers[0][0]", "on the diagonal"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100"}], "peers": [["X", "X"], ["works", "X"]]})", {"peers[0][1]"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100"}], "peers": [["X", "slow"], ["works", "X"]]})",
       {R"(peers[0][1] is "slow")", "works, none, loses-writes"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100"}], "distances": [["X", "PIX"], ["SYS", "X"]]})",
       {"differ by direction"}},
      {R"({"gpus": [{"model": "h100"}, {"model": "h100"}], "distances": [["X", "X"], ["X", "X"]]})", {"diagonal"}},
      {R"({"gpus": [{"model": "h100"}], "cuda_driver_version": -1})", {"cuda_driver_version is -1"}},
      {R"({"gpus": [{"model": "h100"}], "driver_version": 580})", {"driver_version is 580", "a string"}},
      {R"({"gpus": [{"model": "h100"}], "failing": ["nvmlInit_v2"]})", {"failing is", "an object"}},
      {R"({"gpus": [{"model": "h100"}], "failing": {"nvmlInit": "UNKNOWN"}})", {"failing.nvmlInit", "full name"}},
      {R"({"gpus": [{"model": "h100"}], "failing": {"nvmlInit_v2": "BROKEN"}})", {R"(is "BROKEN")", "NOT_SUPPORTED"}},
  };
  for (const Row& row : rows) {
    const std::string message = refusal(row.json);
    INFO(row.json << "\n" << message);
    CHECK(message.find("machine.json") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    for (const std::string& part : row.said) {
      INFO(part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
  CHECK_THROWS_WITH(read_table(kFolder + "no-such.json"), Contains("no-such.json") && Contains("cannot be read"));
  CHECK_THROWS_WITH(read_table(kFolder), Contains("cannot be read"));
}

TEST_CASE("machine table: one that a test has put together wrongly is refused too") {
  const auto broken = [](const auto& change) {
    MachineTable table = make_table("h100", 3);
    change(table);
    try {
      check_table(table, "my table");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(broken([](MachineTable&) {}).empty());
  CHECK_THAT(broken([](MachineTable& table) { table.gpus.clear(); }), Contains("0 entries") && Contains("my table"));
  CHECK_THAT(broken([](MachineTable& table) { table.gpus.pop_back(); }), Contains("no square of 2"));
  CHECK_THAT(broken([](MachineTable& table) { table.peers[1].pop_back(); }), Contains("peers is no square"));
  CHECK_THAT(broken([](MachineTable& table) { table.distances.pop_back(); }), Contains("distances is no square"));
  CHECK_THAT(broken([](MachineTable& table) { table.gpus[1].model = nullptr; }), Contains("gpus[1].model is missing"));
  CHECK_THAT(broken([](MachineTable& table) { table.peers[2][2] = PeerAccess::kNone; }), Contains("peers[2][2]"));
  CHECK_THAT(broken([](MachineTable& table) { table.gpus[0].uuid = table.gpus[2].uuid; }), Contains("are the same"));
}

}  // namespace shardscope::test
