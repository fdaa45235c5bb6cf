// Kernels with a bug that can be switched off: what the checker must find, and, with the bug off, must not. A bug is a
// kernel with a template parameter kPlanted, a scenario that runs it, and a row in the table at the end of its file.
// The lines that a report must name end in a comment `planted: NAME` (all of them) or `planted, either: NAME` (one of
// them).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::planted {

using test::Stand;
using test::sum_of_counting;

/// What a run without the checker must notice of the bug.
enum class Plain : uint8_t {
  kReport,       // the same fault is reported in every order
  kWrongResult,  // the result is wrong in at least one of the orders tried
  kNothing,      // perhaps nothing: the kernel may well give the right result
  kNotRun,       // the access would end the test program itself
};

/// In which orders the checker must find the bug.
enum class Orders : uint8_t {
  kEvery,
  kSome,  // the comment at the row says why
};

struct Bug {
  std::string_view name;
  /// Runs the kernels; true if their result is right.
  bool (*scenario)(Stand&);
  /// What the checker reports; nothing: only the result is wrong.
  std::optional<emulation::Fault> fault;
  Plain plain = Plain::kNothing;
  Orders orders = Orders::kEvery;
  int devices = 1;
  int multiprocessors = 132;
  /// The kernel that the report names, if its name is not the bug's.
  std::string_view kernel = {};
  /// What the marks of its lines say, if not its name.
  std::string_view mark = {};
};

struct BugFile {
  std::string_view path;  // of the source
  std::vector<Bug> bugs;
};

BugFile shared_memory_bugs();
BugFile warp_bugs();
BugFile copy_bugs();
BugFile bounds_bugs();
BugFile width_bugs();
BugFile block_order_bugs();
BugFile atomic_bugs();
BugFile protocol_bugs();
BugFile stream_bugs();
BugFile device_bugs();
BugFile dependent_launch_bugs();

}  // namespace shardscope::planted
