"""shardscope scale --replicas: groups at once beside the lone group."""
import json
import pathlib
import tempfile
import unittest

from program import main, run

SHORT = ["--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1", "--iterations", "4"]


def report_of(done):
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode(errors="replace"))
    return json.loads(done.stdout)


class Replicas(unittest.TestCase):
    def test_rows_of_their_own(self):
        done = run(["scale", "--model", "tiny", "--tp", "1,2,3", "--replicas", *SHORT, "--json", "-"], 5)
        report = report_of(done)
        rows = [(row["tp"], row["replicas"]) for row in report["results"]]
        self.assertEqual(rows, [(1, 1), (1, 5), (2, 1), (2, 2), (3, 1)])
        for row in report["results"]:
            with self.subTest(tp=row["tp"], replicas=row["replicas"]):
                self.assertEqual((row["status"], row["generations"]), ("ok", 4))
                self.assertEqual(len(row["ranks"]), row["tp"])
                lone = row["replicas"] == 1
                self.assertEqual(row["speedup"] is None, not lone)
                self.assertEqual(row["attribution"] is None, not lone)
                seconds = row["latency_ms"]["mean"] * 1e-3  # of the slowest replica
                self.assertAlmostEqual(row["throughput_tokens_per_s"], row["replicas"] * 6 / seconds,
                                       delta=1e-6 * row["throughput_tokens_per_s"])
        self.assertIn("tp 2 x 2 replicas, batch 1, 8 + 6 tokens: TTFT", done.stderr.decode())
        header = next(line for line in done.stderr.decode().splitlines() if line.startswith("TP"))
        self.assertIn("repl.", header)

    def test_the_csv_and_an_earlier_run(self):
        with tempfile.TemporaryDirectory() as folder:
            name, csv = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "points.csv"
            arguments = ["scale", "--model", "tiny", "--tp", "1", *SHORT, "--threads", "1"]
            self.assertEqual(run([*arguments, "--json", name], 2).returncode, 0)
            report = report_of(run([*arguments, "--replicas", "--resume", name, "--csv", csv, "--json", "-"], 2))
            lines = csv.read_text().splitlines()
        self.assertEqual([row["replicas"] for row in report["results"]], [1, 2])
        self.assertEqual(["resumed" in "".join(row["verdicts"]) for row in report["results"]], [True, False])
        column = lines[0].split(",").index("replicas")
        self.assertEqual([line.split(",")[column] for line in lines[1:]], ["1", "2"])

    def test_refusals(self):
        for arguments, ranks, word in (
                (["--replicas", "--tp", "2"], 3, "at least 4 ranks"),
                (["--replicas", "--placement", "best", "--tp", "1"], 2, "--placement"),
                (["--replicas", "--rehearse", "2"], 0, "--rehearse, --replicas")):
            with self.subTest(word=word):
                done = run(["scale", "--model", "tiny", *arguments], ranks)
                self.assertEqual(done.returncode, 2)
                self.assertIn(word, done.stderr.decode())


if __name__ == "__main__":
    main()
