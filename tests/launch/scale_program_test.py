"""shardscope scale and --dry-run: table, report, and the figures' consistency."""
import json
import pathlib
import tempfile
import unittest

from program import CASES, DATA, main, run

SHORT = ["--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1", "--iterations", "3"]


def report_of(done):
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode(errors="replace"))
    return json.loads(done.stdout)


class Scale(unittest.TestCase):
    def test_eight_degrees_in_one_launch(self):
        done = run(["scale", "--model", "tiny", "--tp", "1..8", *SHORT, "--json", "-"], 8)
        report = report_of(done)
        self.assertEqual(report["schema"], "shardscope.report/1")
        self.assertTrue(report["complete"])
        self.assertEqual([r["tp"] for r in report["results"]], list(range(1, 9)))
        for row in report["results"]:
            with self.subTest(tp=row["tp"]):
                self.assertEqual(row["status"], "ok")
                self.assertEqual(len(row["ranks"]), row["tp"])
                self.assertEqual(row["tpot_ms"]["n"], 3)
                self.assertGreater(row["tpot_ms"]["p50"], 0)
                self.assertAlmostEqual(row["efficiency"], row["speedup"] / row["tp"])
                for rank in row["ranks"]:
                    self.assertGreater(rank["achievable_gb_per_s"], 0)
                    self.assertGreater(rank["bytes_per_step"]["weights"], 0)
        self.assertEqual(len(report["environment"]["ranks"]), 8)
        self.assertIn(b"tok", done.stderr)  # the table went to standard error

    def test_degrees_and_protocol_by_default(self):
        report = report_of(run(["scale", "--model", "tiny", *SHORT, "--json", "-"], 3))
        self.assertEqual([row["tp"] for row in report["results"]], [1, 2, 3])
        self.assertEqual(report["command"], "scale")
        protocol = report["protocol"]
        self.assertEqual((protocol["least_generations"], protocol["noise_bound"], protocol["max_seconds"]), (12, 0.02, 30))
        self.assertIn("shardscope scale ", run(["scale", "--help"]).stdout.decode().split("Example:")[1])

    def test_advice_where_the_figures_bear_it(self):
        done = run(["scale", "--model", "tiny", "--prompt-tokens", "8", "--output-tokens", "3", "--warmup", "1", "--iterations",
                    "24", "--threads", "1", "--tp", "1,2", "--json", "-"], 2)
        report = report_of(done)
        shared = any(row["oversubscribed"] or row["status"] != "ok" for row in report["results"])
        advice = report["advice"]
        if shared:
            self.assertEqual(advice, [])
            return
        self.assertRegex(advice[0], r"^At batch 1 with 8 \+ 3 tokens, TP=2 is ")
        for sentence in advice[1:]:  # what the loss is made of, if the figures show it; one batch says nothing of replicas
            self.assertRegex(sentence, r"^(Of the [0-9.]+ ms that TP=2 loses against ideal \(TP=1 as base\) at batch 1 "
                                       r"with 8 \+ 3 tokens, |Where most is lost to .* \(TP=2 at batch 1\): )")
        self.assertLessEqual(len(advice), 3)
        shown = " ".join(done.stderr.decode().split())
        for sentence in advice:
            self.assertIn(sentence.split(",")[0], shown)

    def test_weights_of_all_ranks_add_up(self):
        report = report_of(run(["scale", "--model", DATA / "reference/tiny/llama-gqa-9-3-tied", "--tp", "1,2", *SHORT, "--json", "-"], 2))
        alone, pair = report["results"]
        unique = sum(r["bytes_per_step"]["weights"] + r["bytes_per_step"]["kv_read"] - r["bytes_per_step"]["replicated"]
                     for r in pair["ranks"])
        whole = alone["ranks"][0]["bytes_per_step"]
        self.assertAlmostEqual(unique, whole["weights"] + whole["kv_read"], delta=1)

    def test_lists_of_batches_and_lengths(self):
        report = report_of(run(["scale", "--model", "tiny", "--batch", "1,3", "--prompt-tokens", "4,8", "--output-tokens", "1,4",
                                "--warmup", "1", "--iterations", "1", "--json", "-"]))
        self.assertEqual(len(report["results"]), 8)
        for row in report["results"]:
            self.assertEqual(row["tpot_ms"]["p50"] is None, row["output_tokens"] == 1)

    def test_the_report_file_and_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "report.json"
            done = run(["scale", "--model", "tiny", "--tp", "1,2", *SHORT, "--json", name], 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(json.loads(name.read_text())["complete"])
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["report.json"])
            lines = done.stdout.decode().splitlines()
            header = next(i for i, line in enumerate(lines) if line.startswith("TP"))
            self.assertTrue(lines[header + 2].startswith("1 "))
            self.assertTrue(lines[header + 3].startswith("2 "))
            self.assertTrue(all(len(line) <= 100 for line in lines[header:header + 4]))

    def test_a_real_prompt_of_exact_length(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("the quick brown fox")
            text.flush()
            report = report_of(run(["scale", "--model", DATA / "reference/tiny/llama-mha", "--prompt-file", text.name, *SHORT,
                                    "--json", "-"], 2))
        self.assertEqual(report["results"][0]["prompt_tokens"], 8)

    def test_peak_bandwidth_gives_the_other_mbus(self):
        report = report_of(run(["scale", "--model", "smollm2-135m", "--layers", "2", "--peak-bandwidth", "10000", *SHORT,
                                "--json", "-"]))
        row = report["results"][0]
        self.assertEqual(row["mbu"] is None, bool(row["cache_resident"]))
        if not row["cache_resident"]:
            tpot_s = row["tpot_ms"]["p50"] / 1e3
            read = row["ranks"][0]["bytes_per_step"]
            moved = read["weights"] + read["kv_read"] + read["kv_write"]
            self.assertAlmostEqual(row["mbu"]["mean"], moved / tpot_s / 10000e9, places=6)
            self.assertAlmostEqual(row["mbu_useful"]["mean"], row["mbu"]["mean"])  # one rank: nothing is replicated
        self.assertTrue(report["model"]["layers_cut"])

    def test_placements_by_caches_and_numa_nodes(self):
        done = run(["scale", "--model", "tiny", "--placement", "linear,best,worst", "--tp", "1,2", *SHORT, "--threads", "1",
                    "--json", "-"], 3)
        report = report_of(done)
        rows = [(r["tp"], r["placement"], r["placement_also"], r["devices"], r["status"]) for r in report["results"]]
        self.assertEqual(rows[0], (1, "linear", ["best", "worst"], [0], "ok"))
        covered = sorted(name for row in rows[1:] for name in (row[1], *row[2]))
        self.assertEqual(covered, ["best", "linear", "worst"])  # on one cache a single row has all
        self.assertTrue(all(row[4] == "ok" for row in rows))
        if len(rows) == 2:
            self.assertEqual(rows[1][3], [0, 1])
            self.assertIn("tp 2: linear, best and worst are the same cores of ranks (0-1)", "\n".join(report["warnings"]))
        whole = report_of(run(["bench", "--model", "tiny", "--placement", "worst", *SHORT, "--json", "-"], 2))
        self.assertEqual([(r["placement"], r["devices"]) for r in whole["results"]], [("worst", [0, 1])])
        self.assertNotIn("measured once", "\n".join(whole["warnings"]))

    def test_the_topology_is_in_the_report(self):
        topology = report_of(run(["scale", "--model", "tiny", *SHORT, "--json", "-"]))["topology"]
        self.assertEqual(topology["schema"], "shardscope.topology/1")
        self.assertEqual(topology["source"]["kind"], "probe")

    def test_dry_run_plans_any_degree_in_one_process(self):
        for name in ("llama2-13b", "llama-30b-52-heads", "qwen2-7b-28-heads", "smol-135m-9-heads", "mqa-1-kv-head"):
            done = run(["scale", "--model", CASES / "A02-plan-only" / f"{name}.config.json", "--dry-run", "--tp", "1..8",
                        "--json", "-"])
            document = report_of(done)
            self.assertEqual(document["schema"], "shardscope.shards/1")
            model = document["model"]
            for plan in document["plans"]:
                with self.subTest(name=name, tp=plan["tp"]):
                    ranks = plan["ranks"]
                    self.assertEqual(len(ranks), plan["tp"])
                    for key, total in (("query_heads", model["query_heads"]), ("ffn", model["ffn"]), ("vocab", model["vocab"])):
                        covered = sorted(i for r in ranks for i in range(*r[key]))
                        self.assertEqual(covered, list(range(total)))
                    group = model["query_heads"] // model["kv_heads"]
                    for rank in ranks:
                        for head in range(*rank["query_heads"]):
                            self.assertIn(head // group, range(*rank["kv_heads"]))

    def test_dry_run_of_a_named_model_has_memory_and_bytes(self):
        document = report_of(run(["generate", "--model", "llama2-70b", "--dry-run", "--tp", "8", "--json", "-"]))
        total = sum(r["memory_bytes"]["weights"] for r in document["plans"][0]["ranks"])
        self.assertAlmostEqual(total / 1e9, 137.95, delta=0.5)  # 68.98e9 parameters in bf16


if __name__ == "__main__":
    main()
