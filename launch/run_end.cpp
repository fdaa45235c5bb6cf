#include "launch/run_end.hpp"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "launch/output.hpp"

namespace shardscope::launch {
namespace {

constexpr std::chrono::milliseconds kForRank0{900};

}  // namespace

void say_interrupted(const std::function<std::string(const std::string& signal)>& last_words, const char* signal,
                     Session& session) {
  const bool ours = session.world.announce_end(1, std::string("interrupted by ") + signal);
  const std::string words = last_words(signal);
  write_error(fmt::format("shardscope: {}{}\n", ours ? "error: " : "", words));
}

void hold_on(const char* signal, Session& session) {
  std::this_thread::sleep_for(kForRank0);
  const std::string words = std::string("interrupted by ") + signal;
  if (!session.world.announce_end(1, words)) return;
  write_error(fmt::format("shardscope: error: {}, rank {} on {}\n", words, session.world.rank(), session.world.host()));
}

}  // namespace shardscope::launch
