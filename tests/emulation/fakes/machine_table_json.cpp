// Machine tables in JSON. Strict: what is not known here is an error that says what is.
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/machine_words.hpp"

namespace shardscope::emulation {
namespace {

using Json = nlohmann::json;

/// A value and where it stands.
class Value {
 public:
  Value(const Json& json, std::string path, const std::string& file)
      : json_(&json), path_(std::move(path)), file_(&file) {}

  [[noreturn]] void refuse(const std::string& allowed) const {
    std::string text = json_->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    throw UserError(fmt::format("{} is {}", path_.empty() ? "the table" : path_, text), *file_, "use " + allowed);
  }

  /// An object with no other keys than these.
  const Value& with_keys(std::initializer_list<std::string_view> known) const {
    if (!json_->is_object()) refuse("an object");
    for (const auto& [key, value] : json_->items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      throw UserError(fmt::format("unknown key \"{}\"{}", key, path_.empty() ? "" : " in " + path_), *file_,
                      fmt::format("use {}", fmt::join(known, ", ")));
    }
    return *this;
  }
  bool has(const char* key) const { return json_->contains(key); }
  Value operator[](const char* key) const {
    if (!has(key)) {
      throw UserError(fmt::format("{}{}{} is missing", path_, path_.empty() ? "" : ".", key), *file_, "add it");
    }
    return Value(json_->at(key), path_.empty() ? key : path_ + "." + key, *file_);
  }
  std::vector<Value> items(size_t least, size_t most) const {
    if (!json_->is_array() || json_->size() < least || json_->size() > most) {
      refuse(least == most ? fmt::format("an array of {}", least) : fmt::format("an array of {} to {}", least, most));
    }
    std::vector<Value> values;
    for (size_t i = 0; i < json_->size(); ++i) {
      values.emplace_back((*json_)[i], fmt::format("{}[{}]", path_, i), *file_);
    }
    return values;
  }
  int integer(int least, int most) const {
    if (json_->is_number_integer()) {
      const bool in_range = json_->is_number_unsigned() ? json_->get<uint64_t>() <= INT64_MAX : true;
      const int64_t number = in_range ? json_->get<int64_t>() : -1;
      if (in_range && number >= least && number <= most) return static_cast<int>(number);
    }
    refuse(fmt::format("an integer from {} to {}", least, most));
  }
  bool boolean() const {
    if (!json_->is_boolean()) refuse("true or false");
    return json_->get<bool>();
  }
  std::string text() const {
    if (!json_->is_string()) refuse("a string");
    return json_->get<std::string>();
  }
  template <class T, size_t kCount>
  T word(const Word<T> (&words)[kCount]) const {
    if (json_->is_string()) {
      for (const Word<T>& word : words) {
        if (word.text == json_->get_ref<const std::string&>()) return word.value;
      }
    }
    refuse("one of " + known_words(words));
  }
  const Json& json() const { return *json_; }

 private:
  const Json* json_;
  std::string path_;
  const std::string* file_;
};

Json parsed(std::string_view text, const std::string& file) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw UserError(fmt::format("the key \"{}\" stands twice in one object", value.get<std::string>()), file,
                      "remove one");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));  // without "[json.exception.…] "
    throw UserError(fmt::format("no JSON: {}", reason), file, "write an object with \"gpus\"");
  }
}

/// {"to": "switch", "count": 18, "active": false, "hidden": true}
std::vector<NvLink> links_from(const Value& value, int gpus) {
  std::vector<NvLink> links;
  for (const Value& entry : value.items(0, 32)) {
    entry.with_keys({"to", "count", "active", "hidden"});
    NvLink link;
    const Value to = entry["to"];
    if (to.json() != "switch") {
      if (!to.json().is_number_integer()) to.refuse("\"switch\" or the index of a GPU");
      link.to = to.integer(0, gpus - 1);
    }
    if (entry.has("active")) link.active = entry["active"].boolean();
    if (entry.has("hidden")) link.hidden = entry["hidden"].boolean();
    const int count = entry.has("count") ? entry["count"].integer(1, 32) : 1;
    links.insert(links.end(), static_cast<size_t>(count), link);
  }
  return links;
}

