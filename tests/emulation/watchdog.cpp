#include "tests/emulation/watchdog.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/emulation/machine.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // a fibre's stack is too small for what the handler does

const void* interrupted_place(const void* context) {
#ifdef __x86_64__
  // place_of looks at the instruction before: the one that was interrupted is the next.
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] + 1);
#else
  static_cast<void>(context);
  return nullptr;
#endif
}

// The program ends here in any case, so that functions may be called that a signal handler otherwise may not.
void tell_and_abort(int, siginfo_t*, void* context) {
  static const char kFirst[] = "emulation: a kernel has not ended in time\n";
  static_cast<void>(!write(STDERR_FILENO, kFirst, sizeof(kFirst) - 1));
  std::string line = "emulation: no thread of a kernel runs\n";
  if (const Thread* const thread = Machine::get().running(); thread != nullptr) {
    // Within a call (a poll without poll_pause, say) the place is the emulation's own: then the call's says more.
    line = fmt::format("emulation: kernel {}, {}, {}{}\n", kernel_name(thread->block->grid->kernel->kernel),
                       thread->description(), place_of(interrupted_place(context)),
                       thread->place == nullptr ? "" : ", its last call at " + place_of(thread->place));
  }
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  std::abort();
}

void set_timer(int seconds) {
  itimerval time{};
  time.it_value.tv_sec = seconds;
  setitimer(ITIMER_REAL, &time, nullptr);
}

}  // namespace

Watchdog::Watchdog(int seconds) {
  static const bool installed = [] {
    static char stack[kStackBytes];
    stack_t alternative{};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof(stack);
    sigaltstack(&alternative, nullptr);
    struct sigaction action {};
    action.sa_sigaction = tell_and_abort;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
    return true;
  }();
  static_cast<void>(installed);
  set_timer(seconds);
}

Watchdog::~Watchdog() {
  set_timer(0);
}

}  // namespace shardscope::emulation
