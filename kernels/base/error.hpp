// The three kinds of failures of the project, each with its exit status. This header (with the rest of kernels/base)
// is the one thing that every folder may include. Who catches: launch/main.cpp alone.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shardscope {

/// A failure that ends the run. `what()` is one line: WHAT, WHERE, WHAT TO DO.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// The exit status of the process: 2 wrong usage or unreadable input, 1 the run failed, 70 a bug of ours.
  virtual int exit_code() const noexcept = 0;
};

/// Something that the user can change: an option, a file. Exit status 2.
class UserError : public Error {
 public:
  /// what: the fault. where: file and byte or line, or the option. what_to_do: the remedy. Joined by ", ".
  UserError(std::string_view what, std::string_view where, std::string_view what_to_do);
  int exit_code() const noexcept override { return 2; }
};

/// The operating system, MPI or a device failed. Exit status 1.
class SystemError : public Error {
 public:
  SystemError(std::string_view what, std::string_view where, std::string_view what_to_do);
  int exit_code() const noexcept override { return 1; }
};

/// A promise broken inside this program. Exit status 70.
class BugError : public Error {
 public:
  explicit BugError(std::string_view what);
  int exit_code() const noexcept override { return 70; }
};

/// Throws BugError with `what` unless `holds`.
inline void require(bool holds, std::string_view what) {
  if (!holds) throw BugError(what);
}

/// Throws SystemError with errno's text when `result` is negative; returns it otherwise.
int check_os(int result, std::string_view call, std::string_view where);

}  // namespace shardscope
