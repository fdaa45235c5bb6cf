// What can be known to be wrong with a collective when it is called.
#include <fmt/format.h>

#include "tests/emulation/fakes/nccl/collective.hpp"
#include "tests/emulation/fakes/nccl/types.hpp"

namespace shardscope::emulation::nccl {
namespace {

// Above it, sizes in bytes would not be numbers any more.
constexpr size_t kMostElements = size_t{1} << 48;

Verdict check_buffer(const char* which, const void* address, int64_t bytes, int64_t element_bytes, int device) {
  if (bytes == 0) return {};
  std::string why;
  if (!is_device_memory(address, bytes, device, why)) {
    return {ncclInvalidArgument, fmt::format("{} {} ({} bytes) is {}", which, address, bytes, why)};
  }
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(element_bytes) != 0) {
    return {ncclInvalidArgument,
            fmt::format("{} {} is no multiple of the element's {} bytes", which, address, element_bytes)};
  }
  return {};
}

/// Where the received bytes must begin if they overlap with those sent.
const std::byte* in_place(const Request& request, int rank, int64_t block_bytes) {
  const auto* const sent = static_cast<const std::byte*>(request.sent);
  switch (request.kind) {
    case Kind::kAllGather:
      return sent - rank * block_bytes;
    case Kind::kReduceScatter:
      return sent + rank * block_bytes;
    case Kind::kAllReduce:
    case Kind::kBroadcast:
      break;
  }
  return sent;
}

}  // namespace

int64_t sent_blocks(Kind kind, int ranks) {
  return kind == Kind::kReduceScatter ? ranks : 1;
}

int64_t received_blocks(Kind kind, int ranks) {
  return kind == Kind::kAllGather ? ranks : 1;
}

Verdict check(const Communicator& communicator, const Request& request) {
  const int64_t element_bytes = type_bytes(request.type);
  if (element_bytes == 0) {
    return {ncclInvalidArgument, fmt::format("there is no data type {}", static_cast<int>(request.type))};
  }
  if (request.kind == Kind::kAllReduce || request.kind == Kind::kReduceScatter) {
    const int reduction = request.reduction;
    if (reduction < 0 || reduction >= ncclNumOps) {
      return {ncclInvalidArgument, fmt::format("there is no reduction {}", reduction)};
    }
    if (!can_reduce(request.type)) {
      return {ncclInvalidArgument, fmt::format("{} is not reduced here, only moved", type_name(request.type))};
    }
  }
  if (request.count > kMostElements) return {ncclInvalidArgument, fmt::format("{} elements", request.count)};
  if (request.root < 0 || request.root >= communicator.ranks) {
    return {ncclInvalidArgument, fmt::format("root {} is no rank below {}", request.root, communicator.ranks)};
  }
  const int device = device_of_stream(request.stream);
  if (device < 0) return {ncclInvalidArgument, "there is no such stream"};
  if (device != communicator.device) {
    return {ncclInvalidArgument,
            fmt::format("the stream is of device {}, the communicator of device {}", device, communicator.device)};
  }
  const int64_t block_bytes = static_cast<int64_t>(request.count) * element_bytes;
  const int64_t sent_bytes = block_bytes * sent_blocks(request.kind, communicator.ranks);
  const int64_t received_bytes = block_bytes * received_blocks(request.kind, communicator.ranks);
  const bool gives = request.kind != Kind::kBroadcast || request.root == communicator.rank;
  if (gives) {
    Verdict verdict = check_buffer("sendbuff", request.sent, sent_bytes, element_bytes, communicator.device);
    if (!verdict.good()) return verdict;
  }
  Verdict verdict = check_buffer("recvbuff", request.received, received_bytes, element_bytes, communicator.device);
  if (!verdict.good() || !gives) return verdict;
  const auto* const sent = static_cast<const std::byte*>(request.sent);
  const auto* const received = static_cast<const std::byte*>(request.received);
  const bool overlap = sent < received + received_bytes && received < sent + sent_bytes;
  if (overlap && received != in_place(request, communicator.rank, block_bytes)) {
    return {
        ncclInvalidArgument,
        fmt::format("sendbuff {} ({} bytes) and recvbuff {} ({} bytes) overlap, but not as {} of rank {} does it in "
                    "place",
                    request.sent, sent_bytes, request.received, received_bytes, name(request.kind), communicator.rank)};
  }
  return {};
}

}  // namespace shardscope::emulation::nccl
