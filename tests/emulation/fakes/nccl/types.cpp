#include "tests/emulation/fakes/nccl/types.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/base/error.hpp"
#include "tests/emulation/fakes/nccl/clique.hpp"

namespace shardscope::emulation::nccl {
namespace {

/// Elements that are reduced at a time.
constexpr int64_t kBlock = 128;
/// With kRing, so many elements begin at the same rank, or fewer, so that small operations have several beginnings too.
constexpr int64_t kRingElements = 128;

// How an element is held in memory, and what is calculated with.
template <class Stored>
struct Element {
  using Value = Stored;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};
template <>
struct Element<__half> {
  using Value = float;
  static Value load(__half stored) { return __half2float(stored); }
  static __half store(Value value) { return __float2half_rn(value); }
};
template <>
struct Element<__nv_bfloat16> {
  using Value = float;
  static Value load(__nv_bfloat16 stored) { return __bfloat162float(stored); }
  static __nv_bfloat16 store(Value value) { return __float2bfloat16_rn(value); }
};

template <class Value>
Value combine(Value a, Value b, ncclRedOp_t reduction) {
  if constexpr (std::is_integral_v<Value>) {
    // Sums and products wrap around.
    using Bits = std::make_unsigned_t<Value>;
    switch (reduction) {
      case ncclProd:
        return static_cast<Value>(uint64_t{static_cast<Bits>(a)} * static_cast<Bits>(b));
      case ncclMax:
        return std::max(a, b);
      case ncclMin:
        return std::min(a, b);
      default:
        return static_cast<Value>(uint64_t{static_cast<Bits>(a)} + static_cast<Bits>(b));
    }
  } else {
    switch (reduction) {
      case ncclProd:
        return a * b;
      case ncclMax:
        return std::fmax(a, b);
      case ncclMin:
        return std::fmin(a, b);
      default:
        return a + b;
    }
  }
}

/// The reduction of one block: rows of values, one a rank.
template <class Stored>
class Rows {
 public:
  using Value = typename Element<Stored>::Value;

  Rows(const Sum& sum, int64_t count) : sum_(sum), count_(count) {}

  void load(const std::byte* const* inputs, int64_t begin) {
    for (int rank = 0; rank < sum_.ranks; ++rank) {
      const std::byte* const bytes = inputs[rank] + begin * static_cast<int64_t>(sizeof(Stored));
      for (int64_t i = 0; i < count_; ++i) {
        Stored stored;
        std::memcpy(static_cast<void*>(&stored), bytes + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
        values_[rank][i] = Element<Stored>::load(stored);
      }
    }
  }

  /// [count], in row(0) afterwards. first: of this block, in the whole operation.
  void reduce(int64_t first) {
    const bool average = sum_.reduction == ncclAvg;
    constexpr bool kScalesBefore = !std::is_integral_v<Value>;
    if (average && kScalesBefore && sum_.order != Reduction::kOnce) scale_all();
    switch (sum_.order) {
      case Reduction::kOnce:
        for (int rank = 1; rank < sum_.ranks; ++rank) add(0, rank, false);
        break;
      case Reduction::kRing:
        ring(first);
        break;
      case Reduction::kTree:
        tree();
        break;
    }
    if (average && (!kScalesBefore || sum_.order == Reduction::kOnce)) {
      for (int64_t i = 0; i < count_; ++i) values_[0][i] = static_cast<Value>(values_[0][i] / ranks());
    }
  }

  void store(std::byte* out, int64_t begin) const {
    std::byte* const bytes = out + begin * static_cast<int64_t>(sizeof(Stored));
    for (int64_t i = 0; i < count_; ++i) {
      const Stored stored = Element<Stored>::store(values_[0][i]);
      std::memcpy(bytes + i * static_cast<int64_t>(sizeof(Stored)), &stored, sizeof(Stored));
    }
  }

 private:
  Value ranks() const { return static_cast<Value>(sum_.ranks); }
  static Value rounded(Value value) { return Element<Stored>::load(Element<Stored>::store(value)); }

  void add(int target, int other, bool round) {
    for (int64_t i = 0; i < count_; ++i) {
      const Value value = combine(values_[target][i], values_[other][i], sum_.reduction);
      values_[target][i] = round ? rounded(value) : value;
    }
  }

  /// As NCCL does for averages: each rank's values times 1 / ranks, rounded.
  void scale_all() {
    for (int rank = 0; rank < sum_.ranks; ++rank) {
      for (int64_t i = 0; i < count_; ++i) {
        values_[rank][i] = rounded(values_[rank][i] * rounded(static_cast<Value>(Value{1} / ranks())));
      }
    }
  }

  void ring(int64_t first) {
    const int64_t together = std::clamp((sum_.all + sum_.ranks - 1) / sum_.ranks, int64_t{1}, kRingElements);
    for (int64_t i = 0; i < count_; ++i) {
      const auto begin = static_cast<int>((first + i) / together % sum_.ranks);
      Value value = values_[begin][i];
      for (int hop = 1; hop < sum_.ranks; ++hop) {
        value = rounded(combine(value, values_[(begin + hop) % sum_.ranks][i], sum_.reduction));
      }
      result_[i] = value;
    }
    std::copy_n(result_, count_, values_[0]);
  }

  void tree() {
    for (int distance = 1; distance < sum_.ranks; distance *= 2) {
      for (int rank = 0; rank + distance < sum_.ranks; rank += 2 * distance) add(rank, rank + distance, true);
    }
  }

  const Sum& sum_;
  int64_t count_;
  Value values_[kMostRanks][kBlock];
  Value result_[kBlock];
};

template <class Stored>
void reduce_as(const Sum& sum, const std::byte* const* inputs, int64_t count, std::byte* out) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    Rows<Stored> rows(sum, std::min(kBlock, count - begin));
    rows.load(inputs, begin);
    rows.reduce(sum.first + begin);
    rows.store(out, begin);
  }
}

}  // namespace

