// A run that goes wrong as told: fault_driver SCENARIO. Judged by fault_test.sh. The timeout is 3 s.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/error.hpp"
#include "parallel/communicator.hpp"

namespace shardscope::parallel {
namespace {

/// The decode loop of a rank that is in order.
void reduce_for(World& world, Communicator& communicator, std::chrono::seconds time) {
  std::vector<float> data(576, 0.0f);
  const auto end = std::chrono::steady_clock::now() + time;
  // All ranks must leave together: rank 0's clock decides.
  for (bool go_on = true; go_on;) {
    for (int i = 0; i < 50; ++i) communicator.all_reduce(data);
    world.progress("decode");
    go_on = std::chrono::steady_clock::now() < end;
    communicator.broadcast(std::as_writable_bytes(std::span(&go_on, 1)), 0);
  }
}

void run(World& world, const std::string& scenario) {
  const auto communicator = make_communicator(
      world, {world.size(), scenario == "absent" ? CommunicatorKind::kMpi : CommunicatorKind::kShm, 576, true});
  world.progress("decode");
  const int rank = world.rank();
  if (scenario == "user_error" && rank == 1) throw UserError("no such model", "model.gguf", "name one that exists");
  if (scenario == "system_error" && rank == 1) throw SystemError("disk failed", "byte 7", "buy another");
  if (scenario == "bug" && rank == 1) throw BugError("two and two make five");
  if (scenario == "lowest_of_two" && rank >= 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * (4 - rank)));  // the lowest comes last
    throw UserError("wrong on rank " + std::to_string(rank), "here", "nothing");
  }
  if (scenario == "same_everywhere") throw UserError("no such model", "model.gguf", "name one that exists");
  if (scenario == "early_exit" && rank == 1) _exit(0);
  if (scenario == "error_in_destructor") {
    if (rank == 1) throw SystemError("failed while others end", "", "");
    return;
  }
  if (scenario == "stopped_in_a_wait" && rank == 0) {
    // Rank 1 is stopped while it waits for us; then we come.
    for (int i = 0; i < 20; ++i) {
      world.progress("thinking");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  if (scenario == "absent" && rank == 1) {
    world.progress("prefill");
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  reduce_for(world, *communicator, std::chrono::seconds(30));
}

}  // namespace
}  // namespace shardscope::parallel

int main(int argc, char** argv) {
  using namespace shardscope;
  if (argc != 2) return 2;
  parallel::World world({.use_mpi = true, .timeout = std::chrono::milliseconds(3000)});
  try {
    parallel::run(world, argv[1]);
  } catch (const parallel::PeerFailure&) {
    world.fail(1, "");
  } catch (const Error& error) {
    world.fail(error.exit_code(), error.what());
  }
  return 0;
}
