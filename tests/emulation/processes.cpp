#include "tests/emulation/processes.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "kernels/base/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace shardscope::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 16;
constexpr size_t kMessageBytes = 4096;
constexpr int64_t kOutputBytes = 64 << 10;
constexpr auto kPollPause = std::chrono::microseconds(200);

// How a child ends whose body has; any other status, also 0, is that of a body that was left in another way.
constexpr int kGood = 57;
constexpr int kFailure = 58;

struct Place {
  std::atomic<int> pid;
  std::atomic<int64_t> arrivals;  // at barriers
  std::atomic<bool> dies;         // because the test says so
  std::atomic<bool> stops;
  std::atomic<bool> ended;  // it will come to no barrier any more
  char message[kMessageBytes];
  alignas(64) std::byte shared[Rank::kMostSharedBytes];
};

}  // namespace

struct Common {
  int ranks;
  Place places[kMostRanks];
};

namespace {

/// The shared pages of one run. Anonymous: they go with the processes.
class CommonPages {
 public:
  explicit CommonPages(int ranks) {
    void* const pages = mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check_os(pages == MAP_FAILED ? -1 : 0, "mmap", "pages that test processes share");
    common_ = static_cast<Common*>(pages);  // zeros, which is the state of an atomic that nobody has set
    common_->ranks = ranks;
  }
  CommonPages(const CommonPages&) = delete;
  CommonPages& operator=(const CommonPages&) = delete;
  ~CommonPages() { munmap(common_, sizeof(Common)); }

  Common& common() const { return *common_; }

 private:
  Common* common_ = nullptr;
};

struct Child {
  int pid = 0;
  int output = -1;  // a file without a name, to which it prints: unlike a pipe it is never full
  bool ended = false;
};

void set_message(Place& place, std::string_view text) {
  const size_t length = std::min(text.size(), kMessageBytes - 1);
  std::memcpy(place.message, text.data(), length);
  place.message[length] = '\0';
}

/// True if the process has leaked memory; says where on its standard error.
bool has_leaks() {
#if defined(__SANITIZE_ADDRESS__)
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

[[noreturn]] void run_child(Common& common, int number, int parent, int output, const emulation::Options& options,
                            const std::function<void(Rank&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kFailure);  // it ended before the line above
  Place& place = common.places[number];
  place.pid = getpid();
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // Catch's handlers would report a crash as if it were the parent's.
  for (const int signal_number : {SIGINT, SIGTERM, SIGILL, SIGFPE, SIGSEGV, SIGABRT}) signal(signal_number, SIG_DFL);
  int status = kGood;
  try {
    emulation::restart(options);
    Rank rank(common, number);
    body(rank);
  } catch (const std::exception& error) {
    set_message(place, error.what());
    status = kFailure;
  } catch (...) {
    set_message(place, "something was thrown that is no std::exception");
    status = kFailure;
  }
  if (status == kGood && has_leaks()) {
    set_message(place, "AddressSanitizer found leaked memory");
    status = kFailure;
  }
  place.ended = true;
  std::cout.flush();
  std::fflush(nullptr);
  // Not exit: what was registered before the fork (Catch's, static destructors) is the parent's, and a worker may run.
  _exit(status);
}

std::string read_output(int file) {
  const int64_t bytes = lseek(file, 0, SEEK_END);
  const int64_t begin = std::max<int64_t>(0, bytes - kOutputBytes);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, bytes - begin)), '\0');
  const ssize_t read = pread(file, text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read)));
  return text;
}

void require_one_thread() {
  const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  if (threads != 1) {
    throw std::logic_error(fmt::format(
        "in_processes: the parent has {} threads, which a fork does not take along, what to do: restart it without "
        "Policy::kWorker before",
        threads));
  }
}

/// Children of one run; ends those that are left.
class Children {
 public:
  explicit Children(Common& common) : common_(common) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (Child& child : children_) {
      if (!child.ended) {
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
      }
      close(child.output);
    }
  }

  void start(const emulation::Options& options, const std::function<void(Rank&)>& body) {
    const int parent = getpid();
    const int output = check_os(memfd_create("output of a test process", MFD_CLOEXEC), "memfd_create", "in_processes");
    const int number = static_cast<int>(std::ssize(children_));
    const int pid = fork();
    if (pid == 0) run_child(common_, number, parent, output, options, body);
    if (pid < 0) close(output);
    check_os(pid, "fork", "in_processes");
    children_.push_back({.pid = pid, .output = output});
    common_.places[number].pid = pid;
  }

  std::vector<Outcome> wait(Clock::time_point end) {
    std::vector<Outcome> outcomes(children_.size());
    bool time_is_up = false;
    while (true) {
      bool others_run = false;  // than those that stand still because they want to
      for (size_t i = 0; i < children_.size(); ++i) {
        look_at(i, time_is_up, outcomes[i]);
        others_run = others_run || !(children_[i].ended || common_.places[i].stops);
      }
      if (std::all_of(children_.begin(), children_.end(), [](const Child& child) { return child.ended; })) break;
      time_is_up = Clock::now() >= end;
      for (size_t i = 0; i < children_.size(); ++i) {
        if (!children_[i].ended && (time_is_up || !others_run)) kill(children_[i].pid, SIGKILL);
      }
      std::this_thread::sleep_for(kPollPause);
    }
    return outcomes;
  }

 private:
  void look_at(size_t i, bool time_is_up, Outcome& outcome) {
    Child& child = children_[i];
    int status = 0;
    if (child.ended || waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    child.ended = true;
    Place& place = common_.places[i];
    place.ended = true;
    outcome = {.rank = static_cast<int>(i), .pid = child.pid, .message = place.message};
    outcome.output = read_output(child.output);
    using End = Outcome::End;
    if (WIFEXITED(status)) {
      outcome.end = WEXITSTATUS(status) == kGood ? End::kReturned : End::kFailed;
      if (outcome.end == End::kFailed && outcome.message.empty()) {
        outcome.message = fmt::format("it left the body by exit({})", WEXITSTATUS(status));
      }
      return;
    }
    outcome.signal = WTERMSIG(status);
    const bool killed = outcome.signal == SIGKILL;
    outcome.end = !killed       ? End::kSignal
                  : place.dies  ? End::kDied
                  : place.stops ? End::kStopped
                  : time_is_up  ? End::kLimit
                                : End::kSignal;
  }

  Common& common_;
  std::vector<Child> children_;
};

}  // namespace

