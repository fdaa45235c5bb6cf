// Each case runs in a forked child: the watch ends its process, and Catch has handlers of its own.
#include "launch/interrupt.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

using namespace shardscope::launch;

namespace {

using std::chrono::milliseconds;

constexpr int kOther = 7;      // exit status of a child that went on after all
constexpr int kKilled = 1000;  // + signal, of a child that a signal ended

struct Ended {
  int status = -1;
  std::string said;  // what the child wrote
};

/// Runs `body` in a child whose signals are as in a fresh program. `say` writes to where the parent reads.
Ended in_child(const std::function<void(const std::function<void(const std::string&)>& say)>& body) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that hangs fails its case
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    body([&](const std::string& text) {
      if (write(ends[1], text.data(), text.size()) < 0) _exit(99);
    });
    _exit(kOther);
  }
  REQUIRE(child > 0);
  close(ends[1]);
  Ended ended;
  std::array<char, 256> chunk{};
  for (ssize_t count; (count = read(ends[0], chunk.data(), chunk.size())) > 0;) {
    ended.said.append(chunk.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : kKilled + WTERMSIG(status);
  return ended;
}

void sleep_ms(int64_t ms) {
  const auto end = std::chrono::steady_clock::now() + milliseconds(ms);
  while (std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));  // signals cut a sleep
}

}  // namespace

TEST_CASE("InterruptWatch: each signal acts once, named, and ends the process with status 1") {
  for (const auto& [signal, name] : {std::pair{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}) {
    const Ended ended = in_child([number = signal](const auto& say) {
      const InterruptWatch watch([&](const char* which) { say(which); });
      raise(number);
      sleep_ms(10'000);
    });
    CAPTURE(name);
    CHECK(ended.status == 1);
    CHECK(ended.said == name);
  }
}

TEST_CASE("InterruptWatch: acts while the main thread computes and never looks") {
  const Ended ended = in_child([](const auto& say) {
    const InterruptWatch watch([&](const char*) { say("acted"); });
    const pid_t own = getpid();
    std::thread([own] { kill(own, SIGTERM); }).detach();
    for (std::atomic<uint64_t> spins{0};; ++spins) {
    }
  });
  CHECK(ended.status == 1);
  CHECK(ended.said == "acted");
}

TEST_CASE("InterruptWatch: its end waits for what acts, so that nothing else ends the process first") {
  const Ended ended = in_child([](const auto& say) {
    {
      const InterruptWatch watch([&](const char*) {
        sleep_ms(200);
        say("acted");
      });
      raise(SIGINT);
    }
    say("went on");
  });
  CHECK(ended.status == 1);
  CHECK(ended.said == "acted");
}

TEST_CASE("InterruptWatch: what acts may throw") {
  const Ended ended = in_child([](const auto&) {
    const InterruptWatch watch([](const char*) { throw std::runtime_error("disk full"); });
    raise(SIGINT);
    sleep_ms(10'000);
  });
  CHECK(ended.status == 1);
}

TEST_CASE("InterruptWatch: a second signal of the same event is none, a later one ends the process at once") {
  const auto stuck = [](const auto& say, int64_t between_ms) {
    const InterruptWatch watch([&](const char* which) {
      say(which);
      sleep_ms(3000);
      say(" in time");
    });
    raise(SIGINT);
    sleep_ms(between_ms);
    raise(SIGTERM);
    sleep_ms(10'000);
  };
  const Ended same = in_child([&](const auto& say) { stuck(say, 0); });
  CHECK(same.status == 1);
  CHECK(same.said == "SIGINT in time");
  const Ended again = in_child([&](const auto& say) { stuck(say, 600); });
  CHECK(again.status == 1);
  CHECK(again.said == "SIGINT");
}

TEST_CASE("InterruptWatch: without a signal the earlier handlers are back, and another watch may follow") {
  const Ended ended = in_child([](const auto& say) {
    {
      const InterruptWatch watch([&](const char*) { say("first"); });
    }
    {
      const InterruptWatch watch([&](const char*) { say("second"); });
    }
    say("free");
    raise(SIGTERM);
  });
  CHECK(ended.status == kKilled + SIGTERM);
  CHECK(ended.said == "free");
}

TEST_CASE("InterruptWatch: one at a time") {
  const Ended ended = in_child([](const auto& say) {
    const InterruptWatch watch([](const char*) {});
    try {
      const InterruptWatch second([](const char*) {});
    } catch (const std::exception&) {
      say("refused");
    }
  });
  CHECK(ended.said == "refused");
}

TEST_CASE("InterruptWatch: SIGHUP stays ignored where it was, as under nohup") {
  const Ended ended = in_child([](const auto& say) {
    std::signal(SIGHUP, SIG_IGN);
    const InterruptWatch watch([&](const char*) { say("acted"); });
    raise(SIGHUP);
    sleep_ms(100);
  });
  CHECK(ended.status == kOther);
  CHECK(ended.said.empty());
}

TEST_CASE("InterruptWatch: a system call that a signal meets goes on") {
  const Ended ended = in_child([](const auto& say) {
    std::mutex forever;
    forever.lock();
    const InterruptWatch watch([&](const char*) { forever.lock(); });  // acts without an end
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) _exit(99);
    std::thread([&, reader = pthread_self()] {
      sleep_ms(100);
      pthread_kill(reader, SIGINT);
      sleep_ms(100);
      if (write(ends[1], "x", 1) < 0) _exit(99);
    }).detach();
    char byte = 0;
    say(read(ends[0], &byte, 1) == 1 ? "restarted" : "cut short");
    _exit(3);
  });
  CHECK(ended.status == 3);
  CHECK(ended.said == "restarted");
}
