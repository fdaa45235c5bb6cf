#include "tests/emulation/nccl_stand.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "tests/emulation/emulation.hpp"

namespace shardscope::test {
namespace {

template <class Stored, class Convert>
std::vector<std::byte> encode_as(const std::vector<double>& values, const Convert& convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(&bytes[i * sizeof(Stored)], &stored, sizeof(Stored));
  }
  return bytes;
}

template <class Stored, class Convert>
std::vector<double> decode_as(const std::vector<std::byte>& bytes, const Convert& convert) {
  std::vector<double> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(static_cast<void*>(&stored), &bytes[i * sizeof(Stored)], sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

/// visit(a value of the type's C++ type, conversions to and from double)
template <class Visit>
auto with_type(ncclDataType_t type, const Visit& visit) {
  const auto plain = [&](auto zero) {
    using T = decltype(zero);
    return visit(
        zero, [](double value) { return static_cast<T>(value); }, [](T value) { return static_cast<double>(value); });
  };
  switch (type) {
    case ncclInt8:
      return plain(int8_t{});
    case ncclUint8:
      return plain(uint8_t{});
    case ncclInt32:
      return plain(int32_t{});
    case ncclUint32:
      return plain(uint32_t{});
    case ncclInt64:
      return plain(int64_t{});
    case ncclUint64:
      return plain(uint64_t{});
    case ncclFloat32:
      return plain(float{});
    case ncclFloat64:
      return plain(double{});
    case ncclFloat16:
      return visit(
          __half{}, [](double value) { return __double2half(value); },
          [](__half value) { return static_cast<double>(__half2float(value)); });
    case ncclBfloat16:
      return visit(
          __nv_bfloat16{}, [](double value) { return __double2bfloat16(value); },
          [](__nv_bfloat16 value) { return static_cast<double>(__bfloat162float(value)); });
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
    case ncclNumTypes:
      break;
  }
  throw std::logic_error("a type that these tests do not use");
}

const char* name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all-reduce";
    case Operation::kAllGather:
      return "all-gather";
    case Operation::kReduceScatter:
      return "reduce-scatter";
    case Operation::kBroadcast:
      return "broadcast";
  }
  return "";
}

bool is_signed(ncclDataType_t type) {
  return type != ncclUint8 && type != ncclUint32 && type != ncclUint64;
}

/// Small enough for all types, also when eight of them are added, multiplied, or times the ranks for an average.
double input(const Collective& collective, int turn, int rank, int ranks, int64_t i) {
  const int64_t mixed = i * 7 + rank * 5 + turn * 3;
  switch (collective.reduction) {
    case ncclProd:
      return mixed % ranks == 0 ? 3 : 1;
    case ncclAvg:
      return static_cast<double>(mixed % 3 * ranks);
    default:
      return static_cast<double>(mixed % 7 - (is_signed(collective.type) ? 3 : 0));
  }
}

}  // namespace

void need(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(fmt::format("{}: {} ({})", what, ncclGetErrorString(result), emulation::take_refusal()));
}

void need(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: CUDA error {} ({})", what, static_cast<int>(result), emulation::take_refusal()));
}

int64_t bytes_of(ncclDataType_t type) {
  return with_type(type, [](auto zero, const auto&, const auto&) { return static_cast<int64_t>(sizeof(zero)); });
}

std::vector<std::byte> encode(ncclDataType_t type, const std::vector<double>& values) {
  return with_type(type, [&](auto zero, const auto& from_double, const auto&) {
    return encode_as<decltype(zero)>(values, from_double);
  });
}

std::vector<double> decode(ncclDataType_t type, const std::vector<std::byte>& bytes) {
  return with_type(
      type, [&](auto zero, const auto&, const auto& to_double) { return decode_as<decltype(zero)>(bytes, to_double); });
}

std::string Collective::description() const {
  return fmt::format("{} of {} of type {}, reduction {}, root {}{}", name(operation), count, static_cast<int>(type),
                     static_cast<int>(reduction), root, in_place ? ", in place" : "");
}

Part::Part(const Collective& collective, int rank, int ranks) : collective_(collective), rank_(rank), ranks_(ranks) {
  const int64_t block_bytes = collective.count * bytes_of(collective.type);
  const bool gathers = collective.operation == Operation::kAllGather;
  const bool scatters = collective.operation == Operation::kReduceScatter;
  const int64_t sent_bytes = block_bytes * (scatters ? ranks : 1);
  const int64_t received_bytes = block_bytes * (gathers ? ranks : 1);
  const auto allocate = [&](int64_t bytes) {
    void* memory = nullptr;
    need(cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 16))), "cudaMalloc");
    memory_.push_back(memory);
    return static_cast<std::byte*>(memory);
  };
  if (!collective.in_place) {
    sent_ = allocate(sent_bytes);
    received_ = allocate(received_bytes);
  } else {
    std::byte* const both = allocate(std::max(sent_bytes, received_bytes));
    sent_ = both + (gathers ? rank * block_bytes : 0);
    received_ = both + (scatters ? rank * block_bytes : 0);
  }
  refill(0, nullptr);
  need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Part::~Part() {
  if (std::uncaught_exceptions() > 0) return;           // cudaFree waits for all work, which may wait for this rank
  for (void* const memory : memory_) cudaFree(memory);  // what a test looks at, it has looked at
}

