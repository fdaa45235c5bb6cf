// Loading of resident weights into the packed form.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/thread_team.hpp"

namespace shardscope::kernels::cpu {

/// Calls `read` in order, with chunks of at most 4 MiB or 16 rows, and packs with all threads. Exceptions of `read`
/// pass through.
std::unique_ptr<PackedMatrix> load_packed(std::span<const MatrixPart> parts, const RowReader& read, ThreadTeam& team);

}  // namespace shardscope::kernels::cpu
