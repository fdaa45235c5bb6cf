#include "kernels/cuda/device_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "kernels/base/error.hpp"

namespace shardscope::cuda {
namespace {

// Between the fields of an encoded rank: in no host name, UUID or variable.
constexpr char kSeparator = '\x1f';

const std::string& identity(const VisibleDevice& device) {
  return device.uuid.empty() ? device.pci_bus_id : device.uuid;
}

std::string visible_text(const RankDevices& rank) {
  if (!rank.visible_devices) return "CUDA_VISIBLE_DEVICES not set";
  return fmt::format("CUDA_VISIBLE_DEVICES={}", *rank.visible_devices);
}

/// The ranks of one host that want devices, and who has which.
class Host {
 public:
  Host(std::span<const RankDevices> ranks, std::vector<int> members) : ranks_(ranks), members_(std::move(members)) {
    std::stable_sort(members_.begin(), members_.end(),
                     [&](int a, int b) { return facts(a).host_rank < facts(b).host_rank; });
  }

  void deal(std::vector<int>& ordinals, bool oversubscribe) {
    for (size_t position = 0; position < members_.size(); ++position) {
      const int rank = members_[position];
      require_some(rank);
      if (oversubscribe) {
        const std::vector<VisibleDevice>& devices = facts(rank).devices;
        ordinals[static_cast<size_t>(rank)] = devices[position % devices.size()].ordinal;
        continue;
      }
      std::set<std::string> tried;
      if (!place(position, tried)) throw_too_few(rank, tried);
    }
    for (const auto& [device, taken] : takers_) ordinals[static_cast<size_t>(taken.rank)] = taken.ordinal;
  }

 private:
  struct Taken {
    size_t position = 0;  // in members_
    int rank = 0;
    int ordinal = 0;
  };

  const RankDevices& facts(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  void require_some(int rank) const {
    const RankDevices& its = facts(rank);
    if (!its.devices.empty()) return;
    throw UserError(fmt::format("rank {} on host {} has no CUDA device: {}", rank, its.host, its.why_none),
                    visible_text(its), "");
  }

  /// A matching by augmenting paths (Kuhn): whoever stands in the way moves to another device, if there is one.
  /// `tried`: devices that were looked at for this rank; if none is found, those that can only go to ranks that have
  /// one.
  bool place(size_t position, std::set<std::string>& tried) {
    const int rank = members_[position];
    const std::vector<VisibleDevice>& devices = facts(rank).devices;
    const auto take = [&](const VisibleDevice& device) {
      takers_[identity(device)] = {position, rank, device.ordinal};
      return true;
    };
    for (size_t i = 0; i < devices.size(); ++i) {
      const VisibleDevice& device = devices[(position + i) % devices.size()];
      if (takers_.count(identity(device)) == 0) return take(device);
    }
    for (const VisibleDevice& device : devices) {
      if (!tried.insert(identity(device)).second) continue;
      if (place(takers_.at(identity(device)).position, tried)) return take(device);
    }
    return false;
  }

  /// `contended`: devices that `rank` and those who have them are limited to.
  [[noreturn]] void throw_too_few(int rank, const std::set<std::string>& contended) const {
    std::set<std::string> all_devices;
    std::set<std::string> bus_ids;
    std::vector<int> rivals;
    std::set<std::string> settings;
    for (const int member : members_) {
      bool only_contended = true;
      for (const VisibleDevice& device : facts(member).devices) {
        all_devices.insert(identity(device));
        const bool is_contended = contended.count(identity(device)) > 0;
        only_contended = only_contended && is_contended;
        if (is_contended) bus_ids.insert(device.pci_bus_id);
      }
      if (!only_contended) continue;
      rivals.push_back(member);
      settings.insert(visible_text(facts(member)));
    }
    const std::string& host = facts(rank).host;
    const std::string where = fmt::format("host {}, bus id{} {}, {}", host, bus_ids.size() == 1 ? "" : "s",
                                          fmt::join(bus_ids, " "), fmt::join(settings, " and "));
    const std::string what_to_do =
        "start fewer ranks there, let each rank see a device of its own (srun --gpus-per-task=1) or all of them, share "
        "them by --oversubscribe-devices, or use --backend cpu";
    // All see the same few, or some are kept from devices that others see.
    if (contended.size() == all_devices.size() && contended.size() > 1) {
      throw UserError(fmt::format("{} ranks on host {}, {} devices visible", members_.size(), host, contended.size()),
                      where, what_to_do);
    }
    throw UserError(fmt::format("ranks {} share {}", fmt::join(rivals, ","),
                                contended.size() == 1 ? "one device" : fmt::format("{} devices", contended.size())),
                    where, what_to_do);
  }

  std::span<const RankDevices> ranks_;
  std::vector<int> members_;  // by host rank
  std::map<std::string, Taken> takers_;
};

/// Takes the next field off the text.
std::string next_field(std::string_view& text) {
  const size_t end = text.find(kSeparator);
  require(end != std::string_view::npos, "decode_rank_devices: the text ends too early");
  std::string field(text.substr(0, end));
  text.remove_prefix(end + 1);
  return field;
}

int next_number(std::string_view& text) {
  const std::string field = next_field(text);
  int number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  require(error == std::errc() && end == field.data() + field.size(), "decode_rank_devices: no number");
  return number;
}

}  // namespace

std::string encode(const RankDevices& rank) {
  std::string text;
  const auto add = [&](std::string field) {
    // A variable of the environment may hold anything.
    std::replace_if(
        field.begin(), field.end(), [](char c) { return c == kSeparator || c == '\n'; }, ' ');
    text += field;
    text += kSeparator;
  };
  add(rank.host);
  add(fmt::format("{}", rank.host_rank));
  add(rank.visible_devices ? "set" : "");
  add(rank.visible_devices.value_or(""));
  add(rank.why_none);
  add(fmt::format("{}", rank.devices.size()));
  for (const VisibleDevice& device : rank.devices) {
    add(fmt::format("{}", device.ordinal));
    add(device.uuid);
    add(device.pci_bus_id);
  }
  return text;
}

RankDevices decode_rank_devices(std::string_view text) {
  RankDevices rank;
  rank.host = next_field(text);
  rank.host_rank = next_number(text);
  const bool set = next_field(text) == "set";
  const std::string visible = next_field(text);
  if (set) rank.visible_devices = visible;
  rank.why_none = next_field(text);
  const int count = next_number(text);
  for (int i = 0; i < count; ++i) {
    VisibleDevice device;
    device.ordinal = next_number(text);
    device.uuid = next_field(text);
    device.pci_bus_id = next_field(text);
    rank.devices.push_back(std::move(device));
  }
  require(text.empty(), "decode_rank_devices: text behind the end");
  return rank;
}

std::vector<int> choose_devices(std::span<const RankDevices> ranks, const ChoiceOptions& options) {
  const auto started = std::ssize(ranks);
  if (options.group_size > started) {
    throw UserError(
        fmt::format("{} rank{} started, --tp {}", started, started == 1 ? "" : "s", options.group_size), "",
        fmt::format("start more ranks (mpirun -np {} …) or use --tp {} or less", options.group_size, started));
  }
  std::map<std::string, std::vector<int>> members;
  for (int rank = 0; rank < options.group_size; ++rank) {
    members[ranks[static_cast<size_t>(rank)].host].push_back(rank);
  }
  std::vector<int> ordinals(ranks.size(), -1);
  for (const auto& [host, its_members] : members) Host(ranks, its_members).deal(ordinals, options.oversubscribe);
  return ordinals;
}

}  // namespace shardscope::cuda
