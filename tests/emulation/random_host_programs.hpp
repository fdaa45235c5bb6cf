// Host programs made up at random that are right: kernels, copies, fills and products on several devices and streams,
// captured graphs that are replayed, memory that is freed and allocated again, pinned buffers that the host fills and
// reads. Between streams, and between a stream and the host, each waits for exactly what it needs. What all memory has
// to hold is computed by going through the program in its order, in plain C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"

namespace shardscope::test {

/// Numbers in a buffer: whole, so that sums are exact. A product takes the first kSide x kSide for a matrix.
inline constexpr int kNumbers = 40;
inline constexpr int kSide = 6;
using Numbers = std::vector<float>;

enum class Act : uint8_t {
  kCombine,     // out = (factor x + y) mod 32, a kernel
  kNeighbours,  // out[i] = (x[i] + x[i + 5]) mod 32, a kernel
  kProduct,     // out = x y, by cuBLASLt, with the stream's workspace
  kFill,        // out = 0
  kCopy,        // out = x: on a device, between two, from or to pinned memory
  kGraph,       // all steps of a graph
  kHostWrite,   // the host fills out, which is pinned
  kHostRead,    // the host reads x, which is pinned
  kReplace,     // the host frees out and allocates it again
};

/// How the host waits for a step.
enum class HostWait : uint8_t {
  kEventSynchronize,
  kEventQuery,  // until it is done
  kStreamSynchronize,
  kStreamQuery,
  kDeviceSynchronize,
};

/// What a step needs to have happened before.
struct Wait {
  int step = 0;
  HostWait how = HostWait::kEventSynchronize;  // of the host's steps; a stream waits by an event
};

struct Step {
  Act act{};
  int stream = -1;  // -1: the host does it
  int x = -1;       // resources
  int y = -1;
  int out = -1;
  int factor = 1;
  bool programmatic = false;
  int graph = -1;
  std::vector<Wait> waits;
  bool awaited = false;  // by an event
};

/// Something that steps read and write.
struct Resource {
  enum class Kind : uint8_t { kBuffer, kReplaceable, kPinned, kWorkspace };
  Kind kind = Kind::kBuffer;
  int device = 0;
};

/// Steps in streams. A graph's are numbered from 0: the one it is launched in, and the one that it forks.
struct Graph {
  std::vector<Step> steps;
  int stream = 0;         // that it is captured and launched in
  int fork = 0;           // another one of the device
  int workspace[2] = {};  // resources
};

struct HostProgram {
  int devices = 1;
  std::vector<int> streams;     // their devices
  std::vector<int> workspaces;  // of the streams: resources
  std::vector<Resource> resources;
  std::vector<Graph> graphs;
  std::vector<Step> steps;
};

HostProgram random_host_program(uint32_t seed);

/// A wait of a stream that can be left out.
struct Omission {
  int graph = -1;  // -1: of the program itself
  int step = -1;
  int wait = -1;
  bool none() const { return step < 0; }
};

/// Those without which two steps of streams that touch the same memory, one writing it, have no order. None of programs
/// that free memory, and none that the host relies on.
std::vector<Omission> needed_waits(const HostProgram& program);

struct HostRun {
  std::string wrong;  // the first difference from what had to be; empty if there is none
  std::string error;  // of the runtime or a library
  std::vector<emulation::Report> reports;
  std::vector<std::string> left;  // not given back
};

/// Runs it on a fresh machine, without one wait.
HostRun run_host_program(const HostProgram& program, emulation::Options options, const Omission& omission = {});

}  // namespace shardscope::test
