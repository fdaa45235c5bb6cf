#include "runtime/measure/parts.hpp"

namespace shardscope::runtime {
namespace {

struct Names {
  std::string_view name;
  std::string_view words;
};

constexpr std::array<Names, kParts.size()> kNames = {{{"ideal_memory", "memory at full speed"},
                                                      {"matrix_loss", "small matrices"},
                                                      {"attention", "attention"},
                                                      {"elementwise", "small operations"},
                                                      {"allreduce_transfer", "all-reduce transfer"},
                                                      {"allreduce_wait", "waiting for the slowest"},
                                                      {"head_and_sampling", "LM head and sampling"},
                                                      {"gaps", "launch gaps"},
                                                      {"residual", "not explained"}}};

}  // namespace

std::string_view name_of(Part part) {
  return kNames[static_cast<size_t>(part)].name;
}

std::string_view words_of(Part part) {
  return kNames[static_cast<size_t>(part)].words;
}

}  // namespace shardscope::runtime
