"""shardscope bench: table, report, CSV, configuration files, going on after an interruption, and progress."""
import csv
import io
import json
import re
import shutil

from program import CASES, DATA, WithFolder, main, text

SHORT = ["--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1", "--iterations", "4"]
TINY = ["--model", "tiny", *SHORT]
WITH_TEXT = DATA / "reference/tiny/llama-mha"  # a model with a tokenizer, whose weights are not synthetic


class BenchRuns(WithFolder):
    def report(self, *arguments, ranks=0):
        return json.loads(self.ok(["bench", *arguments, "--json", "-"], ranks).stdout)


class Bench(BenchRuns):
    def test_the_table_and_the_report(self):
        file = self.folder / "report.json"
        done = self.ok(["bench", *TINY, "--batch", "1,2", "--json", file], 2)
        table = text(done.stdout)
        for word in ("TTFT", "TPOT", "ITL", "latency", "mean", "p50", "p95", "p99"):
            self.assertIn(word, table)
        self.assertIn("batch 2", table)
        self.assertNotIn("faster than", table)  # advice belongs to scale
        self.assertEqual([p.name for p in self.folder.iterdir()], ["report.json"])
        report = json.loads(file.read_text())
        self.assertEqual((report["schema"], report["command"], report["complete"]), ("shardscope.report/1", "bench", True))
        self.assertEqual([(r["tp"], r["batch"]) for r in report["results"]], [(2, 1), (2, 2)])  # all ranks by default
        self.assertEqual(report["advice"], [])
        for row in report["results"]:
            self.assertEqual(row["status"], "ok")
            for figure in ("ttft_ms", "tpot_ms", "latency_ms"):
                self.assertEqual(row[figure]["n"], 4)
                self.assertIsNone(row[figure]["ci95"]["p50"][1])  # open below 6
            self.assertIsNone(row.get("samples"))
            self.assertIsNone(row["mfu_prefill"])

    def test_what_ran_is_in_the_protocol(self):
        protocol = self.report(*TINY, "--max-seconds", "7")["protocol"]
        self.assertEqual(protocol["warmup_generations"], 1)
        self.assertEqual(protocol["iterations"], 4)
        self.assertEqual(protocol["max_seconds"], 7)

    def test_its_own_defaults(self):
        protocol = self.report(*TINY)["protocol"]
        self.assertEqual((protocol["least_generations"], protocol["noise_bound"], protocol["max_seconds"]), (72, 0.01, 120))
        self.assertIn("shardscope bench ", text(self.ok(["bench", "--help"]).stdout).split("Example:")[1])

    def test_without_counts_it_measures_until_the_figures_are_known_or_the_time_is_over(self):
        row = self.report("--model", "tiny", "--prompt-tokens", "8", "--output-tokens", "2", "--max-seconds", "1")["results"][0]
        self.assertTrue(row["generations"] >= 72 or row["unmet"], row["generations"])
        self.assertGreaterEqual(row["generations"], 2)

    def test_samples_are_kept_when_asked_for(self):
        row = self.report(*TINY, "--samples")["results"][0]
        self.assertEqual(len(row["samples"]), 4)
        tpots = sorted(sample["tpot_ms"] for sample in row["samples"])
        self.assertAlmostEqual((tpots[1] + tpots[2]) / 2, row["tpot_ms"]["p50"])
        for sample in row["samples"]:
            self.assertEqual(len(sample["itl_ms"]), 5)

    def test_a_compute_peak_gives_mfu(self):
        row = self.report(*TINY, "--peak-tflops", "0.5")["results"][0]
        self.assertAlmostEqual(row["mfu_prefill"], row["prefill_tflops_per_s"] / 0.5)

    def test_csv_to_a_file_and_to_standard_output(self):
        file = self.folder / "points.csv"
        done = self.ok(["bench", *TINY, "--batch", "1,2", "--csv", file])
        self.assertIn("TTFT", text(done.stdout))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["points.csv"])
        stream = self.ok(["bench", *TINY, "--batch", "1,2", "--csv", "-"])
        self.assertIn("TTFT", text(stream.stderr))
        both = self.ok(["bench", *TINY, "--batch", "1,2", "--csv", file, "--json", "-"])
        self.assertEqual(len(json.loads(both.stdout)["results"]), 2)
        for document in (file.read_text(), text(stream.stdout)):
            rows = list(csv.DictReader(io.StringIO(document)))
            self.assertEqual([row["batch"] for row in rows], ["1", "2"])
            self.assertEqual({row["model"] for row in rows}, {"tiny"})
            self.assertGreater(float(rows[0]["tpot_ms_p50"]), 0)

    def test_files_that_would_overwrite_something_are_refused(self):
        file = self.folder / "report"
        self.refused(["bench", *TINY, "--json", "-", "--csv", "-"], "--json -", "--csv -")
        self.refused(["bench", *TINY, "--json", file, "--csv", file], "overwrite")
        self.refused(["bench", *TINY, "--csv", file, "--resume", f"{file}.partial"], "--resume")
        self.assertEqual(list(self.folder.iterdir()), [])
        folder = self.folder / "model"
        shutil.copytree(CASES / "A05-tied", folder)
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        for command in ("bench", "generate"):
            for name in (folder, folder / "model.safetensors", folder / "config.json"):
                work = SHORT if command == "bench" else ["--prompt-ids", "1"]
                self.refused([command, "--model", folder, *work, "--json", name], name, "model")
        self.refused(["bench", "--model", folder, *SHORT, "--csv", folder / "model.safetensors"], "model.safetensors")
        self.assertEqual({file.name: file.read_bytes() for file in folder.iterdir()}, before)


