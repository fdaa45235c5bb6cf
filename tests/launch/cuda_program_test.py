"""The whole program on the CUDA path: shardscope-emulated, from the command line to texts, reports and errors.

References are those that the CPU is held to (tests/data/reference, tests/data/cases): logits of fp32 activations.
"""
import json
import os
import pathlib
import signal
import tempfile
import time
import unittest

from program import CASES, DATA, Job, generate, main, run
from schema_program_test import SCHEMAS, Validator, undescribed

TINY = ["llama-mha", "llama-gqa-9-3-tied", "llama-rope-llama3", "llama-head-dim", "llama-sharded", "qwen2-bias"]
RANKS = (1, 2, 3, 4, 8)
ALL_REDUCE = {1: "auto", 2: "one-shot", 3: "two-shot", 4: "nccl-symmetric", 8: "nccl"}  # of so many ranks, where a test has all
FP32_EPSILON = 2.0 ** -23


def json_of(path):
    return json.loads(pathlib.Path(path).read_text())


def error_lines(done):
    return [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("shardscope: error: ")]


class Logits(unittest.TestCase):
    def test_tiny_models_give_their_reference_logits_and_tokens_at_every_degree(self):
        for name in TINY:
            folder = DATA / "reference/tiny" / name
            config = json_of(folder / "config.json")
            prompts = json_of(DATA / f"reference/tiny/{name}.json")["prompts"][:3]
            for ranks in RANKS:
                with self.subTest(model=name, ranks=ranks):
                    words = [word for prompt in prompts for word in ("--prompt-ids", ",".join(map(str, prompt["ids"])))]
                    document = generate(folder, *words, "--max-tokens", 4, "--dtype", "fp32", "--backend", "cuda", "--tp",
                                        ranks, "--allreduce", ALL_REDUCE[ranks], "--top-logits", 8, "--ignore-eos",
                                        ranks=ranks)
                    for prompt, request in zip(prompts, document["requests"]):
                        self.check_request(prompt, request, config)

    def check_request(self, prompt, request, config):
        # As tests/support/tolerances.hpp: fp32 epsilon along the longest chain of sums.
        magnitude = max(map(abs, prompt["last_logits"]))
        length = max(config["hidden_size"], config["intermediate_size"])
        tolerance = 0.5e-4 + (4 * config["num_hidden_layers"] + 1) * length * FP32_EPSILON / 2 * magnitude
        self.assertEqual(len(request["top_logits"][0]), 8)
        for token, logit in request["top_logits"][0]:
            self.assertLessEqual(abs(logit - prompt["last_logits"][token]), tolerance)
        for token, wanted, margin in zip(request["output_token_ids"], prompt["greedy"], prompt["margins"]):
            if margin <= 2 * tolerance:
                break
            self.assertEqual(token, wanted)

    def test_files_in_every_block_format_give_their_ids_at_every_degree(self):
        for kind, expected in (("F32", "expected"), ("F16", "expected"), ("BF16", "expected"), ("Q4_0", "expected-Q4_0"),
                               ("Q4_1", "expected-Q4_1"), ("Q8_0", "expected-Q8_0")):
            want = json_of(CASES / f"A09-gguf/{expected}.json")
            for ranks in RANKS:
                with self.subTest(kind=kind, ranks=ranks):
                    request = generate(CASES / f"A09-gguf/gqa-{kind}.gguf", "--prompt-ids",
                                       ",".join(map(str, want["prompt_ids"])), "--max-tokens", 5, "--dtype", "fp32",
                                       "--backend", "cuda", "--tp", ranks, "--allreduce", ALL_REDUCE[ranks], "--top-logits", 8,
                                       ranks=ranks)["requests"][0]
                    self.assertEqual(request["output_token_ids"], want["greedy_ids"][:5])
                    for (token, logit), (want_token, want_logit) in zip(request["top_logits"][0], want["first_step_top8"]):
                        self.assertEqual(token, want_token)
                        self.assertLessEqual(abs(logit - want_logit), 1e-3)  # the bound that the cases state for fp32

    def test_the_real_model_gives_its_reference_ids(self):
        model = os.environ.get("SHARDSCOPE_TEST_MODEL")
        self.assertIsNotNone(model, "SHARDSCOPE_TEST_MODEL must name the model file: launch/fetch_model")
        prompt = json_of(DATA / "reference/smollm2-135m.json")["prompts"][0]
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                ids = generate(model, "--prompt-ids", ",".join(map(str, prompt["ids"])), "--max-tokens", 10, "--dtype", "fp32",
                               "--backend", "cuda", "--tp", ranks, "--allreduce", ALL_REDUCE[ranks], "--ignore-eos", ranks=ranks,
                               timeout=600)["requests"][0]["output_token_ids"]
                self.assertEqual(len(ids), 10)
                compared = 0
                for token, wanted, margin in zip(ids, prompt["greedy"], prompt["margins"]):
                    if margin <= 2e-2:  # twice the tolerance of the test on the CPU
                        break
                    self.assertEqual(token, wanted)
                    compared += 1
                self.assertGreaterEqual(compared, 5)

    def test_sampling_draws_the_same_tokens_at_every_degree(self):
        words = ["tiny", "--prompt-ids", "1,2,3", "--max-tokens", 8, "--dtype", "fp32", "--backend", "cuda", "--seed", 5]
        for options in (["--temperature", 1.0], ["--temperature", 0.8, "--top-k", 20], ["--temperature", 1.0, "--top-p", 0.9],
                        ["--repetition-penalty", 1.3]):
            with self.subTest(options=options):
                ids = [generate(*words, *options, "--tp", ranks, "--allreduce", kind, ranks=ranks)["requests"][0]["output_token_ids"]
                       for ranks, kind in ((1, "auto"), (3, "nccl"), (2, "one-shot"))]
                self.assertEqual(ids[0], ids[1])
                self.assertEqual(ids[0], ids[2])
                on_cpu = generate(*[w if w != "cuda" else "cpu" for w in words], *options)["requests"][0]["output_token_ids"]
                self.assertEqual(ids[0], on_cpu)


