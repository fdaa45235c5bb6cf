#include <catch2/catch.hpp>

#include "runtime/report/csv.hpp"
#include "tests/support/points.hpp"

using namespace shardscope::runtime;

namespace {

const std::string kHeader =
    "host,model,kind,status,tp,pp,placement,devices,replicas,batch,prompt_tokens,output_tokens,generations,ttft_ms_p50,"
    "ttft_ms_"
    "p50_low,"
    "ttft_ms_p50_high,tpot_ms_p50,tpot_ms_p50_low,tpot_ms_p50_high,tpot_ms_p95,tpot_ms_p99,tpot_ms_mean,"
    "tpot_ms_stddev,itl_ms_p50,itl_ms_p99,latency_ms_p50,throughput_tokens_per_s,requests_per_s,mbu_nominal,mbu_min,"
    "mbu_mean,mbu_max,mbu_achievable_min,mbu_achievable_mean,mbu_achievable_max,mbu_useful_min,mbu_useful_mean,"
    "mbu_useful_max,cache_resident,mfu_prefill,speedup,efficiency,"
    "comm_share,attribution_ideal_memory_ms,attribution_matrix_loss_ms,attribution_attention_ms,"
    "attribution_elementwise_ms,attribution_allreduce_transfer_ms,attribution_allreduce_wait_ms,"
    "attribution_head_and_sampling_ms,attribution_gaps_ms,attribution_residual_ms,loss_ideal_memory_ms,"
    "loss_matrix_loss_ms,loss_attention_ms,loss_elementwise_ms,loss_allreduce_transfer_ms,"
    "loss_allreduce_wait_ms,loss_head_and_sampling_ms,loss_gaps_ms,loss_residual_ms,"
    "noise_relative,pass_shift,verdicts\r\n";

PointResult known_point() {
  PointResult point{.tp = 2, .workload = {.batch = 3, .prompt_tokens = 512, .output_tokens = 128}};
  point.group = {.placement = shardscope::topology::Placement::kWorst, .places = {0, 2}};
  point.status = PointStatus::kInvalid;
  point.generations = 80;
  point.ttft_ms.p50 = 345.25;
  point.ttft_ms.p50_interval = {340, std::nullopt};
  point.tpot_ms = {.mean = 5.1, .p50 = 5.08, .p95 = 6, .p99 = 7, .stddev = 0.1, .p50_interval = {5, 5.2}};
  point.tpot_ms.p95_supported = true;  // and p99 is not
  point.itl_ms.p50 = 5;
  point.itl_ms.p99 = 9.5;
  point.latency_ms.p50 = 1e9;
  point.throughput_tokens_per_s = 1.0 / 3;
  point.requests_per_s = 1e-7;
  point.mbu_nominal = 0.5;
  point.mbu = Spread{0.1, 0.2, 0.3};
  point.mbu_achievable = Spread{0.4, 0.5, 0.6};
  point.mbu_useful = Spread{0.7, 0.8, 0.9};
  point.cache_resident = false;
  point.mfu_prefill = 0.25;
  point.speedup = 1.5;
  point.efficiency = 0.75;
  point.comm_share = 0.25;
  point.attribution = Parts{.ms = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}};
  point.noise = {.relative = 0.02, .pass_shift = -0.01};
  point.verdicts = {"noise: wide, very", "invalid: a \"peak\""};
  return point;
}

}  // namespace

TEST_CASE("points_csv: the header alone where there is no point") {
  CHECK(points_csv({}, "m", "h") == kHeader);
}

TEST_CASE("points_csv: shortest numbers, empty cells for what is unknown or not supported, quotes where needed") {
  CHECK(points_csv({known_point()}, "tiny, cut", "alpha") ==
        kHeader +
            "alpha,\"tiny, cut\",measured,invalid,2,1,worst,0 "
            "2,1,3,512,128,80,345.25,340,,5.08,5,5.2,6,,5.1,0.1,5,9.5,1000000000,"
            "0.3333333333333333,1e-07,0.5,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,false,0.25,1.5,0.75,0.25,"
            "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,,,,,,,,,,0.02,-0.01,"
            "\"noise: wide, very; invalid: a \"\"peak\"\"\"\r\n");
}

TEST_CASE("points_csv: nothing known") {
  const PointResult lost{.tp = 4, .status = PointStatus::kOutOfMemory};
  CHECK(points_csv({lost}, "m", "h") == kHeader + "h,m,measured,out_of_memory,4,1,linear,0 1 2 3,1,1,0,0,0" +
                                            std::string(33 + 19, ',').substr(1) + "\r\n");
}

TEST_CASE("points_csv: line breaks and quotes stay inside their cell") {
  const PointResult point{.tp = 1};
  const std::string text = points_csv({point}, "two\nlines", "a \"host\"\r").substr(kHeader.size());
  const std::string expected = "\"a \"\"host\"\"\r\",\"two\nlines\",measured,ok,1,1,linear,0,1,1,0,0,0,";
  CHECK(text.substr(0, expected.size()) == expected);
}
