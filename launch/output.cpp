#include "launch/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
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

void write_error(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(STDERR_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

bool errors_on_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

int error_columns() {
  constexpr int kUsual = 80;
  constexpr int kWidest = 100;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::min<int>(size.ws_col, kWidest);
}

}  // namespace shardscope::launch