class Progress(BenchRuns):
    def test_never_says_nothing(self):
        done = self.ok(["bench", "--model", WITH_TEXT, *SHORT, "--progress", "never", "--json", self.folder / "r"])
        self.assertEqual(done.stderr, b"")
        done = self.ok(["bench", "--model", WITH_TEXT, *SHORT, "--progress", "never"], 8)  # more ranks than cores, mostly
        for line in text(done.stderr).splitlines():
            self.assertTrue(line.startswith("warning: "), line)

    def test_always_draws_bars_that_are_gone_at_the_end(self):
        for ranks in (0, 2):
            done = self.ok(["bench", *TINY, "--progress", "always"], ranks)
            last = text(done.stderr).split("\r")
            self.assertGreater(len(last), 2)
            self.assertTrue(any(re.search(r"\[#*-*\] +\d+ %", part) for part in last), last)
            self.assertEqual(last[-1].split("\n")[0], "\x1b[K")

    def test_plain_lines_into_a_pipe(self):
        done = self.ok(["bench", *TINY])
        self.assertNotIn(b"\r", done.stderr)
        self.assertIn(b"loading shards", done.stderr)
        self.assertIn(b"TPOT", done.stderr)


class Config(BenchRuns):
    def write(self, content, name="run.conf"):
        file = self.folder / name
        file.write_text(content)
        return file

    def test_a_file_sets_what_the_command_line_does_not(self):
        file = self.write("# short\nmodel = tiny\nprompt-tokens = 8\noutput-tokens = 6  # few\n\nwarmup = 1\niterations = 2\n"
                          "batch = 1,2\nsamples = true\n")
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                report = self.report("--config", file, "--iterations", "4", ranks=ranks)
                self.assertEqual([row["batch"] for row in report["results"]], [1, 2])
                self.assertEqual(report["protocol"]["warmup_generations"], 1)
                self.assertEqual(report["protocol"]["iterations"], 4)
                self.assertEqual(len(report["results"][0]["samples"]), 4)
                self.assertNotIn("prompt-tokens", " ".join(report["argv"]))  # what was typed

    def test_other_commands_take_one(self):
        file = self.write("model = tiny\nprompt-ids = 1,2\nprompt-ids = 3\nmax-tokens = 3\nignore-eos = yes\n")
        document = json.loads(self.ok(["generate", "--config", file, "--json", "-"], 2).stdout)
        self.assertEqual([r["prompt_token_ids"] for r in document["requests"]], [[1, 2], [3]])
        self.assertEqual([len(r["output_token_ids"]) for r in document["requests"]], [3, 3])
        file = self.write("model = tiny\ntp = 1..3\ndry-run = true\njson = -\n")
        plans = json.loads(self.ok(["scale", "--config", file]).stdout)["plans"]
        self.assertEqual([plan["tp"] for plan in plans], [1, 2, 3])

    def test_faults_are_named_with_file_and_line(self):
        for content, *words in (("model = tiny\nbacth = 2\n", ":2", "bacth", "did you mean batch?"),
                                ("iterations = many\n", ":1", "'many'", "iterations"),
                                ("batch = 1\nbatch = 2\n", ":2", "batch", ":1"),
                                ("model tiny\n", ":1", "name = value"),
                                ("config = other\n", ":1", "config"),
                                ("samples = perhaps\n", ":1", "true or false"),
                                ("\niterations = 0\n", ":2", "out of range"),
                                ("batch = 1..\n", ":1", "batch"),
                                ("x" * 1_000_001, "1 MB")):
            with self.subTest(content=content[:30]):
                file = self.write(content)
                self.refused(["bench", "--model", "tiny", "--config", file], file, *words)
        file = self.write("bacth = 2\n")
        self.refused(["bench", "--model", "tiny", "--config", file], file, "did you mean batch?", ranks=2)
        self.refused(["bench", "--model", "tiny", "--config", "/no/such/file"], "/no/such/file", ranks=2)
        self.refused(["bench", "--model", "tiny", "--config", self.folder], self.folder)