/// {"nvmlDeviceGetP2PStatus": "NOT_SUPPORTED"}
std::map<std::string, std::string> failing_from(const Value& failing) {
  std::map<std::string, std::string> errors;
  if (!failing.json().is_object()) failing.refuse("an object: {\"nvmlDeviceGetP2PStatus\": \"NOT_SUPPORTED\"}");
  for (const auto& [function, error] : failing.json().items()) {
    const Value value = failing[function.c_str()];
    if (std::find(std::begin(kNvmlFunctions), std::end(kNvmlFunctions), function) == std::end(kNvmlFunctions)) {
      value.refuse("a function that the stand-in for NVML has, by its full name");
    }
    errors[function] = word_of(kNvmlErrorWords, value.word(kNvmlErrorWords));
  }
  return errors;
}

/// The `index`th GPU; what is not said is as in make_table.
Gpu gpu_from(const Value& value, int index, int gpus) {
  value.with_keys({"model", "uuid", "pci_bus_id", "numa_node", "links", "pcie_generation", "pcie_width", "mig",
                   "fabric", "clock_khz", "memory_clock_khz", "clock_reasons", "temperature_celsius",
                   "power_milliwatts", "power_limit_milliwatts", "persistence", "cpu_affinity", "processes",
                   "failing"});
  const Value model = value["model"];
  if (!model.json().is_string() || find_model(model.text()) == nullptr) model.refuse("one of " + model_keys());
  Gpu gpu = make_table(model.text(), index + 1).gpus.back();
  if (value.has("uuid")) gpu.uuid = value["uuid"].text();
  if (value.has("pci_bus_id")) gpu.pci_bus_id = value["pci_bus_id"].text();
  if (value.has("numa_node")) gpu.numa_node = value["numa_node"].integer(-1, 63);
  if (value.has("links")) gpu.links = links_from(value["links"], gpus);
  if (value.has("pcie_generation")) gpu.pcie_generation = value["pcie_generation"].integer(1, 6);
  if (value.has("pcie_width")) gpu.pcie_width = value["pcie_width"].integer(1, 16);
  if (value.has("mig")) gpu.mig = value["mig"].boolean();
  if (value.has("fabric")) gpu.fabric = value["fabric"].word(kFabricWords);
  if (value.has("clock_khz")) gpu.clock_khz = value["clock_khz"].integer(1, 10'000'000);
  if (value.has("memory_clock_khz")) gpu.memory_clock_khz = value["memory_clock_khz"].integer(1, 20'000'000);
  if (value.has("clock_reasons")) {
    for (const Value& reason : value["clock_reasons"].items(0, std::size(kClockReasonWords))) {
      gpu.clock_reasons |= reason.word(kClockReasonWords);
    }
  }
  if (value.has("temperature_celsius")) gpu.temperature_celsius = value["temperature_celsius"].integer(0, 150);
  if (value.has("power_milliwatts")) gpu.power_milliwatts = value["power_milliwatts"].integer(0, 2'000'000);
  if (value.has("power_limit_milliwatts")) {
    gpu.power_limit_milliwatts = value["power_limit_milliwatts"].integer(1, 2'000'000);
  }
  if (value.has("persistence")) gpu.persistence = value["persistence"].boolean();
  if (value.has("cpu_affinity")) gpu.cpu_affinity = value["cpu_affinity"].text();
  if (value.has("failing")) gpu.failing = failing_from(value["failing"]);
  if (value.has("processes")) {
    for (const Value& process : value["processes"].items(0, 64)) {
      process.with_keys({"pid", "used_mib"});
      gpu.processes.push_back(
          {.pid = process["pid"].integer(1, INT32_MAX), .used_mib = process["used_mib"].integer(0, 1'000'000)});
    }
  }
  return gpu;
}

template <class T, size_t kCount>
std::vector<std::vector<T>> matrix_from(const Value& value, size_t size, const Word<T> (&words)[kCount]) {
  std::vector<std::vector<T>> matrix;
  for (const Value& row : value.items(size, size)) {
    std::vector<T>& into = matrix.emplace_back();
    for (const Value& cell : row.items(size, size)) into.push_back(cell.word(words));
  }
  return matrix;
}

/// "X" and "works" are one value: that X is where it belongs is to be seen in the text only.
std::vector<std::vector<PeerAccess>> peers_from(const Value& value, size_t size) {
  std::vector<std::vector<PeerAccess>> peers = matrix_from(value, size, kPeerWords);
  const std::vector<Value> rows = value.items(size, size);
  for (size_t i = 0; i < size; ++i) {
    const std::vector<Value> cells = rows[i].items(size, size);
    for (size_t j = 0; j < size; ++j) {
      if ((cells[j].json() == "X") != (i == j)) cells[j].refuse("\"X\" on the diagonal and nowhere else");
    }
  }
  return peers;
}

