#include "launch/run_options.hpp"

#include <array>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/output.hpp"

namespace shardscope::launch {
namespace {

using namespace std::string_view_literals;

constexpr std::array kBackends = {"auto"sv, "cuda"sv, "cpu"sv};
constexpr std::array kProgress = {"auto"sv, "always"sv, "never"sv};

}  // namespace

void add_run_options(po::options_description& options) {
  options.add_options()  //
      ("timeout", po::value<double>()->default_value(60)->value_name("S"),
       "seconds without progress of a rank after which the run ends and names it")  //
      ("progress", po::value<std::string>()->default_value("auto")->value_name("WHEN"),
       "auto: bars on a terminal when started without a launcher, else lines; always: bars; never")  //
      ("config", po::value<std::string>()->value_name("FILE"),
       "options from a file, one 'name = value' a line; those of the command line win")  //
      ("verbose,v", po::bool_switch(), "say more on standard error")                     //
      ("help,h", po::bool_switch(), "print this help");
}

RunOptions run_options(const po::variables_map& values, Session& session) {
  const auto progress = values["progress"].as<std::string>();
  parse_choice(progress, "--progress", kProgress);
  const double timeout = values["timeout"].as<double>();
  constexpr double kLongestTimeout = 86'400;
  if (!(timeout >= 1 && timeout <= kLongestTimeout)) {
    throw UserError(fmt::format("{} is out of range", timeout), "--timeout", "use 1 to 86400 seconds");
  }
  session.world.set_timeout(std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3)));
  return {.progress = progress_mode(progress, session.launcher.use_mpi, errors_on_terminal()),
          .verbose = values["verbose"].as<bool>()};
}

void add_backend_option(po::options_description& options) {
  options.add_options()  //
      ("backend", po::value<std::string>()->default_value("auto")->value_name("KIND"),
       "auto (cuda where every rank sees a device that can be used, else cpu), cuda, cpu");
}

BackendKind backend_kind(const po::variables_map& values) {
  constexpr std::array kKinds = {BackendKind::kAuto, BackendKind::kCuda, BackendKind::kCpu};
  return kKinds[parse_choice(values["backend"].as<std::string>(), "--backend", kBackends)];
}

}  // namespace shardscope::launch
