#include "runtime/measure/co_runners.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "parallel/rehearsed_communicator.hpp"
#include "runtime/generate/sampler.hpp"

namespace shardscope::runtime {
namespace {

/// What a co-runner is told to do until it shall rest.
struct Job {
  bool reads = false;  // else it generates
  size_t point = 0;
};

/// A rank's shard, on the thread that works with it. It has a world of its own, since progress is told by one thread.
class Shard {
 public:
  Shard(const CoRunnerWork& work, int rank, std::unique_ptr<kernels::Backend> backend)
      : work_(work),
        backend_(std::move(backend)),
        communicator_(parallel::make_rehearsed_communicator(rank, static_cast<int>(work.plan.ranks.size()),
                                                            parallel::Absent::kZeros)),
        decoder_(work.model.config, *work.model.weights, work.plan, work.shape, context()),
        sampler_(*backend_, *communicator_, decoder_.vocab_range(), work.shape.valid_vocab_of(work.model.config),
                 work.shape.slots) {}

  /// at_work: becomes true when it has read all once, or generates.
  void run(const Job& job, const std::atomic<bool>& stop, std::atomic<bool>& at_work) {
    if (job.reads) return read(work_.read[job.point], stop, at_work);
    at_work = true;
    at_work.notify_all();
    const std::vector<GenerationRequest>& requests = work_.requests[job.point];
    const auto stopped = [&](size_t, int32_t) { return stop.load(std::memory_order_relaxed); };
    generate_batch(decoder_, sampler_, context(), requests, {.on_token = stopped, .callback_may_stop = true});
    if (requests.front().max_tokens > 1) repeat_last_step(requests, stop);
  }

 private:
  RankContext context() { return {*backend_, *communicator_, world_}; }

  void read(const kernels::KvPart& part, const std::atomic<bool>& stop, std::atomic<bool>& at_work) {
    uint64_t checksum = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      checksum ^= backend_->read_all(decoder_.read_every_step(), &decoder_.kv_cache(), part);
      backend_->synchronize();
      at_work = true;
      at_work.notify_all();
    }
    volatile uint64_t sink = checksum;  // the reads have a user
    static_cast<void>(sink);
  }

  /// As long as the rehearsed rank is not done: other ranks of its group would not be, either.
  void repeat_last_step(const std::vector<GenerationRequest>& requests, const std::atomic<bool>& stop) {
    std::vector<kernels::StepSequence> sequences;
    std::vector<SampleRow> rows;
    for (const GenerationRequest& request : requests) {
      const int64_t position = static_cast<int64_t>(request.prompt_ids.size()) + request.max_tokens - 2;
      sequences.push_back({.slot = static_cast<int64_t>(sequences.size()), .first_position = position, .count = 1});
      rows.push_back({.request = static_cast<int64_t>(rows.size()),
                      .position = position + 1,
                      .history = request.prompt_ids,
                      .options = &request.sampling});
    }
    std::vector<int32_t> ids(requests.size(), 0);
    std::vector<int32_t> wanted(requests.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    while (!stop.load(std::memory_order_relaxed)) {
      const kernels::Activations logits = decoder_.forward(ids, sequences, wanted);
      sampler_.sample(logits, rows, ids);
    }
  }

  const CoRunnerWork& work_;
  parallel::World world_{{.use_mpi = false}};
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<parallel::Communicator> communicator_;
  Decoder decoder_;
  Sampler sampler_;
};

}  // namespace

class CoRunners::Thread {
 public:
  Thread(const CoRunnerWork& work, int rank, int place, const RehearsalOptions& options)
      : thread_([this, &work, &options, rank, place] { serve(work, rank, place, options); }) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() {
    stop_ = true;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }  // thread_ joins

  void start(const Job& job) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      job_ = job;
      stop_ = false;
      at_work_ = false;
      resting_ = false;
    }
    changed_.notify_all();
  }

  /// Until it does what it was started for, or has failed.
  void wait_at_work() { at_work_.wait(false); }

  void stop() { stop_ = true; }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return resting_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void serve(const CoRunnerWork& work, int rank, int place, const RehearsalOptions& options) {
    try {
      Shard shard(work, rank, options.backend_at(place));
      while (const std::optional<Job> job = next_job()) shard.run(*job, stop_, at_work_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      at_work_ = true;
      at_work_.notify_all();
      resting_ = true;
      changed_.notify_all();
    }
  }

  /// Rests until there is one; nullopt: it is over.
  std::optional<Job> next_job() {
    std::unique_lock lock(mutex_);
    resting_ = true;
    job_.reset();
    changed_.notify_all();
    changed_.wait(lock, [this] { return job_ || ended_; });
    if (ended_) return std::nullopt;
    return job_;
  }

  std::atomic<bool> stop_ = false;
  std::atomic<bool> at_work_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::optional<Job> job_;
  bool resting_ = false;  // false: it loads, or is at work
  bool ended_ = false;
  std::exception_ptr error_;
  std::jthread thread_;  // declared last: starts when all is there, and is joined first
};

CoRunners::CoRunners(const CoRunnerWork& work, int rehearsed, const RehearsalOptions& options) {
  for (int rank = 0; rank < static_cast<int>(work.plan.ranks.size()); ++rank) {
    if (rank == rehearsed) continue;
    threads_.push_back(std::make_unique<Thread>(work, rank, rank == 0 ? rehearsed : rank, options));
    threads_.back()->wait();  // the sources of weights are read by one thread at a time
  }
}

CoRunners::~CoRunners() {
  for (const auto& thread : threads_) thread->stop();
}

void CoRunners::generate(size_t point) {
  for (const auto& thread : threads_) thread->start({.reads = false, .point = point});
}

void CoRunners::read(size_t point) {
  for (const auto& thread : threads_) thread->start({.reads = true, .point = point});
  // The best pass counts: none of the measured ones may run while the others still wake up.
  for (const auto& thread : threads_) thread->wait_at_work();
}

void CoRunners::rest() {
  for (const auto& thread : threads_) thread->stop();
  for (const auto& thread : threads_) thread->wait();
}

}  // namespace shardscope::runtime
