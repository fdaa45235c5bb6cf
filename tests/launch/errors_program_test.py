"""What a stranger can hand us: each refused with one line, status 2, quickly, and no rank left."""
import json
import os
import pathlib
import shutil
import tempfile
import time
import unittest

from program import CASES, DATA, main, run

A01 = CASES / "A01-gqa-kv2"


class Errors(unittest.TestCase):
    def refused(self, arguments, *words, ranks=0, env=None, status=2):
        start = time.monotonic()
        done = run(arguments, ranks, env=env)
        text = done.stderr.decode(errors="replace")
        lines = [line for line in text.splitlines() if line.startswith("shardscope: error: ")]
        self.assertEqual(done.returncode, status, text)
        self.assertEqual(len(lines), 1, text)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(done.stdout, b"")
        self.assertLess(time.monotonic() - start, 30)
        return lines[0]

    def test_usage(self):
        self.refused([], "no command", "generate")
        self.refused(["generat"], "did you mean generate?")
        self.refused(["generate", "--modle", "x"], "--modle", "did you mean --model?")
        self.refused(["generate", "--prompt", "x"], "--model")
        self.refused(["generate", "--model", A01], "no prompt")
        self.refused(["generate", "--model", A01, "--prompt", "x", "--tp", "5"], "1 rank started, --tp 5")
        self.refused(["generate", "--model", A01, "--prompt", "x", "--tp", "5"], "4 ranks started, --tp 5", ranks=4)
        self.refused(["generate", "--model", A01, "--prompt", "x", "--backend", "gpu"], "auto, cuda, cpu")
        self.refused(["generate", "--model", A01, "--prompt", "x", "--backend", "cuda"], "or use --backend cpu")
        self.refused(["generate", "--model", A01, "--prompt", "x", "--top-p", "2"], "--top-p")
        self.refused(["generate", "--model", A01, "--prompt", "x", "--max-tokens", "-1"], "--max-tokens")
        self.refused(["generate", "--model", A01, "--prompt-ids", "1,2,999"], "999")
        self.refused(["scale", "--model", "tiny", "--tp", "0"], "--tp")
        self.refused(["scale", "--model", "tiny", "--prompt-tokens", "100000000"], "--prompt-tokens")
        self.refused(["scale", "--model", "llama2-7c"], "llama2-7b")
        self.refused(["scale", "--model", "tiny", "--json", "/no/such/folder/x.json"], "/no/such/folder/x.json")
        self.refused(["generate", "--model", A01, "--prompt-file", "/no/such/prompt"], "/no/such/prompt")
        self.refused(["scale", "--model", "tiny", "--threads", "0"], "--threads")

    def test_help_is_no_error(self):
        for arguments in (["--help"], ["generate", "--help"], ["scale", "-h"], ["--version"]):
            for ranks in (0, 2):
                done = run(arguments, ranks)
                self.assertEqual(done.returncode, 0)
                self.assertEqual(done.stdout.count(b"shardscope ") > 0, True)
                self.assertEqual(done.stderr, b"")

    def test_a_slurm_step_without_pmix_is_refused_and_a_batch_script_runs(self):
        ok = ["generate", "--model", A01, "--prompt-ids", "1", "--max-tokens", "1"]
        self.refused(ok, "announced 4 tasks", "srun --mpi=pmix", env={"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"})
        self.assertEqual(run(ok, env={"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}).returncode, 0)

    def test_checkpoints_that_are_broken(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "sharded"
            for name, word in (("missing-shard", "model-0000"), ("missing-tensor", "not"), ("wrong-shard", "model-0000")):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(CASES / "A07-sharded/good", folder)
                shutil.copy(CASES / f"A07-sharded/broken/{name}.index.json", folder / "model.safetensors.index.json")
                for ranks in (0, 2):
                    self.refused(["generate", "--model", folder, "--prompt-ids", "1"], word, ranks=ranks)
            shutil.copy(CASES / "A07-sharded/good/model.safetensors.index.json", folder)
            shutil.copy(CASES / "A07-sharded/broken/lfs-pointer.safetensors", folder / "model-00002-of-00003.safetensors")
            self.refused(["generate", "--model", folder, "--prompt-ids", "1"], "LFS", ranks=2)
            pickle = pathlib.Path(scratch) / "pickle"
            pickle.mkdir()
            shutil.copy(A01 / "config.json", pickle)
            shutil.copy(CASES / "A07-sharded/broken/pytorch_model.bin", pickle)
            self.refused(["generate", "--model", pickle, "--prompt-ids", "1"], "pytorch_model.bin")
            self.refused(["generate", "--model", CASES / "A08-safetensors/model-truncated", "--dry-run"], "model.safetensors")

    def test_safetensors_verdicts(self):
        verdicts = json.loads((CASES / "A08-safetensors/expected.json").read_text())
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            shutil.copy(A01 / "config.json", folder)
            for name in (n for n, verdict in verdicts.items() if verdict == "reject"):
                with self.subTest(name=name):
                    shutil.copy(CASES / f"A08-safetensors/{name}.safetensors", folder / "model.safetensors")
                    self.refused(["generate", "--model", folder, "--dry-run"], "model.safetensors")

    def test_gguf_verdicts(self):
        for name in json.loads((CASES / "A10-gguf-malformed/expected.json").read_text()):
            with self.subTest(name=name):
                self.refused(["generate", "--model", CASES / f"A10-gguf-malformed/{name}.gguf", "--dry-run"], f"{name}.gguf")

    def test_configurations(self):
        want = json.loads((A01 / "expected.json").read_text())
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "model"
            shutil.copytree(A01, folder)
            for file in sorted((CASES / "A27-config-oddities").glob("*.config.json")):
                with self.subTest(file=file.name):
                    shutil.copy(file, folder / "config.json")
                    if file.name.startswith("reject"):
                        self.refused(["generate", "--model", folder, "--prompt-ids", "1"], "config.json")
                        continue
                    done = run(["generate", "--model", folder, "--prompt", want["prompt"], "--max-tokens", 6, "--json", "-",
                                "--ignore-eos"])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout)["requests"][0]["output_token_ids"], want["greedy_ids"][:6])

    def test_values_beyond_fp16_are_refused_by_tensor(self):
        self.refused(["generate", "--model", CASES / "A19-fp16-overflow", "--prompt-ids", "1", "--dtype", "fp16"], "fp16",
                     "weight", ranks=2)
        self.assertEqual(run(["generate", "--model", CASES / "A19-fp16-overflow", "--prompt-ids", "1", "--max-tokens", "2"]).returncode, 0)

    def test_a_model_larger_than_the_host_is_refused_before_loading(self):
        self.refused(["generate", "--model", "llama3.1-405b", "--prompt-ids", "1"], "needs", "this host has")


if __name__ == "__main__":
    main()
