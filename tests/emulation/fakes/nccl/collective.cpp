#include "tests/emulation/fakes/nccl/collective.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/nccl/types.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::nccl {
namespace {

// How often a rank that waits asks whether the others still live.
constexpr auto kLookPause = std::chrono::milliseconds(2);

class Collective final : public Work {
 public:
  Collective(std::shared_ptr<Communicator> communicator, const Request& request)
      : communicator_(std::move(communicator)),
        sent_(static_cast<const std::byte*>(request.sent)),
        received_(static_cast<std::byte*>(request.received)),
        element_bytes_(type_bytes(request.type)) {
    const bool reduces = request.kind == Kind::kAllReduce || request.kind == Kind::kReduceScatter;
    operation_.kind = request.kind;
    operation_.type = request.type;
    operation_.reduction = reduces ? request.reduction : 0;
    operation_.root = request.root;
    operation_.count = static_cast<int64_t>(request.count);
    if (gives()) operation_.sent = communicator_->window_place(sent_, sent_bytes());
    operation_.received = communicator_->window_place(received_, received_bytes());
  }

  std::string name() const override { return nccl::name(operation_.kind); }
  const void* serial_key() const override { return communicator_->handle; }
  std::vector<Range> ranges() const override {
    if (communicator_->aborted) return {};  // it does nothing any more
    std::vector<Range> all;
    if (gives()) all.push_back({sent_, sent_bytes(), false});
    all.push_back({received_, received_bytes(), true});
    return all;
  }
  std::unique_ptr<Run> begin() const override;

  /// Whether this rank's `sent` counts.
  bool gives() const { return operation_.kind != Kind::kBroadcast || operation_.root == communicator_->rank; }
  int64_t sent_bytes() const {
    return operation_.count * element_bytes_ * sent_blocks(operation_.kind, communicator_->ranks);
  }
  int64_t received_bytes() const {
    return operation_.count * element_bytes_ * received_blocks(operation_.kind, communicator_->ranks);
  }

 private:
  friend class CollectiveRun;

  std::shared_ptr<Communicator> communicator_;
  Operation operation_;
  const std::byte* sent_;
  std::byte* received_;
  int64_t element_bytes_;
};

class CollectiveRun final : public Work::Run {
 public:
  explicit CollectiveRun(const Collective& work) : work_(work), it_(*work.communicator_) {
    const int64_t blocks = sent_blocks(work.operation_.kind, it_.ranks);
    piece_elements_ = std::max<int64_t>(1, kSlotBytes / (work.element_bytes_ * blocks));
  }

  bool advance() override {
    if (it_.aborted) return true;
    if (!it_.error.good()) return false;  // as on a GPU: until somebody aborts it
    if (step_ == Step::kAnnounce) announce();
    if (step_ == Step::kCompare && !compare()) return false;
    while (step_ != Step::kDone) {
      if (step_ == Step::kWrite) write_piece();
      if (step_ == Step::kRead && !read_piece()) return false;
    }
    return true;
  }

  std::string waits_for() const override {
    if (!it_.error.good()) return fmt::format("ncclCommAbort: {}", it_.error.why);
    const int rank = first_behind();
    if (rank < 0) return "";
    if (step_ == Step::kCompare) {
      const Verdict difference = it_.different_operations(number_);
      return fmt::format("{}, which has not come to {}{}{}", it_.other(rank), what(), difference.good() ? "" : "; ",
                         difference.why);
    }
    return fmt::format("{}, which does not go on in {}", it_.other(rank), what());
  }

  bool waits_for_others() const override {
    if (!it_.error.good() || it_.aborted) return false;
    for (int rank = 0; rank < it_.ranks; ++rank) {
      if (is_behind(rank) && it_.clique.pid(rank) != getpid()) return true;
    }
    return false;
  }

 private:
  enum class Step : uint8_t { kAnnounce, kCompare, kWrite, kRead, kDone };

  const NcclOptions& options() const { return Machine::get().options().nccl; }
  const Operation& operation() const { return work_.operation_; }
  std::string what() const { return fmt::format("operation {}, {}", number_, operation().description()); }

  void announce() {
    number_ = it_.next_operation++;
    Place& own = it_.own_place();
    own.operations[number_ % kOperations] = operation();
    own.announced = number_ + 1;
    piece_ = it_.next_piece;
    wait_anew(Step::kCompare);
  }

  bool compare() {
    if (it_.hear_of_difference()) return false;
    // Not before all have come, so that all name the same two.
    if (first_behind() >= 0) return look_at_others();
    if (const Verdict difference = it_.different_operations(number_); !difference.good()) {
      it_.fail_by_difference(difference);
      return false;
    }
    if (const Verdict difference = it_.different_places(number_); !difference.good()) {
      it_.fail_by_difference(difference);
      return false;
    }
    if (it_.is_symmetric(number_)) ++it_.symmetric_collectives;
    wait_anew(Step::kWrite);
    return true;
  }

  /// Nobody reads any more what is written over: it is of two pieces before, and this rank has seen all publish the one
  /// between, which they do after they have read.
  void write_piece() {
    const int64_t elements = std::min(piece_elements_, operation().count - begin_);
    if (work_.gives()) {
      std::byte* slot = it_.clique.slot(it_.rank, piece_);
      for (int64_t block = 0; block < sent_blocks(operation().kind, it_.ranks); ++block) {
        copy(slot, work_.sent_ + (block * operation().count + begin_) * work_.element_bytes_, elements);
        slot += elements * work_.element_bytes_;
      }
    }
    it_.own_place().published = piece_ + 1;
    wait_anew(Step::kRead);
  }