class Resume(BenchRuns):
    RUN = ["bench", *TINY, "--batch", "1,2,3"]

    def setUp(self):
        super().setUp()
        self.file = self.folder / "report.json"
        self.partial = self.folder / "report.json.partial"
        self.ok([*self.RUN, "--json", self.file, "--samples"])
        self.whole = json.loads(self.file.read_text())
        self.file.unlink()

    def take_apart(self, keep):
        """What stands on the disk after an interruption: only the results of these batches, and one half measured."""
        half = next(dict(r) for r in self.whole["results"] if r["batch"] not in keep)
        kept = [r for r in self.whole["results"] if r["batch"] in keep]
        report = {**self.whole, "complete": False, "results": [*kept, {**half, "status": "incomplete"}],
                  "warnings": ["interrupted by SIGINT"]}
        self.partial.write_text(json.dumps(report))
        return kept

    @staticmethod
    def comparable(row):
        """speedup and efficiency come from all points, and a verdict says where it was measured; all else is as it was."""
        kept = {k: v for k, v in row.items() if k not in ("speedup", "efficiency", "tp_base")}
        return {**kept, "verdicts": [v for v in row["verdicts"] if not v.startswith("resumed: ")]}

    @staticmethod
    def resumed(row):
        return any(v.startswith("resumed: ") for v in row["verdicts"])

    def test_only_what_is_missing_is_measured(self):
        kept = self.take_apart({1, 3})
        done = self.ok([*self.RUN, "--json", self.file, "--samples", "--resume", self.partial])
        self.assertIn("2 of 3 points are taken over", text(done.stderr))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["report.json"])
        report = json.loads(self.file.read_text())
        self.assertTrue(report["complete"])
        self.assertEqual(report["comparable_key"], self.whole["comparable_key"])
        self.assertEqual([r["batch"] for r in report["results"]], [1, 2, 3])
        self.assertEqual([r["status"] for r in report["results"]], ["ok"] * 3)
        for before in kept:
            after = next(r for r in report["results"] if r["batch"] == before["batch"])
            self.assertEqual(self.comparable(after), self.comparable(before))
        self.assertEqual([self.resumed(r) for r in report["results"]], [True, False, True])
        again = next(r for r in report["results"] if r["batch"] == 2)
        first = next(r for r in self.whole["results"] if r["batch"] == 2)
        self.assertNotEqual(again["latency_ms"], first["latency_ms"])

    def test_the_old_file_stands_until_the_new_one_is_complete(self):
        self.take_apart({1, 2})
        new = self.folder / "new.json"
        before = self.partial.read_bytes()
        self.ok([*self.RUN, "--json", new, "--resume", self.partial])
        self.assertEqual(self.partial.read_bytes(), before)
        report = json.loads(new.read_text())
        self.assertEqual(len(report["results"]), 3)
        self.assertEqual(len([w for w in report["warnings"] if "--samples keeps them" in w]), 1)

    def test_a_complete_report_leaves_nothing_to_do(self):
        self.file.write_text(json.dumps(self.whole))
        done = self.ok([*self.RUN, "--json", self.file, "--samples", "--resume", self.file])
        self.assertIn("3 of 3 points are taken over", text(done.stderr))
        report = json.loads(self.file.read_text())
        self.assertEqual([self.comparable(r) for r in report["results"]],
                         [self.comparable(r) for r in self.whole["results"]])

    def test_with_two_ranks(self):
        arguments = ["scale", *TINY, "--tp", "1,2", "--batch", "1,2", "--json"]
        self.ok([*arguments, self.file], 2)
        self.whole = json.loads(self.file.read_text())
        self.whole["results"] = [r for r in self.whole["results"] if (r["tp"], r["batch"]) != (2, 1)]
        self.partial.write_text(json.dumps({**self.whole, "complete": False}))
        done = self.ok([*arguments, self.file, "--resume", self.partial], 2)
        self.assertIn("3 of 4 points are taken over", text(done.stderr))
        report = json.loads(self.file.read_text())
        self.assertEqual([(r["tp"], r["batch"]) for r in report["results"]], [(1, 1), (1, 2), (2, 1), (2, 2)])
        for row in report["results"]:
            base = next(r for r in report["results"] if r["tp"] == 1 and r["batch"] == row["batch"])
            self.assertAlmostEqual(row["speedup"], base["tpot_ms"]["p50"] / row["tpot_ms"]["p50"])
        self.assertNotIn("samples", text(done.stderr))
        done = self.ok([*arguments[:-1], "--resume", self.file], 2)  # without --json: a table alone
        self.assertIn("4 of 4 points are taken over", text(done.stderr))

    def test_degrees_that_are_not_visited_again_are_named(self):
        self.ok(["scale", *TINY, "--tp", "1,2", "--json", self.file], 2)
        new = self.folder / "new.json"
        done = self.ok(["scale", *TINY, "--tp", "1", "--json", new, "--resume", self.file], 2)
        self.assertIn("warning: 1 point of", text(done.stderr))
        report = json.loads(new.read_text())
        self.assertEqual([r["tp"] for r in report["results"]], [1])
        self.assertEqual(len([w for w in report["warnings"] if "left out" in w]), 1)

    def test_points_on_devices_that_no_group_has_are_named(self):
        self.ok(["scale", *TINY, "--tp", "1,2", "--json", self.file], 3)
        report = json.loads(self.file.read_text())
        report["results"][1].update({"placement": "worst", "devices": [0, 2]})
        self.file.write_text(json.dumps(report))
        done = self.ok(["scale", *TINY, "--tp", "1,2", "--resume", self.file], 3)
        self.assertIn("1 of 2 points are taken over", text(done.stderr))
        self.assertRegex(text(done.stderr), "warning: 1 point of .* left out: no group of this run .--placement, --replicas. is on its devices")

    def test_what_was_measured_otherwise_is_refused(self):
        self.take_apart({1})
        before = self.partial.read_bytes()
        for ranks in (0, 2):
            self.refused(["bench", *TINY, "--batch", "1,2", "--tp", "1", "--resume", self.partial, "--json", self.file],
                         self.partial, "workload.points", "3 values, 2 values", ranks=ranks)
        self.refused([*self.RUN, "--seed", "9", "--resume", self.partial], "seed")
        self.refused(["scale", *self.RUN[1:], "--resume", self.partial], "bench", "scale")
        self.refused([*self.RUN, "--resume", self.folder / "none"], self.folder / "none")
        self.refused([*self.RUN, "--resume", CASES / "A01-gqa-kv2/config.json"], "not a report")
        self.assertEqual(self.partial.read_bytes(), before)
        self.assertEqual([p.name for p in self.folder.iterdir()], [self.partial.name])


if __name__ == "__main__":
    main()
