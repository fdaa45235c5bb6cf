#include "tests/emulation/fakes/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "tests/emulation/emulation.hpp"

namespace shardscope::emulation::nccl {
namespace {

// Three years: tasks end themselves.
constexpr int64_t kLongestTask_ms = 100'000'000'000;

std::unique_ptr<Library>& instance() {
  static auto& library = *new std::unique_ptr<Library>(std::make_unique<Library>());
  return library;
}

[[maybe_unused]] const bool kForgotten = at_restart([] { instance() = std::make_unique<Library>(); });
[[maybe_unused]] const bool kWatched = watch_frees(registration_within);

}  // namespace

Library& library() {
  return *instance();
}

Library::~Library() {
  // The tasks hold their communicators, too.
  for (const auto& [handle, communicator] : communicators) communicator->tasks.clear();
}

bool Task::advance() {
  if (over_) return true;
  over_ = true;  // whatever step() does
  if (communicator_->aborted) return end({ncclInternalError, "the communicator was aborted meanwhile"});
  over_ = step();
  return over_;
}

void Task::drop() {
  if (!over_ && !communicator_->aborted) leave();
  over_ = true;
}

void* Library::new_handle() {
  // An address that no process can have: whoever looks into it faults.
  constexpr uint64_t kNowhere = 0xACC1'0000'0000'0000;
  return reinterpret_cast<void*>(kNowhere + 64 * next_number++);  // NOLINT(performance-no-int-to-ptr)
}

void Communicator::fail(Verdict verdict) {
  if (error.good()) error = std::move(verdict);
}

std::string Communicator::description() const {
  return fmt::format("rank {} of {} (pid {}, device {})", rank, ranks, clique.pid(rank), device);
}

std::string Communicator::other(int its_rank) const {
  return fmt::format("rank {} (pid {})", its_rank, clique.pid(its_rank));
}

Verdict Communicator::different_operations(int64_t number) const {
  const auto operation = [&](int its_rank) -> const Operation& {
    return clique.place(its_rank).operations[number % kOperations];
  };
  int first = -1;
  for (int one = 0; one < ranks; ++one) {
    if (clique.place(one).announced <= number) continue;
    if (first < 0) first = one;
    if (operation(one).fits(operation(first))) continue;
    return {ncclInvalidUsage,
            fmt::format("operation {} of the communicator differs: {} called {}, {} called {}", number, other(first),
                        operation(first).description(), other(one), operation(one).description())};
  }
  return {};
}

Verdict Communicator::different_places(int64_t number) const {
  const auto difference = [&](const char* which, const auto& place_of) -> Verdict {
    for (int one = 0; one < ranks; ++one) {
      if (place_of(one).window < 0) return {};
    }
    for (int one = 1; one < ranks; ++one) {
      const WindowPlace first = place_of(0);
      const WindowPlace its = place_of(one);
      if (its == first) continue;
      return {ncclInvalidUsage,
              fmt::format("operation {} of the communicator, {}, has its {} at different places of symmetric windows: "
                          "{} at byte {} of window {}, {} at byte {} of window {}; what to do: the same offset on all "
                          "ranks",
                          number, clique.place(0).operations[number % kOperations].description(), which, other(0),
                          first.offset, first.window, other(one), its.offset, its.window)};
    }
    return {};
  };
  const auto received = [&](int its_rank) {
    return clique.place(its_rank).operations[number % kOperations].received_for_rank_0(its_rank);
  };
  const auto sent = [&](int its_rank) {
    return clique.place(its_rank).operations[number % kOperations].sent_for_rank_0(its_rank);
  };
  if (Verdict verdict = difference("recvbuff", received); !verdict.good()) return verdict;
  return difference("sendbuff", sent);
}

bool Communicator::is_symmetric(int64_t number) const {
  for (int one = 0; one < ranks; ++one) {
    const Operation& operation = clique.place(one).operations[number % kOperations];
    if (operation.sent.window < 0 || operation.received.window < 0) return false;
  }
  return true;
}

Verdict Communicator::different_windows(int64_t number) const {
  int first = -1;
  for (int one = 0; one < ranks; ++one) {
    if (clique.place(one).windows <= number) continue;
    if (first < 0) first = one;
    const WindowFacts& its = clique.place(one).window_facts[number % kWindows];
    const WindowFacts& firsts = clique.place(first).window_facts[number % kWindows];
    if (its == firsts) continue;
    return {ncclInvalidUsage,
            fmt::format("window {} differs: {} registers {} bytes with flags {}, {} registers {} bytes with flags {}",
                        number, other(first), firsts.bytes, firsts.flags, other(one), its.bytes, its.flags)};
  }
  return {};
}

void Communicator::fail_by_difference(const Verdict& verdict) {
  clique.shared().difference.tell(verdict);
  if (hear_of_difference()) return;
  // Somebody else is just telling it: the same, once all have come.
  fail(verdict);
  report_host_fault(Fault::kRankMismatch, error.why, false);
}

void Communicator::fail_without_all(const Verdict& verdict) {
  // Who does not come may have known before this rank asked, and have aborted for it.
  if (hear_of_difference()) return;
  const int64_t announced = own_place().announced;
  const Verdict difference = announced == 0 ? Verdict{} : different_operations(announced - 1);
  if (difference.good()) {
    fail(verdict);
  } else {
    fail_by_difference({difference.code, fmt::format("{}; {}", difference.why, verdict.why)});
  }
}

bool Communicator::hear_of_difference() {
  const Verdict told = clique.shared().difference.told();
  if (told.good()) return false;
  if (!error.good()) return true;
  fail(told);
  report_host_fault(Fault::kRankMismatch, error.why, false);
  return true;
}

WindowPlace Communicator::window_place(const void* address, int64_t bytes) const {
  for (const auto& [its_handle, registration] : registrations) {
    if (registration.window && registration.symmetric && registration.holds(address, bytes)) {
      return {registration.number, static_cast<const std::byte*>(address) - registration.begin};
    }
  }
  return {};
}

ncclResult_t answer(const Call& call, const Verdict& verdict, Communicator* communicator) {
  if (verdict.good() || verdict.code == ncclInProgress) return verdict.code;
  const std::string who = communicator == nullptr ? "" : fmt::format("{}: ", communicator->description());
  call.refuse(who + verdict.why);
  library().last_error = who + verdict.why;
  return verdict.code;
}

ncclResult_t ordered_answer(const Call& call) {
  library().last_error = "the test's options let this call fail";
  return call.ordered_error() == 0 ? ncclSystemError : static_cast<ncclResult_t>(call.ordered_error());
}

Verdict find(ncclComm_t handle, std::shared_ptr<Communicator>& communicator) {
  if (handle == nullptr) return {ncclInvalidArgument, "the communicator is null"};
  const auto found = library().communicators.find(handle);
  if (found == library().communicators.end()) {
    return {ncclInvalidArgument,
            fmt::format("{} is no communicator: never made, destroyed, or aborted", static_cast<const void*>(handle))};
  }
  communicator = found->second;
  return {};
}

Verdict find_ready(ncclComm_t handle, std::shared_ptr<Communicator>& communicator) {
  if (Verdict verdict = find(handle, communicator); !verdict.good()) return verdict;
  if (!communicator->error.good()) {
    return {communicator->error.code,
            fmt::format("the communicator has failed and can only be aborted: {}", communicator->error.why)};
  }
  // Not even if it happens to be over by now: whoever has not asked cannot know.
  if (!communicator->tasks.empty() || communicator->answers_in_progress > 0) {
    return {ncclInvalidUsage,
            "the communicator is not ready: after ncclInProgress, ask ncclCommGetAsyncError until it says ncclSuccess"};
  }
  if (!communicator->ready) return {ncclInvalidUsage, "the communicator is not ready: its group has not ended"};
  if (communicator->finalised) return {ncclInvalidUsage, "the communicator was finalised"};
  return {};
}

void settle(Communicator& communicator) {
  bool over = true;
  for (const std::shared_ptr<Task>& task : communicator.tasks) over = task->advance() && over;
  if (!over) return;
  for (const std::shared_ptr<Task>& task : std::exchange(communicator.tasks, {})) {
    if (!task->verdict().good()) communicator.fail(task->verdict());
  }
}

uint64_t this_thread() {
  static std::atomic<uint64_t> threads = 0;
  static thread_local const uint64_t number = ++threads;
  return number;
}

Group* open_group() {
  const auto found = library().groups.find(this_thread());
  return found == library().groups.end() ? nullptr : &found->second;
}

Verdict check_group(bool blocking) {
  const Group* const group = open_group();
  if (group == nullptr) return {};
  const auto other_kind = [&](const Communicator& communicator) { return communicator.blocking != blocking; };
  const bool mixed = std::any_of(group->tasks.begin(), group->tasks.end(),
                                 [&](const auto& task) { return other_kind(task->communicator()); }) ||
                     std::any_of(group->works.begin(), group->works.end(),
                                 [&](const Group::Enqueued& one) { return other_kind(*one.communicator); });
  if (!mixed) return {};
  return {ncclInvalidUsage, "blocking and non-blocking communicators in one group"};
}

Verdict run_task(const Call& call, std::shared_ptr<Task> task) {
  if (Group* const group = open_group()) {
    group->tasks.push_back(std::move(task));
    return {};
  }
  return run_tasks(call, {std::move(task)});
}

Verdict run_tasks(const Call& call, const std::vector<std::shared_ptr<Task>>& all) {
  // Of a group: what was aborted before its end is not done, as with works.
  std::vector<std::shared_ptr<Task>> tasks;
  for (const std::shared_ptr<Task>& task : all) {
    if (!task->communicator().aborted) tasks.push_back(task);
  }
  if (tasks.empty()) return {};
  if (!tasks.front()->communicator().blocking) {  // and so all: check_group
    for (const std::shared_ptr<Task>& task : tasks) {
      task->advance();  // tells the others that it is there
      task->communicator().tasks.push_back(task);
    }
    return {ncclInProgress, ""};
  }
  const auto all_over = [&] {
    bool over = true;
    for (const std::shared_ptr<Task>& task : tasks) over = task->advance() && over;
    return over;
  };
  // A task ends itself when others are late. That there is a limit says that those may be other processes.
  if (!all_over() && !call.wait_until(all_over, kLongestTask_ms)) {
    for (const std::shared_ptr<Task>& task : tasks) task->drop();
    return {ncclUnhandledCudaError, "a fault has ended the machine"};
  }
  for (const std::shared_ptr<Task>& task : tasks) {
    if (!task->verdict().good()) return task->verdict();
  }
  return {};
}

std::string registration_within(const void* begin, int64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(begin);
  for (const auto& [handle, communicator] : library().communicators) {
    for (const auto& [its_handle, registration] : communicator->registrations) {
      if (registration.begin >= first + bytes || first >= registration.begin + registration.bytes) continue;
      return fmt::format("of which {} bytes are still registered as a {} of {}: deregister first", registration.bytes,
                         registration.window ? "window" : "buffer", communicator->description());
    }
  }
  return "";
}

}  // namespace shardscope::emulation::nccl