  bool read_piece() {
    if (first_behind() >= 0) return look_at_others();
    const int64_t elements = std::min(piece_elements_, operation().count - begin_);
    read_elements(elements);
    it_.next_piece = ++piece_;
    begin_ += elements;
    // An operation of no elements is one piece, too: ranks wait for each other in all.
    wait_anew(begin_ < operation().count ? Step::kWrite : Step::kDone);
    return true;
  }

  void read_elements(int64_t elements) {
    const int64_t bytes = work_.element_bytes_;
    std::byte* const received = work_.received_ + begin_ * bytes;
    switch (operation().kind) {
      case Kind::kAllGather:
        for (int rank = 0; rank < it_.ranks; ++rank) {
          copy(received + rank * operation().count * bytes, it_.clique.slot(rank, piece_), elements);
        }
        return;
      case Kind::kBroadcast:
        copy(received, it_.clique.slot(operation().root, piece_), elements);
        return;
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
        break;
    }
    const bool scatters = operation().kind == Kind::kReduceScatter;
    std::array<const std::byte*, kMostRanks> inputs{};
    for (int rank = 0; rank < it_.ranks; ++rank) {
      inputs[static_cast<size_t>(rank)] = it_.clique.slot(rank, piece_) + (scatters ? it_.rank * elements * bytes : 0);
    }
    const Sum sum{.type = static_cast<ncclDataType_t>(operation().type),
                  .reduction = static_cast<ncclRedOp_t>(operation().reduction),
                  .order = options().reduction,
                  .ranks = it_.ranks,
                  .first = begin_ + (scatters ? it_.rank * operation().count : 0),
                  .all = operation().count * (scatters ? it_.ranks : 1)};
    reduce(sum, inputs.data(), elements, received);
  }

  void copy(std::byte* target, const std::byte* source, int64_t elements) const {
    if (elements > 0) std::memcpy(target, source, static_cast<size_t>(elements * work_.element_bytes_));
  }

  // ---- those that one waits for

  bool is_behind(int rank) const {
    const Place& place = it_.clique.place(rank);
    switch (step_) {
      case Step::kCompare:
        return place.announced <= number_;
      case Step::kRead:
        return place.published <= piece_;
      case Step::kAnnounce:
      case Step::kWrite:
      case Step::kDone:
        break;
    }
    return false;
  }

  int first_behind() const {
    for (int rank = 0; rank < it_.ranks; ++rank) {
      if (is_behind(rank)) return rank;
    }
    return -1;
  }

  void wait_anew(Step step) {
    step_ = step;
    Machine::get().note_progress();  // others may go on now: nobody is stuck
    waits_since_ = last_look_ = Clock::now();
  }

  /// For a rank that waits: whether those that are behind will come. Always false: nothing to do now.
  bool look_at_others() {
    const Clock::time_point now = Clock::now();
    if (now - last_look_ < kLookPause) return false;
    last_look_ = now;
    bool only_the_dead = true;
    for (int rank = 0; rank < it_.ranks; ++rank) {
      if (!is_behind(rank)) continue;
      const Place& place = it_.clique.place(rank);
      const Presence presence = place.presence;
      const bool dead = place.pid != getpid() && process_has_ended(place.pid);
      // Asked again, since it may have done its part and have ended properly meanwhile.
      if (!is_behind(rank)) continue;
      if (presence == Presence::kAborted) {
        fail(ncclRemoteError, fmt::format("{} has aborted the communicator before or in {}", it_.other(rank), what()));
        return false;
      }
      if (presence == Presence::kLeft) {
        fail(ncclRemoteError, fmt::format("{} has destroyed the communicator before {}", it_.other(rank), what()));
        return false;
      }
      if (dead && options().tells_of_dead_ranks) {
        fail(ncclRemoteError, fmt::format("{} has died before or in {}", it_.other(rank), what()));
        return false;
      }
      only_the_dead = only_the_dead && dead;
    }
    const int64_t waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - waits_since_).count();
    const int rank = first_behind();
    if (rank < 0 || waited < options().milliseconds_to_arrive) return false;
    if (only_the_dead && !options().tells_of_dead_ranks) return false;
    fail(ncclSystemError, fmt::format("after {} ms {} has not {} {}", waited, it_.other(rank),
                                      step_ == Step::kCompare ? "come to" : "gone on in", what()));
    return false;
  }

  void fail(ncclResult_t code, const std::string& why) { it_.fail_without_all({code, why}); }

  const Collective& work_;
  Communicator& it_;
  Step step_ = Step::kAnnounce;
  int64_t number_ = 0;  // of the operation, on all ranks
  int64_t piece_ = 0;   // of all that the communicator has moved
  int64_t piece_elements_ = 0;
  int64_t begin_ = 0;  // elements that are done
  Clock::time_point waits_since_;
  Clock::time_point last_look_;
};

std::unique_ptr<Work::Run> Collective::begin() const {
  return std::make_unique<CollectiveRun>(*this);
}

}  // namespace

std::shared_ptr<const Work> make_collective(std::shared_ptr<Communicator> communicator, const Request& request) {
  return std::make_shared<Collective>(std::move(communicator), request);
}

}  // namespace shardscope::emulation::nccl