class Reports(unittest.TestCase):
    def check_attribution(self, results):
        """Kernels noted their times on each device; on stand-ins they mean nothing, but they are whole."""
        for row in results:
            self.assertAlmostEqual(sum(row["attribution"].values()), row["tpot_ms"]["p50"], delta=1e-6 * row["tpot_ms"]["p50"])
            for rank in row["ranks"]:
                parts = rank["attribution"]
                self.assertGreater(parts["head_and_sampling"] + parts["ideal_memory"], 0)
                self.assertGreaterEqual(rank["timer_step_ns"], 1)
                if row["tp"] > 1:
                    self.assertGreater(parts["allreduce_transfer"] + parts["allreduce_wait"], 0)
            self.assertIsNotNone(row["loss"])

    def test_scale_runs_from_the_command_line_to_a_report(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "report.json"
            done = run(["scale", "--tp", "1..4", "--model", "tiny", "--prompt-tokens", 8, "--output-tokens", 8, "--iterations",
                        2, "--json", name], 4, mpirun_options=("--oversubscribe",))
            self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
            report = json_of(name)
        self.assertTrue(report["complete"])
        self.assertEqual([(r["kind"], r["tp"]) for r in report["results"]],
                         [("emulated", tp) for tp in (1, 2, 3, 4)])
        self.check_choices(report["results"])
        self.check_attribution(report["results"])
        self.assertEqual([r["mbu"] for r in report["results"]], [None] * 4)  # of what nobody measured
        devices = report["environment"]["devices"]
        self.assertEqual([d["rank"] for d in devices], [0, 1, 2, 3])
        self.assertEqual(len({d["uuid"] for d in devices}), 4)
        self.assertEqual(report["model"]["kv_dtype"], "bf16")
        self.assertIn("emulated", done.stderr.decode())
        self.assertEqual(list(Validator(SCHEMAS["report"]).iter_errors(report)), [])
        report["topology"] = None  # a document of its own
        self.assertEqual(list(undescribed(report, SCHEMAS["report"], SCHEMAS["report"])), [])

    def check_choices(self, results):
        """auto: whatever was the fastest here, each of the ways was looked at."""
        self.assertEqual(results[0]["allreduce"], "none")
        for result in results[1:]:
            choices = result["allreduce_choices"]
            ways = {one["algorithm"] for one in choices["measured"]}
            self.assertEqual(ways, {"nccl", "nccl-symmetric", "one-shot", "two-shot"})
            self.assertTrue(choices["graphs"])
            self.assertEqual(choices["left_out"], [])
            self.assertEqual(choices["choices"][0]["from_bytes"], 0)
            self.assertLessEqual({choice["algorithm"] for choice in choices["choices"]}, ways)
            sizes = [choice["from_bytes"] for choice in choices["choices"]]
            self.assertEqual(sizes, sorted(set(sizes)))

    def test_scale_with_each_way_of_summing(self):
        for kind in ("nccl", "nccl-symmetric", "one-shot", "two-shot"):
            with self.subTest(allreduce=kind):
                done = run(["scale", "--tp", "2", "--model", "tiny", "--layers", 1, "--prompt-tokens", 4, "--output-tokens", 3,
                            "--iterations", 2, "--warmup", 1, "--allreduce", kind, "--json", "-"], 2)
                self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
                result = json.loads(done.stdout)["results"][0]
                self.assertEqual(result["allreduce"], kind)
                self.assertEqual(result["allreduce_choices"]["choices"], [{"from_bytes": 0, "algorithm": kind}])

    def test_ranks_that_share_a_device_sum_without_nccl(self):
        done = run(["bench", "--model", "tiny", "--prompt-tokens", 8, "--output-tokens", 4, "--iterations", 2, "--tp", 2,
                    "--oversubscribe-devices", "--json", "-"], 2, env={"SHARDSCOPE_EMULATION": "devices=1,policy=worker"})
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        choices = json.loads(done.stdout)["results"][0]["allreduce_choices"]
        self.assertEqual([why.split(":")[0] for why in choices["left_out"]], ["nccl", "nccl-symmetric"])
        self.assertLessEqual({choice["algorithm"] for choice in choices["choices"]}, {"one-shot", "two-shot"})

    def test_bench_without_graphs_and_in_fp16(self):
        for words in (["--graphs", "off"], ["--dtype", "fp16", "--kv-dtype", "fp32"]):
            with self.subTest(words=words):
                done = run(["bench", "--model", "tiny", "--prompt-tokens", 8, "--output-tokens", 4, "--iterations", 2,
                            "--batch", "1,3,9", "--json", "-", *words])
                self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
                self.assertEqual([r["batch"] for r in json.loads(done.stdout)["results"]], [1, 3, 9])

    def test_dry_run_plans_the_devices_precision(self):
        done = run(["scale", "--model", "llama3-8b", "--tp", "8", "--dry-run", "--json", "-", "--backend", "cuda"])
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        document = json.loads(done.stdout)
        self.assertEqual(document["model"]["kv_dtype"], "bf16")


class Refusals(unittest.TestCase):
    def refused(self, words, ranks=0, status=2, **env):
        done = run(["generate", "--model", "tiny", "--prompt-ids", "1,2", "--max-tokens", 3, *words], ranks, env=env)
        lines = error_lines(done)
        self.assertEqual(len(lines), 1, done.stderr.decode(errors="replace"))
        if ranks == 0:
            self.assertEqual(done.returncode, status)
        return lines[0]

    def test_no_visible_device(self):
        self.assertRegex(self.refused(["--backend", "cuda"], CUDA_VISIBLE_DEVICES=""), "CUDA_VISIBLE_DEVICES")

    def test_auto_goes_on_with_the_cpu_and_says_why(self):
        done = run(["generate", "--model", "tiny", "--prompt-ids", "1,2", "--max-tokens", 3], env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"backend: cpu.*\(no GPU: .*CUDA_VISIBLE_DEVICES")

    def test_ranks_that_share_a_device_are_named(self):
        line = self.refused(["--tp", 2], 2, CUDA_VISIBLE_DEVICES="3")
        self.assertRegex(line, "ranks 0,1 share one device, host .*, bus id .*, CUDA_VISIBLE_DEVICES=3")
        line = self.refused(["--tp", 2, "--oversubscribe-devices", "--allreduce", "nccl"], 2, CUDA_VISIBLE_DEVICES="3")
        self.assertRegex(line, "--allreduce nccl cannot be had here, NCCL refuses .* share a device, what to do: .* --allreduce one-shot")

    def test_more_ranks_than_devices(self):
        self.assertRegex(self.refused([], 3, SHARDSCOPE_EMULATION="devices=2,policy=worker"), "3 ranks .* 2 devices")

    def test_options_of_the_other_backend(self):
        self.assertIn("--allreduce", self.refused(["--backend", "cuda", "--allreduce", "shm"]))
        self.assertIn("--kv-dtype", self.refused(["--backend", "cpu", "--kv-dtype", "fp16"]))
        self.assertIn("--allreduce", self.refused(["--backend", "cpu", "--allreduce", "nccl"]))
        self.assertIn("--graphs", self.refused(["--backend", "cpu", "--graphs", "off"]))
        self.assertIn("--threads", self.refused(["--backend", "cuda", "--threads", 1]))
        self.assertIn("--cpu-activations", self.refused(["--backend", "cuda", "--cpu-activations", "int8"]))

    def test_options_of_the_cpu_do_not_keep_auto_from_a_gpu(self):
        for words in ([], ["--threads", 1], ["--cpu-activations", "fp32"]):
            done = run(["generate", "--model", "tiny", "--prompt-ids", "1,2", "--max-tokens", 3, *words])
            self.assertEqual(done.returncode, 0)
            notes = done.stderr.decode()
            self.assertRegex(notes, "backend: cuda")
            self.assertEqual(words != [], "--threads and --cpu-activations are for the cpu backend: not used" in notes)

    def test_a_model_that_is_too_large_is_refused_before_loading(self):
        done = run(["generate", "--model", "llama3-8b", "--prompt-ids", "1,2", "--backend", "cuda"],
                   env={"SHARDSCOPE_EMULATION": "devices=1,memory-mib=7630"})
        self.assertEqual(done.returncode, 2)
        line = error_lines(done)[0]
        self.assertRegex(line, r"rank 0 lacks [0-9.]+ GB: it needs [0-9.]+ GB \(weights 16\.06 GB, KV cache .*8\.00 GB are free")
        self.assertNotIn("loading weights", done.stderr.decode())

    def test_a_failing_call_is_named_with_device_and_rank(self):
        line = self.refused(["--tp", 2], 2, SHARDSCOPE_EMULATION="devices=2,policy=worker,fail=cudaMalloc:12:2")
        self.assertRegex(line, r"cudaMalloc.*device [01] of rank [01]")


class Faults(unittest.TestCase):
    def test_a_killed_rank_ends_the_others_within_the_timeout(self):
        for kind in ("nccl", "one-shot"):
            with self.subTest(allreduce=kind):
                self.kill_one_of_two(kind)

    def kill_one_of_two(self, kind):
        # Where a kernel spins, the emulation has little time for the host: the launcher must leave it more than a second.
        alone = kind == "one-shot"
        job = Job(["generate", "--model", "tiny", "--prompt-ids", "1,2,3", "--ignore-eos", "--max-tokens", 2000, "--tp", 2,
                   "--timeout", "5", "--allreduce", kind], 2, env={"OMPI_MCA_orte_enable_recovery": "1"} if alone else None)
        self.addCleanup(job.close)
        pids = [job.pid_of_rank(rank) for rank in range(2)]
        end = time.monotonic() + 60
        while "loading weights" not in job.error_text() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.5)
        self.assertIsNone(job.process.poll(), job.error_text())
        os.kill(pids[1], signal.SIGKILL)
        status = job.wait(30)
        if not alone:
            self.assertNotEqual(status, 0)
        self.assertRegex(job.error_text(), r"shardscope: error: .*\brank 1\b")
        self.assertEqual(job.left_over(), {})


if __name__ == "__main__":
    main()
