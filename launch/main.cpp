// The one place that starts and ends everything: finds the launcher, joins MPI, runs one command, and turns failures
// into one line and an exit status.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/environment.hpp"
#include "launch/output.hpp"
#include "launch/session.hpp"

namespace shardscope::launch {
namespace {

struct CommandEntry {
  const char* name;
  const char* what_it_does;
  Command run;
};

constexpr CommandEntry kCommands[] = {
    {"generate", "runs prompts and streams text", generate_command},
    {"bench", "measures one configuration thoroughly", bench_command},
    {"scale", "sweeps tensor-parallel degrees in one launch and measures each", scale_command},
    {"comm", "measures the all-reduce: sizes x ways of summing", comm_command},
    {"topo", "shows how the GPUs of this node, or of a file, are joined", topo_command},
    {"plan", "predicts TPOT, MBU and the best degree on GPUs that need not be here", plan_command},
    {"compare", "compares two or more topologies", compare_command},
    {"doctor", "checks launch, host, driver and peer access, and says what to do", doctor_command},
};

std::string overview() {
  std::string text =
      "shardscope: tensor-parallel inference that measures what each further rank brings\n\n"
      "usage: shardscope COMMAND [options]          (alone: one rank)\n"
      "       mpirun -np N shardscope COMMAND …     (N ranks)\n\ncommands:\n";
  for (const CommandEntry& command : kCommands)
    text += fmt::format("  {:<10} {}\n", command.name, command.what_it_does);
  return text + "\nshardscope COMMAND --help lists the options of a command; shardscope --version the version.\n";
}

int run_command(Session& session, const std::vector<std::string>& arguments) {
  const std::string name = arguments.empty() ? "" : arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    if (session.speaks()) write_out(overview());
    return 0;
  }
  if (name == "--version") {
    if (session.speaks()) write_out(fmt::format("shardscope {}\n", version_text()));
    return 0;
  }
  std::vector<std::string> names;
  for (const CommandEntry& command : kCommands) {
    if (name == command.name) return command.run(session, {arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  if (name.empty())
    throw UserError("no command given", "shardscope", "use one of: " + fmt::format("{}", fmt::join(names, ", ")));
  const std::optional<std::string> near = nearest_name(name, names);
  throw UserError(
      fmt::format("unknown command '{}'", name), "shardscope",
      near ? fmt::format("did you mean {}?", *near) : fmt::format("use one of: {}", fmt::join(names, ", ")));
}

/// Ranks that were started with different arguments would do different things and wait for each other.
void check_same_arguments(Session& session) {
  if (session.world.size() == 1) return;
  session.world.progress("comparing arguments");
  const std::vector<std::string> all =
      session.world.all_gather_text(fmt::format("{}", fmt::join(session.argv, "\n")), "arguments");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UserError(fmt::format("rank {} was started with other arguments than rank 0", rank), "command line",
                    "start all ranks with the same");
  }
}

/// Runs the command; every failure ends in World::fail, while the communicator still lives.
int guarded(Session& session, const std::vector<std::string>& arguments) {
  try {
    check_same_arguments(session);
    return run_command(session, arguments);
  } catch (const parallel::PeerFailure&) {
    session.world.fail(1, "");
  } catch (const Error& error) {
    session.world.fail(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    session.world.fail(1, "out of memory, allocating on this host, use more ranks, a smaller model or shorter lengths");
  } catch (const std::exception& error) {
    session.world.fail(
        70, fmt::format("{}, this is a bug of shardscope: please report it with the command line", error.what()));
  }
}

/// A launch that went wrong is something to look into for `doctor`, whatever else it is.
bool examines(const std::vector<std::string>& argv) {
  return argv.size() > 1 && argv[1] == "doctor";
}

Launcher launcher_of(const std::vector<std::string>& argv) {
  try {
    return detect_launcher(read_environment);
  } catch (const UserError&) {  // a step of Slurm's whose tasks MPI cannot join
    if (!examines(argv)) throw;
    const std::string tasks = read_environment("SLURM_STEP_NUM_TASKS").value_or("");
    return {.name = "srun", .use_mpi = false, .announced_ranks = std::atoi(tasks.c_str())};
  }
}

int start(std::vector<std::string> argv) {
  const Launcher launcher = launcher_of(argv);
  // More ranks than cores without yielding costs a scheduler quantum per message; with it 0.2 to 0.4 us.
  if (launcher.use_mpi) setenv("OMPI_MCA_mpi_yield_when_idle", "1", /*overwrite=*/0);
  parallel::World world({.use_mpi = launcher.use_mpi});
  Session session{.world = world, .launcher = launcher, .argv = argv};
  if (launcher.announced_ranks && *launcher.announced_ranks != world.size() && !examines(argv)) {
    world.fail(2, fmt::format("the launcher announced {} tasks but MPI sees {}, {}, start it with mpirun or "
                              "srun --mpi=pmix",
                              *launcher.announced_ranks, world.size(), launcher.name));
  }
  return guarded(session, {argv.begin() + 1, argv.end()});
}

}  // namespace
}  // namespace shardscope::launch

int main(int argc, char** argv) {
  try {
    return shardscope::launch::start({argv, argv + argc});
  } catch (const shardscope::Error& error) {  // before there was a world
    std::fprintf(stderr, "shardscope: error: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shardscope: error: %s, at start, please report it with the command line\n", error.what());
    return 70;
  }
}
