// What tests of the NCCL stand-in have in common: a collective with its inputs, its call and what it must give, for one
// rank; and all ranks as devices of this process. Expected values are small whole numbers, calculated in double.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shardscope::test {

enum class Operation : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

/// Throws with the stand-in's reason unless the result is ncclSuccess.
void need(ncclResult_t result, const char* what);
void need(cudaError_t result, const char* what);

int64_t bytes_of(ncclDataType_t type);
std::vector<std::byte> encode(ncclDataType_t type, const std::vector<double>& values);
std::vector<double> decode(ncclDataType_t type, const std::vector<std::byte>& bytes);

/// All types that can be reduced.
inline constexpr ncclDataType_t kReducedTypes[] = {ncclInt8,   ncclUint8,   ncclInt32,   ncclUint32,  ncclInt64,
                                                   ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};

/// A collective that all ranks do.
struct Collective {
  Operation operation{};
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int64_t count = 1;  // as NCCL counts: of all-gather those sent, of reduce-scatter those received, by one rank
  int root = 0;
  bool in_place = false;

  std::string description() const;
};

/// One rank's part of it: memory of the current device.
class Part {
 public:
  Part(const Collective& collective, int rank, int ranks);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part();

  /// Other inputs than before, in the stream; for `turn` 0 those that the constructor wrote. In place this is needed
  /// before each call.
  void refill(int turn, cudaStream_t stream);
  ncclResult_t call(ncclComm_t communicator, cudaStream_t stream) const;
  /// What memory holds after all work of the device: "" if it is right within the tolerance.
  std::string difference(double tolerance = 0) const;
  std::vector<double> result() const;

  void* sent() const { return sent_; }
  void* received() const { return received_; }

 private:
  std::vector<double> inputs(int of_rank) const;
  std::vector<double> expected() const;

  Collective collective_;
  int rank_;
  int ranks_;
  int turn_ = 0;
  std::byte* sent_ = nullptr;
  std::byte* received_ = nullptr;
  std::vector<void*> memory_;
  std::vector<std::byte> staged_;
};

/// Ranks 0, 1, … as devices 0, 1, … of this process, driven by this thread, each with a stream.
class DeviceRanks {
 public:
  explicit DeviceRanks(int ranks);

  int ranks() const { return static_cast<int>(std::ssize(communicators)); }
  /// body(rank) with its device current.
  void each(const std::function<void(int)>& body) const;
  /// The same within a group.
  void grouped(const std::function<void(int)>& body) const;
  /// All streams; throws at an error.
  void synchronise() const;
  void destroy();

  std::vector<ncclComm_t> communicators;
  std::vector<cudaStream_t> streams;
};

/// One part for each rank.
std::vector<std::unique_ptr<Part>> parts_of(const DeviceRanks& ranks, const Collective& collective);

/// One line with all reports that nobody has taken.
std::string all_reports();

/// That the text names all of these, or which it does not: for CHECK(missing(text, {…}) == "").
std::string missing(const std::string& text, const std::vector<std::string>& parts);

}  // namespace shardscope::test
