#include "kernels/base/error.hpp"

#include <cerrno>
#include <cstring>

namespace shardscope {
namespace {

std::string joined(std::string_view what, std::string_view where, std::string_view what_to_do) {
  std::string text(what);
  for (std::string_view part : {where, what_to_do}) {
    if (part.empty()) continue;
    text += ", ";
    text += part;
  }
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';  // an error is one line, whatever a file name holds
  }
  return text;
}

}  // namespace

UserError::UserError(std::string_view what, std::string_view where, std::string_view what_to_do)
    : Error(joined(what, where, what_to_do)) {}

SystemError::SystemError(std::string_view what, std::string_view where, std::string_view what_to_do)
    : Error(joined(what, where, what_to_do)) {}

BugError::BugError(std::string_view what)
    : Error(joined(what, "", "this is a bug of shardscope: please report it with the command line")) {}

int check_os(int result, std::string_view call, std::string_view where) {
  if (result >= 0) return result;
  const int code = errno;
  throw SystemError(std::string(call) + " failed: " + std::strerror(code), where, "");
}

}  // namespace shardscope
