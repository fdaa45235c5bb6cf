// GB/s of the products of SmolLM2-135M's matrices, beside the read bandwidth of the same memory in the same run.
// Usage: bench_products [threads [name prefix]]. Stored bytes of the weights per second, best and median of many
// rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

namespace {

struct Layer {
  std::unique_ptr<Matrix> qkv, o, gate_up, down;
};

struct Model {
  std::vector<Layer> layers;
  std::unique_ptr<Matrix> head;
  int64_t bytes = 0;
};

constexpr int64_t kHidden = 576;
constexpr int64_t kFfn = 1536;
constexpr int64_t kQkv = 960;
constexpr int64_t kVocabulary = 49152;

StoredMatrix random_bits(DType dtype, int64_t rows, int64_t columns) {
  StoredMatrix small = random_matrix(dtype, 32, columns, 1);
  small.values.clear();
  const size_t block = small.bytes.size();
  while (std::ssize(small.bytes) < rows * row_bytes(dtype, columns)) {
    small.bytes.resize(small.bytes.size() + block);
    std::copy_n(small.bytes.begin(), block, small.bytes.end() - static_cast<int64_t>(block));
  }
  small.rows = rows;
  return small;
}

Model make_model(Backend& backend, DType dtype, DType head_dtype) {
  Model model;
  const auto loaded = [&](std::vector<StoredMatrix> parts) {
    auto matrix = load(backend, parts);
    model.bytes += matrix->bytes();
    return matrix;
  };
  const StoredMatrix gate = random_bits(dtype, kFfn, kHidden);
  for (int i = 0; i < 30; ++i) {
    Layer layer;
    layer.qkv = loaded({random_bits(dtype, kQkv, kHidden)});
    layer.o = loaded({random_bits(dtype, kHidden, kHidden)});
    layer.gate_up = loaded({gate, gate});
    layer.down = loaded({random_bits(dtype, kHidden, kFfn)});
    model.layers.push_back(std::move(layer));
  }
  model.head = loaded({random_bits(head_dtype, kVocabulary, kHidden)});
  return model;
}

struct Times {
  double best_ms;
  double median_ms;
};

Times timed(int rounds, const std::function<void()>& work) {
  std::vector<double> times;
  work();
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

void run_tokens(Backend& backend, const Model& model, int64_t tokens, const Activations& x, const Activations& wide,
                const Activations& logits) {
  const Activations hidden = x.first_rows(tokens);
  const Activations ffn = wide.first_rows(tokens);
  for (const Layer& layer : model.layers) {
    backend.multiply(*layer.qkv, hidden, nullptr, ffn.column_range(0, kQkv));
    backend.multiply(*layer.o, ffn.column_range(0, kHidden), nullptr, hidden);
    backend.gated_multiply(*layer.gate_up, hidden, nullptr, ffn);
    backend.multiply(*layer.down, ffn, nullptr, hidden);
  }
  backend.multiply(*model.head, hidden.first_rows(std::min<int64_t>(tokens, 8)), nullptr,
                   logits.first_rows(std::min<int64_t>(tokens, 8)));
}

struct Setup {
  int threads = 1;
  std::string_view prefix;  // of the names to run
};

void bench(const Setup& setup, std::string_view name, DType dtype, DType head_dtype, ActivationMode mode) {
  if (!name.starts_with(setup.prefix)) return;
  const int threads = setup.threads;
  const auto backend = make_cpu_backend({.threads = threads, .cores = {}, .activations = mode});
  const Model model = make_model(*backend, dtype, head_dtype);
  std::vector<const Matrix*> all = {model.head.get()};
  for (const Layer& layer : model.layers) {
    all.insert(all.end(), {layer.qkv.get(), layer.o.get(), layer.gate_up.get(), layer.down.get()});
  }
  const auto x = filled(*backend, 512, kHidden, random_values(512 * kHidden, 1));
  const auto wide = backend->make_activations(512, kFfn);
  const auto logits = backend->make_activations(8, kVocabulary);
  uint64_t sum = 0;
  const Times read = timed(9, [&] { sum += backend->read_all(all, nullptr, {}); });
  const auto megabytes = static_cast<double>(model.bytes) / 1e6;
  std::printf("%-9s %d threads %6.1f MB  read_all %5.1f GB/s |", name.data(), threads, megabytes,
              megabytes / read.best_ms);
  for (const int64_t tokens : {1, 2, 4, 8}) {
    const Times t = timed(9, [&] { run_tokens(*backend, model, tokens, x->view(), wide->view(), logits->view()); });
    std::printf(" b%d %6.2f ms %5.1f GB/s (%.2f)", static_cast<int>(tokens), t.median_ms, megabytes / t.median_ms,
                read.median_ms / t.median_ms);
  }
  const Times prefill = timed(1, [&] { run_tokens(*backend, model, 512, x->view(), wide->view(), logits->view()); });
  std::printf(" | 512 tokens %.0f tok/s  %s\n", 512e3 / prefill.best_ms, sum == 0 ? "?" : "");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Setup setup{argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : ""};
  std::printf("%s\n", make_cpu_backend({})->description().c_str());
  bench(setup, "q4_1 int8", DType::kQ4_1, DType::kQ8_0, ActivationMode::kInt8);
  bench(setup, "q4_0 int8", DType::kQ4_0, DType::kQ8_0, ActivationMode::kInt8);
  bench(setup, "q8_0 int8", DType::kQ8_0, DType::kQ8_0, ActivationMode::kInt8);
  bench(setup, "q4_1 fp32", DType::kQ4_1, DType::kQ8_0, ActivationMode::kF32);
  bench(setup, "q8_0 fp32", DType::kQ8_0, DType::kQ8_0, ActivationMode::kF32);
  bench(setup, "bf16", DType::kBF16, DType::kBF16, ActivationMode::kAuto);
  bench(setup, "fp16", DType::kF16, DType::kF16, ActivationMode::kAuto);
  bench(setup, "fp32", DType::kF32, DType::kF32, ActivationMode::kAuto);
}