const char* type_name(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return "ncclInt8";
    case ncclUint8:
      return "ncclUint8";
    case ncclInt32:
      return "ncclInt32";
    case ncclUint32:
      return "ncclUint32";
    case ncclInt64:
      return "ncclInt64";
    case ncclUint64:
      return "ncclUint64";
    case ncclFloat16:
      return "ncclFloat16";
    case ncclFloat32:
      return "ncclFloat32";
    case ncclFloat64:
      return "ncclFloat64";
    case ncclBfloat16:
      return "ncclBfloat16";
    case ncclFloat8e4m3:
      return "ncclFloat8e4m3";
    case ncclFloat8e5m2:
      return "ncclFloat8e5m2";
    case ncclNumTypes:
      break;
  }
  return "no data type";
}

const char* reduction_name(ncclRedOp_t reduction) {
  switch (reduction) {
    case ncclSum:
      return "ncclSum";
    case ncclProd:
      return "ncclProd";
    case ncclMax:
      return "ncclMax";
    case ncclMin:
      return "ncclMin";
    case ncclAvg:
      return "ncclAvg";
    case ncclNumOps:
    case ncclMaxRedOp:
      break;
  }
  return "no reduction";
}

int64_t type_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclNumTypes:
      break;
  }
  return 0;
}

bool can_reduce(ncclDataType_t type) {
  return type_bytes(type) != 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2;
}

void reduce(const Sum& sum, const std::byte* const* inputs, int64_t count, std::byte* out) {
  switch (sum.type) {
    case ncclInt8:
      return reduce_as<int8_t>(sum, inputs, count, out);
    case ncclUint8:
      return reduce_as<uint8_t>(sum, inputs, count, out);
    case ncclInt32:
      return reduce_as<int32_t>(sum, inputs, count, out);
    case ncclUint32:
      return reduce_as<uint32_t>(sum, inputs, count, out);
    case ncclInt64:
      return reduce_as<int64_t>(sum, inputs, count, out);
    case ncclUint64:
      return reduce_as<uint64_t>(sum, inputs, count, out);
    case ncclFloat16:
      return reduce_as<__half>(sum, inputs, count, out);
    case ncclFloat32:
      return reduce_as<float>(sum, inputs, count, out);
    case ncclFloat64:
      return reduce_as<double>(sum, inputs, count, out);
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16>(sum, inputs, count, out);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
    case ncclNumTypes:
      break;
  }
  throw BugError("the NCCL stand-in was to reduce a type that it cannot");
}

}  // namespace shardscope::emulation::nccl
