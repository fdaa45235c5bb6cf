"""shardscope generate: ids, text and streams as a user and a script see them."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from program import CASES, DATA, command, environment, generate, main, run


def expected(case, name="expected.json"):
    return json.loads((CASES / case / name).read_text())


class Generate(unittest.TestCase):
    def test_greedy_ids_are_the_same_at_every_degree(self):
        want = expected("A01-gqa-kv2")
        for ranks in (0, 1, 2, 3, 4, 8):
            with self.subTest(ranks=ranks):
                document = generate(CASES / "A01-gqa-kv2", "--prompt", want["prompt"], "--max-tokens",
                                    len(want["greedy_ids"]), "--ignore-eos", ranks=ranks)
                request = document["requests"][0]
                self.assertEqual(document["schema"], "shardscope.generate/1")
                self.assertEqual(document["tp"], max(ranks, 1))
                self.assertEqual(request["prompt_token_ids"], want["prompt_ids"])
                self.assertEqual(request["output_token_ids"], want["greedy_ids"])

    def test_a_part_of_the_ranks_may_work_while_the_others_sleep(self):
        want = expected("A01-gqa-kv2")
        document = generate(CASES / "A01-gqa-kv2", "--prompt", want["prompt"], "--max-tokens", 6, "--ignore-eos",
                            "--tp", 2, ranks=3)
        self.assertEqual(document["tp"], 2)
        self.assertEqual(document["requests"][0]["output_token_ids"], want["greedy_ids"][:6])

    def test_quantised_gguf(self):
        for kind in ("Q4_0", "Q4_1", "Q8_0"):
            want = expected("A09-gguf", f"expected-{kind}.json")
            for ranks in (0, 2, 4):
                with self.subTest(kind=kind, ranks=ranks):
                    document = generate(CASES / f"A09-gguf/gqa-{kind}.gguf", "--prompt", want["prompt"], "--max-tokens",
                                        len(want["greedy_ids"]), "--ignore-eos", "--cpu-activations", "fp32", ranks=ranks)
                    self.assertEqual(document["requests"][0]["output_token_ids"], want["greedy_ids"])

    def test_a_stream_is_the_text_and_nothing_else_and_never_splits_a_character(self):
        want = expected("A16-stream-unicode")
        model = CASES / "A16-stream-unicode"
        for ranks in (0, 2):
            process = subprocess.Popen(command(["generate", "--model", model, "--prompt", want["prompt"]], ranks),
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment())
            seen = b""
            while byte := process.stdout.read(1):
                seen += byte
            process.stdout.close()
            self.assertEqual(process.wait(), 0)
            self.assertEqual(seen.hex(), want["utf8_hex"])
        text = generate(model, "--prompt", want["prompt"])["requests"][0]["text"]
        self.assertEqual(text, want["text"])

    def test_end_tokens_are_the_union_of_all_sources(self):
        document = generate(CASES / "A17-eos-list", "--prompt", "Q")
        self.assertEqual(document["requests"][0]["text"], "Hi!")
        self.assertEqual(document["requests"][0]["finish_reason"], "stop")

    def test_ids_without_a_token_are_never_drawn(self):
        for ranks in (0, 2, 3):
            self.assertEqual(generate(CASES / "A18-padded-vocab", "--prompt", "Q", ranks=ranks)["requests"][0]["text"], "Hi!")

    def test_a_stop_text_ends_before_it(self):
        for ranks in (0, 2):
            done = run(["generate", "--model", CASES / "A16-stream-unicode", "--prompt", "Q", "--stop", "caf"], ranks)
            self.assertEqual(done.stdout.decode(), "Hi there 🦙\n")
            request = generate(CASES / "A16-stream-unicode", "--prompt", "Q", "--stop", "é!", ranks=ranks)["requests"][0]
            self.assertEqual(request["text"], "Hi there 🦙\ncaf")
            self.assertEqual(request["finish_reason"], "stop")

    def test_several_prompts_get_what_each_gets_alone(self):
        want = expected("A01-gqa-kv2")
        model = CASES / "A01-gqa-kv2"
        together = generate(model, "--prompt", want["prompt"], "--prompt-ids", "5,6,7", "--max-tokens", 5, ranks=2)
        alone = generate(model, "--prompt-ids", "5,6,7", "--max-tokens", 5)
        self.assertEqual(together["requests"][0]["output_token_ids"], want["greedy_ids"][:5])
        self.assertEqual(together["requests"][1]["output_token_ids"], alone["requests"][0]["output_token_ids"])
        self.assertIsNone(together["requests"][1]["prompt"])

    def test_sampling_is_repeatable_and_independent_of_the_degree(self):
        model = DATA / "reference/tiny/llama-mha"
        options = ("--prompt-ids", "5,6,7", "--max-tokens", 20, "--temperature", 1, "--top-p", 0.9, "--ignore-eos")
        ids = [generate(model, *options, "--seed", seed, ranks=ranks)["requests"][0]["output_token_ids"]
               for seed, ranks in ((1, 0), (1, 0), (1, 2), (2, 0))]
        self.assertEqual(ids[0], ids[1])
        self.assertEqual(ids[0], ids[2])
        self.assertNotEqual(ids[0], ids[3])

    def test_the_prompt_comes_from_standard_input_of_rank_0(self):
        want = expected("A01-gqa-kv2")
        for ranks in (0, 2):
            document = generate(CASES / "A01-gqa-kv2", "--prompt-file", "-", "--max-tokens", 4, ranks=ranks,
                                stdin=want["prompt"].encode())
            self.assertEqual(document["requests"][0]["output_token_ids"], want["greedy_ids"][:4])

    def test_context_limits(self):
        model, folder = CASES / "A20-context", CASES / "A20-context"
        full = run(["generate", "--model", model, "--prompt-file", folder / "prompt-24-tokens.txt", "--max-tokens", 8], 2)
        self.assertEqual(full.returncode, 0)
        self.assertEqual(full.stdout, b"")
        self.assertIn(b"room for 0 new tokens", full.stderr)
        for name, count in (("prompt-25-tokens.txt", b"25"), ("prompt-5000-tokens.txt", b"5000")):
            done = run(["generate", "--model", model, "--prompt-file", folder / name, "--max-tokens", 8], 2)
            self.assertEqual(done.returncode, 2)
            self.assertIn(count, done.stderr)
            self.assertIn(b"24", done.stderr)
        for name, ids in (("prompt-empty.txt", [259]), ("prompt-space.txt", None), ("prompt-bad-utf8.txt", None),
                          ("prompt-nul.txt", None)):
            text = (folder / name).read_bytes()
            want = ids or list(text)  # ids of bytes are the bytes; this model adds no BOS of its own
            for ranks in (0, 2):
                document = generate(model, "--prompt-file", folder / name, "--max-tokens", 1, ranks=ranks)
                self.assertEqual(document["requests"][0]["prompt_token_ids"], want, name)
        plain = generate(model, "--prompt", "<|eos|>", "--max-tokens", 1)["requests"][0]["prompt_token_ids"]
        parsed = generate(model, "--prompt", "<|eos|>", "--max-tokens", 1, "--special")["requests"][0]["prompt_token_ids"]
        self.assertEqual(bytes(plain[-7:]), b"<|eos|>")
        self.assertLess(len(parsed), len(plain))

    def test_top_logits_are_as_recorded(self):
        want = expected("A01-gqa-kv2")
        top = generate(CASES / "A01-gqa-kv2", "--prompt", want["prompt"], "--max-tokens", 2, "--top-logits", 8,
                       ranks=3)["requests"][0]["top_logits"]
        self.assertEqual(len(top), 2)
        for (token, logit), (want_token, want_logit) in zip(top[0], want["first_step_top8"]):
            self.assertEqual(token, want_token)
            self.assertLessEqual(abs(logit - want_logit), 1e-3)

    def test_the_report_appears_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "out.json"
            done = run(["generate", "--model", CASES / "A17-eos-list", "--prompt", "Q", "--json", name])
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stdout, b"Hi!")
            self.assertEqual(json.loads(name.read_text())["requests"][0]["text"], "Hi!")
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["out.json"])

    def test_synthetic_weights_are_one_model_at_every_degree(self):
        ids = [generate("tiny", "--prompt-ids", "1,2,3", "--max-tokens", 12, "--dtype", "fp32", ranks=ranks)
               ["requests"][0]["output_token_ids"] for ranks in (0, 2, 3)]
        self.assertEqual(ids[0], ids[1])
        self.assertEqual(ids[0], ids[2])

    def test_bindings_of_the_launcher_do_not_confine_a_rank(self):
        want = expected("A01-gqa-kv2")
        done = run(["generate", "--model", CASES / "A01-gqa-kv2", "--prompt", want["prompt"], "--max-tokens", 3, "--json", "-"],
                   2, mpirun_options=("--bind-to", "core"))
        self.assertEqual(json.loads(done.stdout)["requests"][0]["output_token_ids"], want["greedy_ids"][:3])


if __name__ == "__main__":
    main()