std::string Outcome::description() const {
  std::string text = fmt::format("rank {} (pid {}) ", rank, pid);
  switch (end) {
    case End::kReturned:
      text += "returned";
      break;
    case End::kFailed:
      text += fmt::format("failed: {}", message);
      break;
    case End::kSignal:
      text += fmt::format("was ended by signal {} ({})", signal, strsignal(signal));
      break;
    case End::kLimit:
      text += "had not ended when the time was up";
      break;
    case End::kDied:
      text += "was killed, as the test wanted";
      break;
    case End::kStopped:
      text += "stood still, as the test wanted";
      break;
  }
  if (!output.empty()) text += fmt::format("; it printed: {}", output);
  return text;
}

int Rank::ranks() const {
  return common_.ranks;
}

int Rank::pid(int rank) const {
  // Ranks are forked one after another.
  while (common_.places[rank].pid == 0) std::this_thread::sleep_for(kPollPause);
  return common_.places[rank].pid;
}

void Rank::expect(bool condition, std::string_view text) const {
  if (!condition) throw std::runtime_error(fmt::format("expected: {}", text));
}

void Rank::barrier(std::chrono::milliseconds limit) const {
  const int64_t mine = ++common_.places[rank_].arrivals;
  const Clock::time_point end = Clock::now() + limit;
  for (int other = 0; other < ranks(); ++other) {
    const Place& place = common_.places[other];
    while (place.arrivals < mine) {
      if (place.ended && place.arrivals < mine) {
        throw std::runtime_error(
            fmt::format("barrier {}: rank {} (pid {}) has ended before it came here", mine, other, pid(other)));
      }
      if (Clock::now() >= end) {
        throw std::runtime_error(fmt::format("barrier {}: rank {} (pid {}) has not come after {} ms", mine, other,
                                             pid(other), limit.count()));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void Rank::share(const void* bytes, size_t count) const {
  require(count <= kMostSharedBytes, "Rank::share: too many bytes");
  std::memcpy(common_.places[rank_].shared, bytes, count);
}

const std::byte* Rank::shared(int rank) const {
  return common_.places[rank].shared;
}

void Rank::die() const {
  common_.places[rank_].dies = true;
  kill(getpid(), SIGKILL);
  while (true) pause();
}

void Rank::kill_rank(int rank) const {
  common_.places[rank].dies = true;
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid(rank), 0));
  if (process < 0 && errno == ESRCH) return;  // its parent even knows that it has ended
  check_os(process, "pidfd_open", "Rank::kill_rank");
  kill(pid(rank), SIGKILL);
  pollfd ended = {.fd = process, .events = POLLIN, .revents = 0};
  poll(&ended, 1, -1);
  close(process);
}

void Rank::stop_here() const {
  common_.places[rank_].stops = true;
  raise(SIGSTOP);
}

std::vector<Outcome> run_in_processes(int count, const emulation::Options& options,
                                      const std::function<void(Rank&)>& body, std::chrono::seconds limit) {
  require(count >= 1 && count <= kMostRanks, "in_processes: 1 to 16 ranks");
  require_one_thread();
  std::cout.flush();
  std::fflush(nullptr);  // or a child would print it again
  const CommonPages pages(count);
  std::vector<Outcome> outcomes;
  {
    Children children(pages.common());
    for (int rank = 0; rank < count; ++rank) children.start(options, body);
    outcomes = children.wait(Clock::now() + limit);
  }
  if (waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD) {
    throw std::logic_error("in_processes: a child is left that is none of its ranks");
  }
  return outcomes;
}

std::vector<Outcome> in_processes(int count, const emulation::Options& options, const std::function<void(Rank&)>& body,
                                  std::chrono::seconds limit) {
  std::vector<Outcome> outcomes = run_in_processes(count, options, body, limit);
  for (const Outcome& outcome : outcomes) {
    using End = Outcome::End;
    INFO(outcome.description());
    CHECK((outcome.end == End::kReturned || outcome.end == End::kDied || outcome.end == End::kStopped));
  }
  return outcomes;
}

std::vector<std::string> shared_files_with_names() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own one
    paths.push_back(std::filesystem::read_symlink(entry.path(), gone));
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (const size_t path = line.find('/'); path != std::string::npos) paths.push_back(line.substr(path));
  }
  const std::string temporary = std::filesystem::temp_directory_path().string() + "/";
  const auto has_no_name = [&](const std::string& path) {
    // Where the program itself was built may be anywhere.
    const bool stands_there = path.starts_with("/dev/shm/") || path.starts_with(temporary);
    return !stands_there || path.find("/tests/emulation/") != std::string::npos;
  };
  std::erase_if(paths, has_no_name);
  return paths;
}

}  // namespace shardscope::test
