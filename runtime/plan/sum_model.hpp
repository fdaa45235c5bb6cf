// How long an all-reduce between given GPUs takes in a CUDA graph: a table by message size where one was measured on
// such GPUs, two pieces (latency and bandwidth, for small and for large messages) where none was.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/constants.hpp"
#include "runtime/plan/group_links.hpp"

namespace shardscope::runtime {

class SumModel {
 public:
  /// Of groups that are joined so. way: "nccl", or "one-shot", which is taken where it is the faster. own: tables that
  /// the user measured (empty: none). With them no one-shot is taken that is not among them, and those of one process
  /// for all GPUs stand alone, since their times hold its launches.
  SumModel(const PlanConstants& constants, std::string_view gpu, const GroupLinks& links, std::string_view way,
           const std::vector<SumTable>& own = {});

  /// Microseconds of one all-reduce of that many bytes; never falls with bytes. 0 for one rank. Throws BugError for no
  /// rank or no bytes.
  double us(int ranks, int64_t bytes) const;

  /// Where the times of that many ranks come from, and whether they were measured on such GPUs so joined.
  struct Backing {
    std::string text;
    bool calibrated = false;
  };
  Backing backing(int ranks) const;

 private:
  struct Curve {
    std::map<int64_t, double> us;
    std::string text;
    bool calibrated = false;
  };
  using Curves = std::map<int, Curve>;  // by ranks

  Curves curves_of(const PlanConstants& constants, std::string_view gpu, std::string_view way) const;
  double by_pieces(int ranks, double bytes) const;
  double large(int ranks, double bytes) const;
  double along(const Curve& curve, int ranks, int64_t bytes) const;
  double by_curves(const Curves& curves, int ranks, int64_t bytes) const;

  GroupLinks links_;
  PathPieces pieces_;
  Curves nccl_;
  Curves one_shot_;  // empty: not the way
};

}  // namespace shardscope::runtime
