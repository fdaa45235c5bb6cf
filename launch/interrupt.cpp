// A handler may do next to nothing, so it writes the signal's number into a pipe, and a thread waits at the other end.
#include "launch/interrupt.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <thread>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr int64_t kSameEvent_ns = 300'000'000;
constexpr unsigned char kEnd = 0;  // in the pipe: the watch is over; else a signal's number

// A handler has no other way to its data than variables of the whole process.
std::atomic<int> pipe_entry{-1};
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_at_ns{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Calls only what is async-signal-safe, and keeps errno.
void on_signal(int signal) {
  const int kept = errno;
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_at_ns = now_ns();
    const auto byte = static_cast<unsigned char>(signal);
    [[maybe_unused]] const ssize_t written = write(pipe_entry, &byte, 1);
  } else if (const int64_t first = first_at_ns; first != 0 && now_ns() - first > kSameEvent_ns) {
    _exit(1);
  }
  errno = kept;
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGHUP";
  }
}

bool ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

struct InterruptWatch::State {
  std::function<void(const char*)> act;
  std::array<int, 2> ends{-1, -1};  // of the pipe: read, write
  std::array<struct sigaction, kSignals.size()> earlier{};
  std::array<bool, kSignals.size()> caught{};
  std::thread thread;

  [[noreturn]] void end(int signal) const {
    try {
      act(name_of(signal));
    } catch (...) {  // it had its chance to say why
    }
    _exit(1);
  }

  void wait() const {
    unsigned char byte = kEnd;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    if (byte != kEnd) end(byte);
  }
};

InterruptWatch::InterruptWatch(std::function<void(const char* signal)> act) : state_(std::make_unique<State>()) {
  State& s = *state_;
  require(pipe_entry == -1, "InterruptWatch: a second one in this process");
  s.act = std::move(act);
  check_os(pipe2(s.ends.data(), O_CLOEXEC), "pipe2", "watch for signals");
  pipe_entry = s.ends[1];
  s.thread = std::thread([&s] { s.wait(); });
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == SIGHUP && ignored(SIGHUP)) continue;  // nohup
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    s.caught[i] = sigaction(kSignals[i], &action, &s.earlier[i]) == 0;
  }
}

InterruptWatch::~InterruptWatch() {
  State& s = *state_;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (s.caught[i]) sigaction(kSignals[i], &s.earlier[i], nullptr);
  }
  [[maybe_unused]] const ssize_t written = write(s.ends[1], &kEnd, 1);
  s.thread.join();  // behind a signal's byte in the pipe, this waits for the end of the process
  if (const int signal = first_signal; signal != 0) s.end(signal);  // it came between the two writes
  pipe_entry = -1;
  for (const int end : s.ends) close(end);
}

}  // namespace shardscope::launch
