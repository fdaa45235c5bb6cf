// The options of `comm`: which sums are measured, in which ways, by which rules, and where the report goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"
#include "launch/run_options.hpp"
#include "launch/sweep_options.hpp"
#include "parallel/communicator.hpp"
#include "parallel/sum_bench.hpp"
#include "runtime/measure/comm.hpp"
#include "runtime/report/comm_report.hpp"

namespace shardscope::launch {

inline constexpr const char* kCommCommand = "comm";

/// As given; empty and nullopt: not given, which means one thing on hosts and another on devices.
struct CommArguments {
  RunOptions run;
  BackendKind backend = BackendKind::kAuto;
  bool shared_devices = false;
  std::vector<int> degrees;
  std::optional<int64_t> min_bytes, max_bytes;
  std::vector<parallel::CommunicatorKind> ways;  // empty: all that can be used
  std::vector<kernels::DType> dtypes;
  std::vector<bool> graphs;
  runtime::SumProtocol protocol;  // its noise bound is chosen by comm_plan
  SweepFiles files;
};

po::options_description comm_option_list();

/// Throws UserError.
CommArguments comm_arguments(const po::variables_map& values, Session& session);

/// What is measured on that kind of memory.
struct CommPlan {
  std::vector<int> degrees;
  std::vector<runtime::SumCase> cases;  // of each degree, whose tp is still to be set; type, mode and size ascending
  std::vector<std::string> ways;        // asked for by name; empty: all that can be used
  runtime::SumProtocol protocol;
  std::vector<std::string> notes;  // what was made of a value that could not be taken as it was

  int64_t least_bytes() const;
  int64_t most_bytes() const;
};

/// Throws UserError for what that kind of memory does not have.
CommPlan comm_plan(const CommArguments& arguments, bool on_devices);

/// Elements of the sums: doubling from the least whole number of elements that holds min_bytes, up to max_bytes.
std::vector<int64_t> sum_counts(int64_t min_bytes, int64_t max_bytes, kernels::DType dtype);

/// Of the ways that a group has, those that are measured. Adds those that it cannot use to left_out. One rank alone has
/// its own, whatever was asked for. Throws UserError for one that was asked for by name and cannot be used.
std::vector<parallel::SumBench::Way> chosen_ways(const CommPlan& plan, const parallel::SumBench& bench, int tp,
                                                 std::vector<runtime::LeftOutWay>& left_out);

}  // namespace shardscope::launch
