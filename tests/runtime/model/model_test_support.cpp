#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime::test {

fs::path data_folder() {
  return SHARDSCOPE_TEST_DATA;
}

}  // namespace shardscope::runtime::test