Json links_json(const std::vector<NvLink>& links) {
  Json runs = Json::array();
  for (size_t begin = 0; begin < links.size();) {
    size_t end = begin;
    while (end < links.size() && links[end] == links[begin]) ++end;
    const Json to = links[begin].to == NvLink::kSwitch ? Json("switch") : Json(links[begin].to);
    runs.push_back(
        {{"to", to}, {"count", end - begin}, {"active", links[begin].active}, {"hidden", links[begin].hidden}});
    begin = end;
  }
  return runs;
}

template <class T, size_t kCount>
Json matrix_json(const std::vector<std::vector<T>>& matrix, const Word<T> (&words)[kCount]) {
  Json rows = Json::array();
  for (size_t i = 0; i < matrix.size(); ++i) {
    Json row = Json::array();
    for (size_t j = 0; j < matrix.size(); ++j) row.push_back(i == j ? "X" : word_of(words, matrix[i][j]));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json gpu_json(const Gpu& gpu) {
  Json reasons = Json::array();
  for (const Word<uint64_t>& reason : kClockReasonWords) {
    if ((gpu.clock_reasons & reason.value) != 0) reasons.push_back(reason.text);
  }
  Json processes = Json::array();
  for (const GpuProcess& process : gpu.processes) {
    processes.push_back({{"pid", process.pid}, {"used_mib", process.used_mib}});
  }
  return {{"model", gpu.model->key},
          {"uuid", gpu.uuid},
          {"pci_bus_id", gpu.pci_bus_id},
          {"numa_node", gpu.numa_node},
          {"links", links_json(gpu.links)},
          {"pcie_generation", gpu.pcie_generation},
          {"pcie_width", gpu.pcie_width},
          {"mig", gpu.mig},
          {"fabric", word_of(kFabricWords, gpu.fabric)},
          {"clock_khz", gpu.clock_khz},
          {"memory_clock_khz", gpu.memory_clock_khz},
          {"clock_reasons", reasons},
          {"temperature_celsius", gpu.temperature_celsius},
          {"power_milliwatts", gpu.power_milliwatts},
          {"power_limit_milliwatts", gpu.power_limit_milliwatts},
          {"persistence", gpu.persistence},
          {"cpu_affinity", gpu.cpu_affinity},
          {"failing", gpu.failing},
          {"processes", processes}};
}

}  // namespace

MachineTable parse_table(std::string_view json, const std::string& file) {
  const Json document = parsed(json, file);
  const Value root(document, "", file);
  root.with_keys({"about", "gpus", "peers", "distances", "cuda_driver_version", "driver_version", "failing"});
  if (root.has("about")) static_cast<void>(root["about"].text());
  const std::vector<Value> gpus = root["gpus"].items(1, kMostGpus);
  const auto count = static_cast<int>(gpus.size());
  MachineTable table = make_table("h100", count);
  for (int i = 0; i < count; ++i) {
    table.gpus[static_cast<size_t>(i)] = gpu_from(gpus[static_cast<size_t>(i)], i, count);
  }
  if (root.has("peers")) table.peers = peers_from(root["peers"], gpus.size());
  if (root.has("distances")) {
    table.distances = matrix_from(root["distances"], gpus.size(), kDistanceWords);
  } else {
    for (size_t a = 0; a < gpus.size(); ++a) {
      for (size_t b = 0; b < gpus.size(); ++b) {
        const bool near = table.gpus[a].numa_node == table.gpus[b].numa_node;
        if (a != b) table.distances[a][b] = near ? Distance::kNode : Distance::kSys;
      }
    }
  }
  if (root.has("cuda_driver_version")) {
    table.cuda_driver_version = root["cuda_driver_version"].integer(0, 99'990);
  }
  if (root.has("driver_version")) table.driver_version = root["driver_version"].text();
  if (root.has("failing")) table.failing = failing_from(root["failing"]);
  check_table(table, file);
  return table;
}

MachineTable read_table(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || !text) throw UserError("the table of a machine cannot be read", file, "use a file that exists");
  return parse_table(text.str(), file);
}

std::string table_json(const MachineTable& table) {
  Json gpus = Json::array();
  for (const Gpu& gpu : table.gpus) gpus.push_back(gpu_json(gpu));
  const Json document = {{"gpus", gpus},
                         {"peers", matrix_json(table.peers, kPeerWords)},
                         {"distances", matrix_json(table.distances, kDistanceWords)},
                         {"cuda_driver_version", table.cuda_driver_version},
                         {"driver_version", table.driver_version},
                         {"failing", table.failing}};
  return document.dump(2) + "\n";
}

}  // namespace shardscope::emulation
