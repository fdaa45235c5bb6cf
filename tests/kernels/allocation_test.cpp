// A decode step allocates nothing after it has run once.
#include <malloc.h>

#include <catch2/catch.hpp>

#include "tests/kernels/reference.hpp"
#include "tests/support/allocations.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

TEST_CASE("decode: the operations of a step allocate nothing after warm-up") {
  const auto backend = make_cpu_backend({.threads = 2, .cores = {}, .activations = ActivationMode::kAuto});
  const HeadLayout heads{16, {0, 4}, {0, 2}, 2, 0.25F, 16};
  const std::vector<StoredMatrix> qkv_parts = {random_matrix(DType::kQ4_1, 128, 64, 1)};
  const std::vector<StoredMatrix> ffn_parts = {random_matrix(DType::kQ4_1, 96, 64, 2),
                                               random_matrix(DType::kF16, 96, 64, 3)};
  const std::vector<StoredMatrix> head_parts = {random_matrix(DType::kQ8_0, 200, 64, 4)};
  const auto qkv_weights = load(*backend, qkv_parts);
  const auto ffn_weights = load(*backend, ffn_parts);
  const auto table = load(*backend, head_parts);
  const auto norm = backend->load_vector(random_values(64, 5));
  const auto cache = backend->make_kv_cache({1, 3, 2, 1200, 16});
  const auto hidden = backend->make_activations(3, 64);
  const auto normed = backend->make_activations(3, 64);
  const auto sum = backend->make_activations(3, 64);
  const auto heads_out = backend->make_activations(3, 64);
  const auto qkv = backend->make_activations(3, 128);
  const auto gated_out = backend->make_activations(3, 96);
  const auto logits = backend->make_logits(3, 200);
  const auto recordings = backend->make_recordings(3);
  const std::vector<float> frequencies(8, 0.5F);
  const std::vector<int32_t> ids = {1, 2, 3};
  const std::vector<int32_t> rows = {2, 1, 0};
  std::vector<StepSequence> sequences = {{0, 1000, 1}, {1, 5, 1}, {2, 0, 1}};
  std::vector<Candidate> candidates(5);
  const auto step = [&](int64_t tokens) {
    const auto count = static_cast<size_t>(tokens);
    const auto enqueue = [&] {
      const Activations x = hidden->view().first_rows(tokens);
      const Activations out = normed->view().first_rows(tokens);
      const Activations attended = heads_out->view().first_rows(tokens);
      backend->embed(*table, 0, x);
      backend->multiply(*qkv_weights, {x, nullptr, norm.get(), 1e-5F, {}, out}, nullptr,
                        qkv->view().first_rows(tokens));
      backend->append_and_attend(qkv->view().first_rows(tokens), heads, *cache, 0, attended);
      backend->gated_multiply(*ffn_weights, {x, &attended, norm.get(), 1e-5F, sum->view().first_rows(tokens), out},
                              nullptr, gated_out->view().first_rows(tokens));
      backend->select_rows(x, out);
      backend->multiply(*table, out, nullptr, logits->view().first_rows(tokens));
      backend->prepare_candidates(logits->view().first_rows(tokens), 200, 0);
    };
    const Step what{std::span(ids).first(count), std::span(sequences).first(count), frequencies, 1.0F,
                    std::span(rows).last(count)};
    backend->run_step(what, *recordings, std::ref(enqueue));
    backend->top_candidates(logits->view(), 0, 200, 0, candidates);
    backend->host_logits(logits->view(), 0);
  };
  step(3);
  step(1);
  const int64_t before = allocation_count();
  const auto heap_before = mallinfo2();
  for (int i = 0; i < 10; ++i) {
    for (StepSequence& sequence : sequences) ++sequence.first_position;
    step(3);
    step(1);
  }
  const auto heap_after = mallinfo2();
  CHECK(allocation_count() == before);
  CHECK(heap_after.uordblks + heap_after.hblkhd == heap_before.uordblks + heap_before.hblkhd);
}