void Part::refill(int turn, cudaStream_t stream) {
  turn_ = turn;
  const bool gives = collective_.operation != Operation::kBroadcast || rank_ == collective_.root;
  if (!gives || collective_.count == 0) return;
  staged_ = encode(collective_.type, inputs(rank_));
  need(cudaMemcpyAsync(sent_, staged_.data(), staged_.size(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
}

ncclResult_t Part::call(ncclComm_t communicator, cudaStream_t stream) const {
  const auto count = static_cast<size_t>(collective_.count);
  switch (collective_.operation) {
    case Operation::kAllReduce:
      return ncclAllReduce(sent_, received_, count, collective_.type, collective_.reduction, communicator, stream);
    case Operation::kAllGather:
      return ncclAllGather(sent_, received_, count, collective_.type, communicator, stream);
    case Operation::kReduceScatter:
      return ncclReduceScatter(sent_, received_, count, collective_.type, collective_.reduction, communicator, stream);
    case Operation::kBroadcast:
      return ncclBroadcast(sent_, received_, count, collective_.type, collective_.root, communicator, stream);
  }
  return ncclInternalError;
}

std::vector<double> Part::inputs(int of_rank) const {
  const int64_t count = collective_.count * (collective_.operation == Operation::kReduceScatter ? ranks_ : 1);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(input(collective_, turn_, of_rank, ranks_, i));
  return values;
}

std::vector<double> Part::expected() const {
  if (collective_.operation == Operation::kBroadcast) return inputs(collective_.root);
  std::vector<double> values;
  if (collective_.operation == Operation::kAllGather) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<double> block = inputs(rank);
      values.insert(values.end(), block.begin(), block.end());
    }
    return values;
  }
  const int64_t first = collective_.operation == Operation::kReduceScatter ? rank_ * collective_.count : 0;
  for (int64_t i = first; i < first + collective_.count; ++i) {
    double value = input(collective_, turn_, 0, ranks_, i);
    for (int rank = 1; rank < ranks_; ++rank) {
      const double other = input(collective_, turn_, rank, ranks_, i);
      switch (collective_.reduction) {
        case ncclProd:
          value *= other;
          break;
        case ncclMax:
          value = std::max(value, other);
          break;
        case ncclMin:
          value = std::min(value, other);
          break;
        default:
          value += other;
      }
    }
    values.push_back(collective_.reduction == ncclAvg ? value / ranks_ : value);
  }
  return values;
}

std::vector<double> Part::result() const {
  const int64_t elements = collective_.count * (collective_.operation == Operation::kAllGather ? ranks_ : 1);
  std::vector<std::byte> bytes(static_cast<size_t>(elements * bytes_of(collective_.type)));
  need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (!bytes.empty()) {
    need(cudaMemcpy(bytes.data(), received_, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  return decode(collective_.type, bytes);
}

std::string Part::difference(double tolerance) const {
  const std::vector<double> values = result();
  const std::vector<double> wanted = expected();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i] - wanted[i]) <= tolerance)) {
      return fmt::format("{}, rank {} of {}: element {} is {}, not {}", collective_.description(), rank_, ranks_, i,
                         values[i], wanted[i]);
    }
  }
  return "";
}

DeviceRanks::DeviceRanks(int ranks) : communicators(static_cast<size_t>(ranks)), streams(static_cast<size_t>(ranks)) {
  need(ncclCommInitAll(communicators.data(), ranks, nullptr), "ncclCommInitAll");
  each([&](int rank) {
    need(cudaStreamCreateWithFlags(&streams[static_cast<size_t>(rank)], cudaStreamNonBlocking), "cudaStreamCreate");
  });
}

void DeviceRanks::each(const std::function<void(int)>& body) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    need(cudaSetDevice(rank), "cudaSetDevice");
    body(rank);
  }
}

void DeviceRanks::grouped(const std::function<void(int)>& body) const {
  need(ncclGroupStart(), "ncclGroupStart");
  each(body);
  need(ncclGroupEnd(), "ncclGroupEnd");
}

void DeviceRanks::synchronise() const {
  each([&](int rank) { need(cudaStreamSynchronize(streams[static_cast<size_t>(rank)]), "cudaStreamSynchronize"); });
}

void DeviceRanks::destroy() {
  for (const ncclComm_t communicator : communicators) need(ncclCommDestroy(communicator), "ncclCommDestroy");
  communicators.clear();
}

std::vector<std::unique_ptr<Part>> parts_of(const DeviceRanks& ranks, const Collective& collective) {
  std::vector<std::unique_ptr<Part>> parts;
  ranks.each([&](int rank) { parts.push_back(std::make_unique<Part>(collective, rank, ranks.ranks())); });
  return parts;
}

std::string all_reports() {
  std::string text;
  for (const emulation::Report& report : emulation::take_reports()) text += report.message + "; ";
  return text;
}

std::string missing(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) return fmt::format("\"{}\" is not in: {}", part, text);
  }
  return "";
}

}  // namespace shardscope::test
