// From the times of operations to the parts of TPOT, and from the parts of two degrees to what is lost between them.
// Pure functions; each definition stands here once. Per rank and operation: own = end - max(start, previous end);
// gap = max(0, start - previous end); B = the operation's bytes / the rank's achievable read bandwidth, 0 in
// collectives and sampling. Then
//   ideal_memory        sum of B over all operations
//   matrix_loss         sum of (own - B) over products of weights but the LM head's
//   attention           sum of (own - B) over attention, with rotary and KV append
//   elementwise         sum of (own - B) over embedding look-up, norms and row picks that are not fused elsewhere
//   allreduce_transfer  inside all-reduces, after the last rank had arrived; with what is fused to them
//   allreduce_wait      inside collectives (the candidates' exchange too), before the last rank had arrived
//   head_and_sampling   the LM head's own - B, candidates and their transfer, sampling
//   gaps                between operations: launching, the host, the scheduler
//   residual            TPOT of generations without instruments - all of the above
// Each rank's parts sum to the row's TPOT p50; a row's are means over its ranks.
#pragma once

#include <optional>
#include <vector>

#include "runtime/measure/parts.hpp"
#include "runtime/measure/point.hpp"
#include "runtime/measure/traffic.hpp"

namespace shardscope::runtime {

inline constexpr double kLargestResidual = 0.05;  // of TPOT: beyond it the parts are not to be trusted

/// Sets attribution of the row and of every rank, and comm_share, from point.instrumented. Of the generations with
/// instruments those count whose TPOT lies between the quartiles, the same for all ranks. bytes [tp]: of each rank.
/// Nothing where there is no TPOT, no instrumented generation, or a rank without a bandwidth. Needs `tpot_ms`, and
/// achievable_gb_per_s of the ranks.
void set_attribution(PointResult& point, const std::vector<OperationBytes>& bytes);

/// loss[part](tp) = part(tp) - part(base) x base / tp on every point with an attribution whose base (see set_speedups)
/// has one, too: what perfect scaling would have saved. Together they make
/// TPOT(tp) - TPOT(base) x base / tp. Nothing where the collectives are left out of one of the two TPOTs. Needs
/// tp_base.
void set_losses(std::vector<PointResult>& points);

/// |residual| / TPOT; nullopt without an attribution.
std::optional<double> residual_share(const PointResult& point);

}  // namespace shardscope::runtime
