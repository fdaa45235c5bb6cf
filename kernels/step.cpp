#include <algorithm>

#include "kernels/backend.hpp"

namespace shardscope::kernels {

bool Step::decodes() const {
  if (selected_rows.size() != token_ids.size() || sequences.size() != token_ids.size()) return false;
  for (size_t i = 0; i < selected_rows.size(); ++i) {
    if (selected_rows[i] != static_cast<int32_t>(i)) return false;
  }
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const StepSequence& sequence) { return sequence.count == 1; });
}

}  // namespace shardscope::kernels
