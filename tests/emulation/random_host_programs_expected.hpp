// What the memory of a program made up at random has to hold, by going through it step by step, in plain C++.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/emulation/planted_host/host_kernels.hpp"
#include "tests/emulation/random_host_programs.hpp"

namespace shardscope::test {

inline int remainder_of(float value) {
  return static_cast<int>(std::lround(value)) % planted_host::kModulus;
}

/// What memory holds after each step, if steps come one after another.
class Expected {
 public:
  explicit Expected(const HostProgram& program) : program_(program), values_(program.resources.size()) {
    for (size_t i = 0; i < values_.size(); ++i) {
      for (int j = 0; j < kNumbers; ++j) {
        values_[i].push_back(static_cast<float>((static_cast<int>(i) * 7 + j * 3) % planted_host::kModulus));
      }
    }
  }

  Numbers& of(int resource) { return values_[static_cast<size_t>(resource)]; }

  void go_on(const Step& step) {
    if (step.act == Act::kGraph) {
      for (const Step& inner : program_.graphs[static_cast<size_t>(step.graph)].steps) go_on(inner);
      return;
    }
    if (step.out < 0) return;
    Numbers result = of(step.out);
    const auto x = [&](int i) { return of(step.x)[static_cast<size_t>(i)]; };
    for (int i = 0; i < kNumbers; ++i) {
      float& value = result[static_cast<size_t>(i)];
      switch (step.act) {
        case Act::kCombine:
          value =
              static_cast<float>((step.factor * remainder_of(x(i)) + remainder_of(of(step.y)[static_cast<size_t>(i)])) %
                                 planted_host::kModulus);
          break;
        case Act::kNeighbours:
          value = static_cast<float>(
              (remainder_of(x(i)) + remainder_of(x((i + static_cast<int>(planted_host::kReach)) % kNumbers))) %
              planted_host::kModulus);
          break;
        case Act::kProduct:
          if (i < kSide * kSide) value = product(step, i % kSide, i / kSide);
          break;
        case Act::kFill:
          value = 0;
          break;
        case Act::kCopy:
          value = x(i);
          break;
        case Act::kHostWrite:
          value = static_cast<float>((step.factor + i) % planted_host::kModulus);
          break;
        case Act::kReplace:
        case Act::kGraph:
        case Act::kHostRead:
          break;
      }
    }
    of(step.out) = result;
  }

 private:
  float product(const Step& step, int row, int column) {
    int64_t sum = 0;
    for (int k = 0; k < kSide; ++k) {
      const auto left = static_cast<int64_t>(of(step.x)[static_cast<size_t>(k * kSide + row)]);
      const auto right = static_cast<int64_t>(of(step.y)[static_cast<size_t>(column * kSide + k)]);
      sum += left * right;
    }
    return static_cast<float>(sum);
  }

  const HostProgram& program_;
  std::vector<Numbers> values_;  // [resource]
};

}  // namespace shardscope::test
