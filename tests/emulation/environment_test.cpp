#include "tests/emulation/fakes/environment.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"

namespace shardscope::test {
namespace {

using namespace emulation;
using Catch::Matchers::Contains;
using Devices = std::vector<int>;

const std::string kFolder = SHARDSCOPE_TEST_DATA "/emulation/";

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_options(text));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("emulation's environment: unset and empty are the defaults, and the variable is read") {
  unsetenv("SHARDSCOPE_EMULATION");
  const Options unset = options_from_environment();
  CHECK(unset.devices == Options().devices);
  CHECK(unset.model == Options().model);
  CHECK_FALSE(unset.table.has_value());
  CHECK(parse_options("").seed == 0);
  setenv("SHARDSCOPE_EMULATION", "devices=5", 1);
  CHECK(options_from_environment().devices == 5);
  setenv("SHARDSCOPE_EMULATION", "devices=55", 1);
  CHECK_THROWS_WITH(options_from_environment(), Contains("SHARDSCOPE_EMULATION"));
  unsetenv("SHARDSCOPE_EMULATION");
}

TEST_CASE("emulation's environment: each member of the options has its key") {
  // Each key with a value that is not the default.
  const Options options = parse_options(
      "seed=18446744073709551615,devices=8,model=a100,memory-mib=512,multiprocessors=7,policy=worker,seconds-to-end=9,"
      "count-requests=yes,refuse-default-stream=yes,fail=cudaMalloc:3:2,fail=ncclAllReduce:1:from-then-on,"
      "nccl-reduction=ring,nccl-milliseconds-to-arrive=11,nccl-tells-of-dead-ranks=no,nccl-several-ranks-per-gpu=yes,"
      "nccl-milliseconds-to-initialise=12");
  // A new member does not compile here: it needs a key, and a line below.
  const auto& [seed, devices, model, table, memory_bytes, multiprocessors, policy, seconds, count, refuse_default,
               failing, nccl] = options;
  const auto& [reduction, to_arrive, tells, several, to_initialise] = nccl;
  CHECK(seed == UINT64_MAX);
  CHECK(devices == 8);
  CHECK(model == "a100");
  CHECK_FALSE(table.has_value());
  CHECK(memory_bytes == 536'870'912);
  CHECK(multiprocessors == 7);
  CHECK(policy == Policy::kWorker);
  CHECK(seconds == 9);
  CHECK(count);
  CHECK(refuse_default);
  REQUIRE(failing.size() == 2);
  const auto& [function, nth, error, from_then_on] = failing[0];
  CHECK(function == "cudaMalloc");
  CHECK(nth == 3);
  CHECK(error == 2);
  CHECK_FALSE(from_then_on);
  CHECK(failing[1].function == "ncclAllReduce");
  CHECK(failing[1].nth == 1);
  CHECK(failing[1].error == 0);
  CHECK(failing[1].from_then_on);
  CHECK(reduction == Reduction::kRing);
  CHECK(to_arrive == 11);
  CHECK_FALSE(tells);
  CHECK(several);
  CHECK(to_initialise == 12);
  CHECK(parse_options("fail=f:2:3:from-then-on").failing[0].from_then_on);
  CHECK(parse_options("nccl-reduction=tree").nccl.reduction == Reduction::kTree);
  CHECK(parse_options("nccl-reduction=once,policy=at-synchronisation").policy == Policy::kAtSynchronisation);
}

TEST_CASE("emulation's environment: a table, and changes of peer access in whatever order they stand") {
  const std::string file = kFolder + "mixed-cloud.json";
  CHECK(table_of(parse_options("table=" + file)) == read_table(file));
  CHECK(table_of(parse_options("devices=3,model=h200")) == make_table("h200", 3));
  CHECK(table_of(Options()) == make_table("h100", 1));

  MachineTable expected = make_table("h100", 3);
  expected.peers[0][1] = PeerAccess::kLosesWrites;
  expected.peers[2][0] = PeerAccess::kNone;
  CHECK(table_of(parse_options("peer=0>1:loses-writes,devices=3,peer=2>0:none")) == expected);
  expected = read_table(file);
  expected.peers[0][1] = PeerAccess::kWorks;
  CHECK(table_of(parse_options("peer=0>1:works,table=" + file)) == expected);
}

TEST_CASE("emulation's environment: what is wrong is refused in one line with variable, key and what is allowed") {
  struct Row {
    const char* text;
    std::vector<std::string> said;
  };
  const Row rows[] = {
      {"devices", {R"("devices" is not key=value)"}},
      {"devices=2,", {R"("" is not key=value)"}},
      {"gpus=2", {R"(unknown key "gpus")", "seed, devices, model"}},
      {" devices=2", {R"(unknown key " devices")"}},
      {"devices=0", {"devices=0", "a number from 1 to 8"}},
      {"devices=9", {"from 1 to 8"}},
      {"devices=", {"devices=,", "from 1 to 8"}},
      {"devices=2x", {"devices=2x"}},
      {"devices=+2", {"devices=+2"}},
      {"devices=2,devices=2", {"for devices use it once"}},
      {"model=h1000", {"model=h1000", "a100, a100-40gb, h100, h200"}},
      {"table=/no/such.json", {"/no/such.json", "cannot be read"}},
      {"seed=-1", {"seed=-1", "18446744073709551615"}},
      {"seed=18446744073709551616", {"from 0 to"}},
      {"memory-mib=0", {"memory-mib=0", "from 1 to"}},
      {"multiprocessors=0", {"from 1 to 1024"}},
      {"policy=eager", {"policy=eager", "at-synchronisation, at-once, worker"}},
      {"seconds-to-end=0", {"from 1 to"}},
      {"count-requests=1", {"count-requests=1", "yes, no"}},
      {"refuse-default-stream=true", {"yes, no"}},
      {"fail=cudaMalloc", {"fail=cudaMalloc", "function:n-th call"}},
      {"fail=:1", {"function:n-th call"}},
      {"fail=cudaMalloc:0", {"function:n-th call"}},
      {"fail=cudaMalloc:1:-2", {"function:n-th call"}},
      {"fail=cudaMalloc:1:2:always", {"from-then-on"}},
      {"fail=from-then-on", {"function:n-th call"}},
      {"nccl-reduction=fast", {"once, ring, tree"}},
      {"nccl-milliseconds-to-arrive=0", {"from 1 to"}},
      {"nccl-tells-of-dead-ranks=perhaps", {"yes, no"}},
      {"nccl-several-ranks-per-gpu=", {"yes, no"}},
      {"nccl-milliseconds-to-initialise=-1", {"from 0 to"}},
      {"peer=0>1:loses-writes", {"peer=0>1:loses-writes", "two GPUs of the machine"}},  // there is but one
      {"devices=2,peer=0>0:none", {"peer=0>0:none"}},
      {"devices=2,peer=0>1", {"GPU>GPU:none"}},
      {"devices=2,peer=0>1:slow", {"GPU>GPU:none"}},
      {"devices=2,peer=0>1:X", {"GPU>GPU:none"}},
      {"devices=2,peer=1:none", {"GPU>GPU:none"}},
      {"devices=2,peer=-1>1:none", {"GPU>GPU:none"}},
  };
  for (const Row& row : rows) {
    const std::string message = refusal(row.text);
    INFO(row.text << "\n" << message);
    if (std::string(row.text).find("table=") == std::string::npos) {
      CHECK(message.find("SHARDSCOPE_EMULATION") != std::string::npos);
    }
    CHECK(message.find('\n') == std::string::npos);
    for (const std::string& part : row.said) {
      INFO(part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
  const std::string table = "table=" + kFolder + "bridge-pairs.json";
  CHECK_THAT(refusal(table + ",devices=2"), Contains("both table and devices"));
  CHECK_THAT(refusal("model=a100," + table), Contains("both table and model"));
}

TEST_CASE("visible devices: indices and parts of UUIDs, in their order, up to the first invalid one") {
  const MachineTable table = make_table("h100", 4);
  const std::string second = table.gpus[1].uuid;
  const std::string fourth = table.gpus[3].uuid;
  const auto visible = [&](const std::string& text) { return visible_devices(table, text.c_str()); };
  CHECK(visible_devices(table, nullptr) == Devices{0, 1, 2, 3});
  CHECK(visible("2,1") == Devices{2, 1});
  CHECK(visible("0,2,-1,1") == Devices{0, 2});  // the guide's own example
  CHECK(visible("-1") == Devices{});
  CHECK(visible("") == Devices{});
  CHECK(visible("3,4,0") == Devices{3});
  CHECK(visible("1,x,0") == Devices{1});
  CHECK(visible("1, 0") == Devices{1});
  CHECK(visible("1,,0") == Devices{1});
  CHECK(visible("0,1,0") == Devices{});
  CHECK(visible("0,7,0") == Devices{0});
  CHECK(visible(fourth + "," + second) == Devices{3, 1});
  CHECK(visible(fourth.substr(0, 12)) == Devices{3});
  CHECK(visible(fourth + "0") == Devices{});
  CHECK(visible("GPU-") == Devices{});  // fits four
  CHECK(visible_devices(make_table("h100", 1), "GPU-") == Devices{0});
  CHECK(visible(second.substr(0, 12) + "," + second) == Devices{});
  CHECK(visible(second.substr(4)) == Devices{});
  CHECK(visible("0," + fourth) == Devices{0});
  CHECK(visible(fourth + ",0") == Devices{3});
  CHECK(visible("MIG-" + fourth) == Devices{});
}

TEST_CASE("visible devices: CUDA counts the fastest first, unless it is told to go by PCI bus id") {
  const MachineTable table = read_table(kFolder + "mixed-cloud.json");  // A100 40 GB, A100 80 GB, H200
  CHECK(visible_devices(table, nullptr) == Devices{2, 0, 1});
  CHECK(visible_devices(table, nullptr, "FASTEST_FIRST") == Devices{2, 0, 1});
  CHECK(visible_devices(table, nullptr, "PCI_BUS_ID") == Devices{0, 1, 2});
  CHECK(visible_devices(table, "0,1") == Devices{2, 0});
  CHECK(visible_devices(table, "0,1", "PCI_BUS_ID") == Devices{0, 1});
}

}  // namespace shardscope::test
