#include "launch/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernels/base/error.hpp"

namespace shardscope::launch {

void write_out(std::string_view bytes) {
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::fflush(stdout) != 0) {
    throw SystemError(fmt::format("cannot write: {}", std::strerror(errno)), "standard output",
                      "check the disk or the reading program");
  }
}

}  // namespace shardscope::launch
