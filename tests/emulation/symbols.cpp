#include "tests/emulation/symbols.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

namespace shardscope::emulation {
namespace {

struct Frame {
  std::string function;
  std::string place;  // file:line
};

/// What addr2line says of an address: innermost frame first.
std::vector<Frame> frames_of(uintptr_t address) {
  Dl_info module{};
  if (dladdr(reinterpret_cast<const void*>(address), &module) == 0 || module.dli_fname == nullptr) return {};
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(module.dli_fbase);
  // The program itself is found by what it is, not by the name that it was started with.
  std::string file = module.dli_fname;
  if (file.find('/') == std::string::npos) file = "/proc/self/exe";
  const std::string command = fmt::format("addr2line -f -i -C -e '{}' 0x{:x} 2>/dev/null", file, offset);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  if (pipe == nullptr) return {};
  std::vector<Frame> frames;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    Frame frame;
    frame.function = line.data();
    if (std::fgets(line.data(), line.size(), pipe.get()) == nullptr) break;
    frame.place = line.data();
    for (std::string* text : {&frame.function, &frame.place}) {
      while (!text->empty() && text->back() == '\n') text->pop_back();
    }
    frame.place = frame.place.substr(0, frame.place.find(" (discriminator"));
    frames.push_back(frame);
  }
  return frames;
}

bool in_seam(std::string_view place) {
  for (const std::string_view file :
       {"/portable.cuh:", "/ptx.cuh:", "/emulated_device.hpp:", "/emulated_launch.hpp:"}) {
    if (place.find(file) != std::string_view::npos) return true;
  }
  return false;
}

std::string relative(std::string place) {
  const std::string_view root = SHARDSCOPE_SOURCE_DIR "/";
  return place.starts_with(root) ? place.substr(root.size()) : place;
}

/// Removes everything in front of the last part of a qualified name, template arguments kept.
std::string last_part(std::string_view name) {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && (name[i] == ':' || name[i] == ' ')) begin = i + 1;
  }
  return std::string(name.substr(begin));
}

}  // namespace

std::string place_of(const void* return_address) {
  static auto& known = *new std::map<const void*, std::string>;
  const auto [entry, is_new] = known.try_emplace(return_address);
  if (is_new) {
    const std::vector<Frame> frames = frames_of(reinterpret_cast<uintptr_t>(return_address) - 1);
    entry->second = frames.empty() ? "an unknown place" : relative(frames.front().place);
    for (const Frame& frame : frames) {
      if (in_seam(frame.place)) continue;
      entry->second = relative(frame.place);
      break;
    }
  }
  return entry->second;
}

std::string kernel_name(const void* kernel) {
  static auto& known = *new std::map<const void*, std::string>;
  const auto [entry, is_new] = known.try_emplace(kernel);
  if (is_new) {
    const std::vector<Frame> frames = frames_of(reinterpret_cast<uintptr_t>(kernel));
    std::string name = frames.empty() ? "an unknown kernel" : frames.back().function;
    // The parameter list is the last parenthesis at depth 0; "(anonymous namespace)" stands before it.
    int depth = 0;
    for (size_t i = name.size(); i-- > 0;) {
      if (name[i] == ')') ++depth;
      if (name[i] == '(' && --depth == 0) {
        if (name.compare(i, 21, "(anonymous namespace)") != 0) name.resize(i);
        break;
      }
    }
    entry->second = last_part(name);
  }
  return entry->second;
}

}  // namespace shardscope::emulation
