// MPI results as exceptions. Private to parallel/.
#pragma once

#include <mpi.h>

#include <array>
#include <string>
#include <string_view>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {

/// Throws SystemError with MPI's own words unless `result` is MPI_SUCCESS.
inline void check_mpi(int result, std::string_view call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw SystemError(std::string(call) + " failed: " + std::string(text.data(), length), "", "");
}

}  // namespace shardscope::parallel
