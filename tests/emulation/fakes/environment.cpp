#include "tests/emulation/fakes/environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/emulation/fakes/machine_words.hpp"

namespace shardscope::emulation {
namespace {

constexpr const char* kVariable = "SHARDSCOPE_EMULATION";

constexpr Word<bool> kYesNoWords[] = {{"yes", true}, {"no", false}};
constexpr Word<Policy> kPolicyWords[] = {
    {"at-synchronisation", Policy::kAtSynchronisation}, {"at-once", Policy::kAtOnce}, {"worker", Policy::kWorker}};
constexpr Word<Reduction> kReductionWords[] = {
    {"once", Reduction::kOnce}, {"ring", Reduction::kRing}, {"tree", Reduction::kTree}};

[[noreturn]] void refuse(std::string_view key, std::string_view value, const std::string& allowed) {
  throw UserError(fmt::format("{}={}", key, value), kVariable, fmt::format("for {} use {}", key, allowed));
}

/// A decimal number, all of `text`.
template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// One "key=value".
struct Setting {
  std::string_view key, value;

  template <class T>
  T integer(T least, T most) const {
    const std::optional<T> found = number<T>(value);
    if (!found || *found < least || *found > most)
      refuse(key, value, fmt::format("a number from {} to {}", least, most));
    return *found;
  }
  template <class T, size_t kCount>
  T word(const Word<T> (&words)[kCount]) const {
    for (const Word<T>& candidate : words) {
      if (candidate.text == value) return candidate.value;
    }
    refuse(key, value, known_words(words));
  }
  bool yes() const { return word(kYesNoWords); }
};

/// function:nth, then, if wanted, error and from-then-on
FailingCall failing_call(const Setting& setting) {
  constexpr const char* kAllowed = "function:n-th call, then if wanted :error number and :from-then-on";
  std::vector<std::string_view> parts = split(setting.value, ':');
  FailingCall call;
  if (parts.back() == "from-then-on") {
    call.from_then_on = true;
    parts.pop_back();
  }
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty()) refuse(setting.key, setting.value, kAllowed);
  call.function = parts[0];
  const std::optional<int64_t> nth = number<int64_t>(parts[1]);
  const std::optional<int> error = parts.size() == 3 ? number<int>(parts[2]) : 0;
  if (!nth || *nth < 1 || !error || *error < 0) refuse(setting.key, setting.value, kAllowed);
  call.nth = *nth;
  call.error = *error;
  return call;
}

struct PeerChange {
  Setting setting;
  int who = 0, whose = 0;
  PeerAccess access{};
};

constexpr const char* kPeerAllowed =
    "GPU>GPU:works, GPU>GPU:none or GPU>GPU:loses-writes, with two GPUs of the machine";

PeerChange peer_change(const Setting& setting) {
  const std::vector<std::string_view> parts = split(setting.value, ':');
  const std::vector<std::string_view> pair = split(parts[0], '>');
  const std::optional<int> who = number<int>(pair[0]);
  const std::optional<int> whose = number<int>(pair.back());
  if (parts.size() != 2 || pair.size() != 2 || !who || !whose || parts[1] == "X") {
    refuse(setting.key, setting.value, kPeerAllowed);
  }
  for (const Word<PeerAccess>& word : kPeerWords) {
    if (word.text == parts[1]) return {.setting = setting, .who = *who, .whose = *whose, .access = word.value};
  }
  refuse(setting.key, setting.value, kPeerAllowed);
}

/// What the settings say, in whatever order they stand.
struct Draft {
  Options options;
  std::vector<PeerChange> peers;
};

struct Key {
  std::string_view name;
  void (*take)(Draft&, const Setting&);
  bool repeatable = false;
};

constexpr Key kKeys[] = {
    {"seed", [](Draft& it, const Setting& value) { it.options.seed = value.integer<uint64_t>(0, UINT64_MAX); }},
    {"devices", [](Draft& it, const Setting& value) { it.options.devices = value.integer(1, kMostGpus); }},
    {"model",
     [](Draft& it, const Setting& value) {
       if (find_model(value.value) == nullptr) refuse(value.key, value.value, model_keys());
       it.options.model = value.value;
     }},
    {"table", [](Draft& it, const Setting& value) { it.options.table = read_table(std::string(value.value)); }},
    {"peer", [](Draft& it, const Setting& value) { it.peers.push_back(peer_change(value)); }, true},
    {"memory-mib",
     [](Draft& it, const Setting& value) {
       it.options.device_memory_bytes = value.integer<int64_t>(1, 1 << 20) << 20;
     }},
    {"multiprocessors", [](Draft& it, const Setting& value) { it.options.multiprocessors = value.integer(1, 1024); }},
    {"policy", [](Draft& it, const Setting& value) { it.options.policy = value.word(kPolicyWords); }},
    {"seconds-to-end", [](Draft& it, const Setting& value) { it.options.seconds_to_end = value.integer(1, 86'400); }},
    {"count-requests", [](Draft& it, const Setting& value) { it.options.count_requests = value.yes(); }},
    {"refuse-default-stream", [](Draft& it, const Setting& value) { it.options.refuse_default_stream = value.yes(); }},
    {"fail", [](Draft& it, const Setting& value) { it.options.failing.push_back(failing_call(value)); }, true},
    {"nccl-reduction",
     [](Draft& it, const Setting& value) { it.options.nccl.reduction = value.word(kReductionWords); }},
    {"nccl-milliseconds-to-arrive",
     [](Draft& it, const Setting& value) { it.options.nccl.milliseconds_to_arrive = value.integer(1, 86'400'000); }},
    {"nccl-tells-of-dead-ranks",
     [](Draft& it, const Setting& value) { it.options.nccl.tells_of_dead_ranks = value.yes(); }},
    {"nccl-several-ranks-per-gpu",
     [](Draft& it, const Setting& value) { it.options.nccl.several_ranks_per_gpu = value.yes(); }},
    {"nccl-milliseconds-to-initialise",
     [](Draft& it, const Setting& value) {
       it.options.nccl.milliseconds_to_initialise = value.integer(0, 86'400'000);
     }},
};

const Key& known_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (key.name == name) return key;
  }
  std::string known;
  for (const Key& key : kKeys) known += fmt::format("{}{}", known.empty() ? "" : ", ", key.name);
  throw UserError(fmt::format("unknown key \"{}\"", name), kVariable, "use " + known);
}

void change_peers(const std::vector<PeerChange>& changes, Options& options) {
  if (changes.empty()) return;
  MachineTable table = table_of(options);
  const auto gpus = static_cast<int>(table.gpus.size());
  for (const PeerChange& change : changes) {
    const bool fits = change.who >= 0 && change.who < gpus && change.whose >= 0 && change.whose < gpus;
    if (!fits || change.who == change.whose) refuse(change.setting.key, change.setting.value, kPeerAllowed);
    table.peers[static_cast<size_t>(change.who)][static_cast<size_t>(change.whose)] = change.access;
  }
  options.table = std::move(table);
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names, if it is valid.
std::optional<int> named_gpu(const MachineTable& table, const std::vector<int>& order, std::string_view entry) {
  if (!entry.starts_with("GPU-")) {
    const std::optional<unsigned> index = number<unsigned>(entry);
    if (!index || *index >= order.size()) return std::nullopt;
    return order[*index];
  }
  std::optional<int> found;
  for (size_t i = 0; i < table.gpus.size(); ++i) {
    if (!table.gpus[i].uuid.starts_with(entry)) continue;
    if (found) return std::nullopt;  // fits two
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

Options parse_options(std::string_view text) {
  Draft draft;
  std::set<std::string_view> seen;
  for (const std::string_view part : text.empty() ? std::vector<std::string_view>() : split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      throw UserError(fmt::format("\"{}\" is not key=value", part), kVariable, "write e.g. devices=2,seed=3");
    }
    const Setting setting{.key = part.substr(0, equals), .value = part.substr(equals + 1)};
    const Key& key = known_key(setting.key);
    if (!seen.insert(setting.key).second && !key.repeatable) refuse(setting.key, setting.value, "it once");
    key.take(draft, setting);
  }
  for (const std::string_view key : {"devices", "model"}) {
    if (seen.contains("table") && seen.contains(key)) {
      throw UserError(fmt::format("both table and {}", key), kVariable, "leave one out: a table says all");
    }
  }
  change_peers(draft.peers, draft.options);
  return draft.options;
}

Options options_from_environment() {
  const char* const text = std::getenv(kVariable);
  return parse_options(text == nullptr ? "" : text);
}

MachineTable table_of(const Options& options) {
  return options.table ? *options.table : make_table(options.model, options.devices);
}

std::vector<int> visible_devices(const MachineTable& table, const char* visible, const char* order) {
  std::vector<int> all(table.gpus.size());
  std::iota(all.begin(), all.end(), 0);
  if (order == nullptr || std::string_view(order) != "PCI_BUS_ID") {
    const auto speed = [&](int gpu) {
      const GpuModel& model = *table.gpus[static_cast<size_t>(gpu)].model;
      return std::make_tuple(model.compute_major, model.compute_minor,
                             int64_t{model.multiprocessors} * model.clock_khz);
    };
    std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return speed(a) > speed(b); });
  }
  if (visible == nullptr) return all;
  std::vector<int> seen;
  const std::vector<std::string_view> entries = split(visible, ',');
  const bool by_uuid = entries[0].starts_with("GPU-");
  for (const std::string_view entry : entries) {
    const std::optional<int> gpu = named_gpu(table, all, entry);
    if (!gpu || entry.starts_with("GPU-") != by_uuid) break;
    if (std::find(seen.begin(), seen.end(), *gpu) != seen.end()) return {};
    seen.push_back(*gpu);
  }
  return seen;
}

}  // namespace shardscope::emulation
