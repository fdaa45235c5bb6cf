#include "tests/emulation/watchdog.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/emulation/machine.hpp"
#include "tests/emulation/symbols.hpp"

namespace shardscope::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // a fibre's stack is too small for what the handlers do

const void* interrupted_place(const void* context) {
#ifdef __x86_64__
  // place_of looks at the instruction before: the one that was interrupted is the next.
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] + 1);
#else
  static_cast<void>(context);
  return nullptr;
#endif
}

void tell(const std::string& line) {
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

std::string where_it_runs(const void* context) {
  const Thread* const thread = Machine::get().running();
  if (thread == nullptr) return "no thread of a kernel runs";
  // Within a call (a poll without poll_pause, say) the place is the emulation's own: then the call's says more.
  return fmt::format("kernel {}, {}, {}{}", kernel_name(thread->block->grid->kernel->kernel), thread->description(),
                     place_of(interrupted_place(context)),
                     thread->place == nullptr ? "" : ", its last call at " + place_of(thread->place));
}

// The program ends here in any case, so that functions may be called that a signal handler otherwise may not.
void tell_and_abort(int, siginfo_t*, void* context) {
  tell("emulation: a kernel has not ended in time\n");
  tell(fmt::format("emulation: {}\n", where_it_runs(context)));
  std::abort();
}

struct sigaction& handler_of_faults_before() {
  static struct sigaction action {};
  return action;
}

void explain_and_go_on(int, siginfo_t* signal, void* context) {
  // Whoever handled faults before does so now, when the instruction is tried again.
  sigaction(SIGSEGV, &handler_of_faults_before(), nullptr);
  const DeviceMemory& memory = Machine::get().memory();
  const void* const address = signal->si_addr;
  if (!memory.covers(address)) return;
  const Allocation* const allocation = memory.nearest(address);
  std::string what = "device memory where nothing was ever allocated";
  if (allocation != nullptr) {
    what = fmt::format("byte {} of {}{}", static_cast<const std::byte*>(address) - allocation->begin,
                       allocation->description(), allocation->freed ? ", which was freed" : "");
  }
  const bool in_kernel = Machine::get().running() != nullptr;
  tell(fmt::format("emulation: {} touched {}, {}\n", in_kernel ? "a kernel" : "the host, not a kernel,", what,
                   in_kernel ? where_it_runs(context) : place_of(interrupted_place(context))));
}

/// A thread's stack for the handlers. At the thread's end it has the one of before again: AddressSanitizer gives each
/// thread one, and takes it back.
class HandlerStack {
 public:
  HandlerStack() {
    stack_t ours{};
    ours.ss_sp = bytes_;
    ours.ss_size = sizeof(bytes_);
    sigaltstack(&ours, &before_);
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;
  ~HandlerStack() { sigaltstack(&before_, nullptr); }

 private:
  alignas(64) char bytes_[kStackBytes];  // as AddressSanitizer wants it
  stack_t before_{};
};

void use_own_stack() {
  static thread_local HandlerStack stack;
  static_cast<void>(stack);
}

/// The thread's timer, whose signal this thread gets and no other.
class Timer {
 public:
  Timer() {
    use_own_stack();
    struct sigaction action {};
    action.sa_sigaction = tell_and_abort;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    if (made_) timer_delete(timer_);
  }

  void set(int seconds) const {
    itimerspec time{};
    time.it_value.tv_sec = seconds;
    if (made_) timer_settime(timer_, 0, &time, nullptr);
  }

 private:
  timer_t timer_{};
  bool made_ = false;
};

Timer& timer() {
  // A process that was forked has none of the timers of before.
  static thread_local std::optional<Timer> timer;
  static thread_local pid_t process = 0;
  if (process != getpid()) timer.emplace();
  process = getpid();
  return *timer;
}

}  // namespace

Watchdog::Watchdog(int seconds) : seconds_(seconds) {
  begin_anew();
}

void Watchdog::begin_anew() const {
  timer().set(seconds_);
}

Watchdog::~Watchdog() {
  timer().set(0);
}

void explain_faults() {
  use_own_stack();
  struct sigaction action {};
  action.sa_sigaction = explain_and_go_on;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  struct sigaction before {};
  sigaction(SIGSEGV, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == explain_and_go_on) return;
  handler_of_faults_before() = before;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace shardscope::emulation
