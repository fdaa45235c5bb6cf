// Planted bugs of access widths: accesses of different sizes that overlap, and addresses that are no multiple of the
// type's size, through the seam's functions and through plain pointers of wider types. The twins write neighbouring
// bytes from neighbouring threads, which is sound.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

template <bool kPlanted>
__global__ void wide_store_over_neighbour(uint32_t* out) {
  const uint32_t i = threadIdx.x;
  if (i % 2 == 0) {
    store16(&out[8 * (i / 2)], make_uint4(i, i, i, i));  // planted: wide_store_over_neighbour
  } else {
    out[8 * (i / 2) + (kPlanted ? 3 : 4)] = i;  // planted: wide_store_over_neighbour
  }
}

bool run_wide_store_over_neighbour(Stand& stand) {
  uint32_t* const out = stand.zeros<uint32_t>(16 * 8);
  stand.start({1, 32}, stand.planted() ? wide_store_over_neighbour<true> : wide_store_over_neighbour<false>, out);
  const std::vector<uint32_t> actual = stand.download(out, 16 * 8);
  return actual[3] == 0 && actual[4] == 1 && actual[8] == 2 && actual[12] == 3;
}

template <bool kPlanted>
__global__ void byte_of_two_threads(uint8_t* bytes, __half* halves) {
  SHARDSCOPE_SHARED(uint8_t, box, 64);
  const unsigned i = threadIdx.x;
  box[i] = static_cast<uint8_t>(i);
  __syncthreads();
  bytes[kPlanted ? i / 2 : i] = box[63 - i];  // planted: byte_of_two_threads
  halves[i] = __float2half_rn(static_cast<float>(i));
}

bool run_byte_of_two_threads(Stand& stand) {
  uint8_t* const bytes = stand.zeros<uint8_t>(64);
  __half* const halves = stand.unwritten<__half>(64);
  stand.start({1, 64}, stand.planted() ? byte_of_two_threads<true> : byte_of_two_threads<false>, bytes, halves);
  return stand.download(bytes, 64)[1] == 62 && __half2float(stand.download(halves, 64)[63]) == 63;
}

template <class Wide, bool kPlanted>
__global__ void misaligned_pointer(const unsigned char* in, Wide* out) {
  const auto* const values = reinterpret_cast<const Wide*>(in + (kPlanted ? sizeof(Wide) / 2 : 0));
  out[threadIdx.x] = values[threadIdx.x];  // planted: misaligned_pointer
}

template <class Wide>
bool run_misaligned_pointer(Stand& stand) {
  const unsigned char* const in = stand.counting<unsigned char>(9 * sizeof(Wide));
  Wide* const out = stand.unwritten<Wide>(8);
  stand.start({1, 8}, stand.planted() ? misaligned_pointer<Wide, true> : misaligned_pointer<Wide, false>, in, out);
  return stand.download(reinterpret_cast<const unsigned char*>(out), 8 * sizeof(Wide)).back() == 8 * sizeof(Wide) - 1;
}

}  // namespace

BugFile width_bugs() {
  const auto misaligned = [](std::string_view name, bool (*run)(Stand&)) {
    return Bug{.name = name,
               .scenario = run,
               .fault = Fault::kMisaligned,
               .plain = Plain::kNotRun,
               .kernel = "misaligned_pointer",
               .mark = "misaligned_pointer"};
  };
  return {__FILE__,
          {
              {"wide_store_over_neighbour", run_wide_store_over_neighbour, Fault::kGlobalRace},
              {"byte_of_two_threads", run_byte_of_two_threads, Fault::kGlobalRace, Plain::kWrongResult},
              misaligned("misaligned_word", run_misaligned_pointer<uint32_t>),
              misaligned("misaligned_double", run_misaligned_pointer<double>),
              misaligned("misaligned_float2", run_misaligned_pointer<float2>),
              misaligned("misaligned_float4", run_misaligned_pointer<float4>),
          }};
}

}  // namespace shardscope::planted
