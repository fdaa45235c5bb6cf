// Ranks to devices. Most cases are data: A25-device-mapping.json.
#include "kernels/cuda/device_choice.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/device_probe.hpp"

namespace shardscope::cuda {
namespace {

using nlohmann::json;

VisibleDevice physical_device(const std::string& host, int index) {
  return {.ordinal = 0,
          .uuid = "GPU-" + host + "-" + std::to_string(index),
          .pci_bus_id = "0000:" + std::to_string(10 + index) + ":00.0"};
}

/// What a driver makes of CUDA_VISIBLE_DEVICES=`visible` on a host with that many devices. `physical`: their numbers.
RankDevices seen(const std::string& host, int host_rank, int host_devices, const std::optional<std::string>& visible,
                 std::vector<int>* physical = nullptr) {
  RankDevices rank{.host = host, .host_rank = host_rank, .visible_devices = visible};
  std::vector<int> numbers;
  if (visible) {
    std::stringstream list(*visible);
    for (std::string number; std::getline(list, number, ',');) numbers.push_back(std::stoi(number));
  } else {
    for (int number = 0; number < host_devices; ++number) numbers.push_back(number);
  }
  for (const int number : numbers) {
    rank.devices.push_back(physical_device(host, number));
    rank.devices.back().ordinal = static_cast<int>(rank.devices.size()) - 1;
  }
  if (numbers.empty()) rank.why_none = explain(cudaErrorNoDevice, 13000, 13000, visible);
  if (physical != nullptr) *physical = numbers;
  return rank;
}

json mapping_cases() {
  std::ifstream file(std::string(SHARDSCOPE_TEST_DATA) + "/cases/A25-device-mapping.json");
  REQUIRE(file.good());
  return json::parse(file);
}

/// A case of the file as what ranks see, and which device each ordinal is.
struct Scene {
  std::vector<RankDevices> ranks;
  std::vector<std::vector<int>> physical;
  ChoiceOptions options;
};

Scene scene_of(const json& one) {
  Scene scene;
  const size_t count = one.at("visible").size();
  std::map<std::string, int> on_host;
  for (size_t rank = 0; rank < count; ++rank) {
    const std::string host = one.contains("hosts") ? one["hosts"][rank].get<std::string>() : "node7";
    std::optional<std::string> visible;
    if (!one["visible"][rank].is_null()) visible = one["visible"][rank].get<std::string>();
    scene.physical.emplace_back();
    // As MPI's shared-memory split numbers them; the variables of the environment may say something else.
    scene.ranks.push_back(
        seen(host, on_host[host]++, one.at("host_devices").get<int>(), visible, &scene.physical.back()));
  }
  scene.options.group_size = one.value("tp", static_cast<int>(count));
  return scene;
}

std::string refusal(const std::vector<RankDevices>& ranks, const ChoiceOptions& options) {
  try {
    choose_devices(ranks, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// All see the same: what `visible` shows of eight.
std::vector<RankDevices> same_for_all(int ranks, const std::optional<std::string>& visible, int host_devices = 8) {
  std::vector<RankDevices> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(seen("node7", rank, host_devices, visible));
  return all;
}

std::vector<RankDevices> each_its_own(const std::vector<std::string>& visible) {
  std::vector<RankDevices> all;
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    all.push_back(seen("node7", static_cast<int>(rank), 8, visible[rank]));
  }
  return all;
}

}  // namespace

TEST_CASE("choose_devices: every case of the file with launchers' environments") {
  int taken = 0;
  for (const json& one : mapping_cases()) {
    INFO(one.at("name"));
    // A rank of an MPI that was not told of the others sees itself alone: tests/launch has that refusal.
    if (one.value("mpi_size", 0) == 1) continue;
    const Scene scene = scene_of(one);
    ++taken;
    if (one.contains("expect_error")) {
      // What stands before the colon are the words, with the host's name left out.
      const std::string expected = one["expect_error"];
      std::string words = expected.substr(0, expected.find(':'));
      const size_t host = words.find("on host,");
      if (host != std::string::npos) words.replace(host, 8, "on host node7,");
      const std::string text = refusal(scene.ranks, scene.options);
      INFO(text);
      CHECK(text.find(words) != std::string::npos);
      continue;
    }
    const std::vector<int> chosen = choose_devices(scene.ranks, scene.options);
    const json& ordinals = one.at("expect_device");
    REQUIRE(chosen.size() == ordinals.size());
    std::set<std::string> identities;
    for (size_t rank = 0; rank < chosen.size(); ++rank) {
      INFO("rank " << rank);
      CHECK(chosen[rank] == (ordinals[rank].is_null() ? -1 : ordinals[rank].get<int>()));
      if (chosen[rank] < 0) continue;
      const auto ordinal = static_cast<size_t>(chosen[rank]);
      CHECK(identities.insert(scene.ranks[rank].devices[ordinal].uuid).second);
      if (one.contains("expect_physical")) {
        CHECK(scene.physical[rank][ordinal] == one["expect_physical"][rank].get<int>());
      }
    }
  }
  CHECK(taken == 10);
}

TEST_CASE("choose_devices: ranks that share a device are named, with host, bus id and variable") {
  CHECK(refusal(same_for_all(4, "2"), {.group_size = 4}) ==
        "ranks 0,1,2,3 share one device, host node7, bus id 0000:12:00.0, CUDA_VISIBLE_DEVICES=2, start fewer ranks "
        "there, let each rank see a device of its own (srun --gpus-per-task=1) or all of them, share "
        "them by --oversubscribe-devices, or use --backend cpu");
  // Of four ranks two are on one device, while another sees more than it needs.
  const std::string two = refusal(each_its_own({"5", "3", "5", "0,1"}), {.group_size = 4});
  INFO(two);
  CHECK(two.find("ranks 0,2 share one device, host node7, bus id 0000:15:00.0, CUDA_VISIBLE_DEVICES=5, ") == 0);
  const std::string three = refusal(each_its_own({"1,2", "2,1", "1,2", "0"}), {.group_size = 4});
  INFO(three);
  CHECK(three.find("ranks 0,1,2 share 2 devices, host node7, bus ids 0000:11:00.0 0000:12:00.0, "
                   "CUDA_VISIBLE_DEVICES=1,2 and CUDA_VISIBLE_DEVICES=2,1, ") == 0);
  const std::string five = refusal(same_for_all(5, std::nullopt, 4), {.group_size = 5});
  INFO(five);
  CHECK(five.find("5 ranks on host node7, 4 devices visible, host node7, bus ids 0000:10:00.0 0000:11:00.0 "
                  "0000:12:00.0 0000:13:00.0, CUDA_VISIBLE_DEVICES not set, ") == 0);
}

TEST_CASE("choose_devices: a rank without a device is named, with why") {
  std::vector<RankDevices> ranks = same_for_all(3, std::nullopt, 4);
  ranks[1] = seen("node7", 1, 4, "");
  CHECK(refusal(ranks, {.group_size = 3})
            .find("rank 1 on host node7 has no CUDA device: CUDA_VISIBLE_DEVICES is set and empty") == 0);
  CHECK(refusal(ranks, {.group_size = 1}).empty());  // it is not of the group
}

TEST_CASE("choose_devices: lists that differ between ranks are dealt so that all get one, if that is possible") {
  // In other orders; the first has to make room for the second; a chain of three.
  CHECK(choose_devices(each_its_own({"0,1", "1,0"}), {.group_size = 2}) == std::vector<int>{0, 0});
  CHECK(choose_devices(each_its_own({"0,1", "0"}), {.group_size = 2}) == std::vector<int>{1, 0});
  CHECK(choose_devices(each_its_own({"0,1", "1,2", "0", "1"}), {.group_size = 3}) == std::vector<int>{1, 1, 0, -1});
  // On another host the same numbers are other devices.
  std::vector<RankDevices> ranks = {seen("a", 0, 8, "3"), seen("b", 0, 8, "3"), seen("b", 1, 8, "4,3")};
  CHECK(choose_devices(ranks, {.group_size = 3}) == std::vector<int>{0, 0, 0});
}

TEST_CASE("choose_devices: ranks of a host count by their place on it, in whatever order of ranks") {
  std::vector<RankDevices> ranks;
  for (const int host_rank : {2, 0, 3, 1}) ranks.push_back(seen("node7", host_rank, 4, std::nullopt));
  CHECK(choose_devices(ranks, {.group_size = 4}) == std::vector<int>{2, 0, 3, 1});
  // Round robin over two hosts, as mpirun --map-by node does.
  ranks = {seen("a", 0, 2, std::nullopt), seen("b", 0, 2, std::nullopt), seen("a", 1, 2, std::nullopt),
           seen("b", 1, 2, std::nullopt)};
  CHECK(choose_devices(ranks, {.group_size = 4}) == std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("choose_devices: sharing is dealt in turn where it is allowed") {
  const ChoiceOptions sharing{.group_size = 5, .oversubscribe = true};
  CHECK(choose_devices(same_for_all(5, std::nullopt, 2), sharing) == std::vector<int>{0, 1, 0, 1, 0});
  CHECK(choose_devices(same_for_all(5, "2"), sharing) == std::vector<int>{0, 0, 0, 0, 0});
  CHECK(refusal(same_for_all(5, ""), sharing).find("rank 0 on host node7 has no CUDA device") == 0);
}

TEST_CASE("choose_devices: devices without UUIDs are told apart by bus id, instances of one GPU by UUID") {
  std::vector<RankDevices> ranks = same_for_all(2, std::nullopt, 2);
  for (RankDevices& rank : ranks) {
    for (VisibleDevice& device : rank.devices) device.uuid.clear();
  }
  CHECK(choose_devices(ranks, {.group_size = 2}) == std::vector<int>{0, 1});
  for (RankDevices& rank : ranks) rank.devices.resize(1);
  CHECK(refusal(ranks, {.group_size = 2}).find("ranks 0,1 share one device") == 0);
  ranks[0].devices[0].uuid = "MIG-a";
  ranks[1].devices[0].uuid = "MIG-b";
  CHECK(choose_devices(ranks, {.group_size = 2}) == std::vector<int>{0, 0});
}

TEST_CASE("choose_devices: ordinals of usable devices may have gaps") {
  std::vector<RankDevices> ranks = same_for_all(2, std::nullopt, 3);
  for (RankDevices& rank : ranks) rank.devices.erase(rank.devices.begin());  // device 0 is of an old kind
  CHECK(choose_devices(ranks, {.group_size = 2}) == std::vector<int>{1, 2});
}

TEST_CASE("encode: what a rank sees comes back the same, and other text is refused") {
  const RankDevices ranks[] = {seen("node7", 0, 8, std::nullopt), seen("node7", 3, 8, "6,2"), seen("", 1, 8, ""), {}};
  for (const RankDevices& rank : ranks) CHECK(decode_rank_devices(encode(rank)) == rank);
  CHECK(encode(ranks[0]).find('\n') == std::string::npos);
  // A variable may hold anything; then only the variable is changed.
  RankDevices odd = ranks[1];
  odd.visible_devices = "6\x1f,\n2";
  const RankDevices back = decode_rank_devices(encode(odd));
  CHECK(back.visible_devices == "6 , 2");
  CHECK(back.devices == odd.devices);
  const std::string text = encode(ranks[1]);
  CHECK_THROWS_AS(decode_rank_devices(""), BugError);
  CHECK_THROWS_AS(decode_rank_devices(text.substr(0, text.size() - 1)), BugError);
  CHECK_THROWS_AS(decode_rank_devices(text + "more"), BugError);
  CHECK_THROWS_AS(decode_rank_devices("node7\x1f"
                                      "first\x1f"),
                  BugError);
}

}  // namespace shardscope::cuda
