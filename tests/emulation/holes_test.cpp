// Ways in which a checker can stop checking without a word, each held shut: an inline function shared with the host,
// hooks that are not there, and memory that only AddressSanitizer watches. What must not compile is in compile_test.py.
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/probes/probes.hpp"
#include "tests/emulation/probes/shared_inline.hpp"

namespace shardscope::test {
namespace {

int64_t accesses_of_sum_words() {
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find("sum_words") != std::string::npos) return counters.accesses;
  }
  return -1;
}

/// How a process of its own ended, and what it said on standard error.
struct Fate {
  bool ended_well = false;
  std::string said;
};

template <class Body>
Fate fate_of(const Body& body) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // Catch's would report
    body();
    _exit(0);
  }
  close(ends[1]);
  Fate fate;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    fate.said.append(buffer.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  fate.ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return fate;
}

}  // namespace

TEST_CASE("holes: an inline function is compiled with hooks for the kernel and without for the host") {
  constexpr int kCount = 100;
  emulation::restart({});
  Stand stand;
  std::vector<uint32_t> host(kCount);
  for (uint32_t i = 0; i < kCount; ++i) host[i] = i;
  const uint32_t* const in = stand.upload(host);
  uint32_t* const out = stand.unwritten<uint32_t>(1);
  stand.note(probes::sum_words(in, kCount, out));
  CHECK(stand.first(out) == kCount * (kCount - 1) / 2);
  const int64_t in_kernel = accesses_of_sum_words();
  CHECK(in_kernel == (emulation::checked() ? kCount + 1 : 0));

  // The same function on the host: another copy of it, and nothing is counted.
  CHECK(probes::sum_of_words(host.data(), kCount) == kCount * (kCount - 1) / 2);
  CHECK(accesses_of_sum_words() == in_kernel);
  CHECK(probes::address_of_sum_of_words() != reinterpret_cast<const void*>(&probes::sum_of_words));

  // What it does wrong in a kernel is found inside of it.
  if (!emulation::checked()) return;
  CHECK(unread_reports() == "");
  stand.note(probes::sum_words(in, kCount + 1, out));
  stand.finish();
  const auto reports = emulation::take_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].fault == emulation::Fault::kOutOfBounds);
  INFO(reports[0].message);
  CHECK(reports[0].message.find("shared_inline.hpp:") != std::string::npos);
}

TEST_CASE("holes: a kernel's array of its own that overflows ends the program under AddressSanitizer") {
#ifdef __SANITIZE_ADDRESS__
  const Fate fate = fate_of([] {
    emulation::restart({});
    Stand stand;
    stand.note(probes::overflow_local_array(4, stand.unwritten<int>(1)));
    stand.finish();
  });
  INFO(fate.said);
  CHECK_FALSE(fate.ended_well);
  CHECK(fate.said.find("accesses.cu") != std::string::npos);
  CHECK((fate.said.find("stack-buffer-overflow") != std::string::npos ||
         fate.said.find("out of bounds") != std::string::npos));
#else
  emulation::restart({});
  Stand stand;
  int* const out = stand.unwritten<int>(1);
  stand.note(probes::overflow_local_array(3, out));
  CHECK(stand.first(out) == 9);
#endif
}

TEST_CASE("holes: in the checked mode every kernel's accesses are seen") {
  emulation::restart({});
  Stand stand;
  int* const words = stand.counting<int>(4);
  stand.note(probes::add(words, 1, words + 1, nullptr));
  stand.note(probes::sum_words(stand.counting<uint32_t>(8), 8, stand.unwritten<uint32_t>(1)));
  stand.note(probes::shared_wide(stand.unwritten<uint32_t>(128)));
  stand.finish();
  CHECK(emulation::counters().size() == 3);
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    INFO(counters.kernel);
    CHECK((counters.accesses > 0) == emulation::checked());
  }
}

TEST_CASE("holes: a kernel that never waits and never ends ends the program, which says where it was") {
  const Fate fate = fate_of([] {
    emulation::restart({.seconds_to_end = 1});
    Stand stand;
    stand.note(probes::spin(stand.zeros<uint32_t>(1)));
    stand.finish();
  });
  INFO(fate.said);
  CHECK_FALSE(fate.ended_well);
  CHECK(fate.said.find("kernel spin_kernel, thread (0,0,0) of block (0,0,0)") != std::string::npos);
  CHECK(fate.said.find("probes/streams.cu:") != std::string::npos);
}

}  // namespace shardscope::test
