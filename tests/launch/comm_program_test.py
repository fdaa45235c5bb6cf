"""shardscope comm: the sums of 1 to 4 ranks by size and way: table, report, CSV, refusals, interruption. No speeds."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import time

from program import Job, WithFolder, main, text

SIZES = [1024, 2048, 4096, 8192, 16384]
SHORT = ["--max-bytes", SIZES[-1], "--iterations", "30", "--warmup", "2"]
COLUMNS = ["size(B)", "count", "type", "algorithm", "time(us)", "algbw(GB/s)", "busbw(GB/s)", "#wrong", "p99", "wait",
           "transfer"]
ENDLESS = ["comm", "--max-bytes", "1024", "--iterations", "1000000", "--max-seconds", "1000"]
LIMIT_S = 60


def table_rows(table):
    """Dictionaries by column, of all blocks; the TP of the line above the columns, too."""
    rows, tp, inside = [], None, False
    for line in table.splitlines():
        words = line.split()
        if words == COLUMNS:
            inside = True
        elif inside and len(words) == len(COLUMNS):
            rows.append({"tp": tp, **dict(zip(COLUMNS, words))})
        else:
            inside = False
            if match := re.fullmatch(r"TP (\d+), fp32", line):
                tp = int(match[1])
    return rows


class CommRuns(WithFolder):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "report.json"

    def report(self, *arguments, ranks=0):
        return json.loads(self.ok(["comm", *arguments, "--json", "-"], ranks).stdout)

    def refused(self, arguments, *words, ranks=0):
        super().refused(["comm", *arguments], *words, ranks=ranks)


class Rows(CommRuns):
    def check_row(self, row):
        time_us = row["time_us"]
        self.assertEqual(time_us["n"], 30)
        self.assertEqual(row["wrong"], 0)
        self.assertEqual(row["count"] * 4, row["bytes"])
        self.assertGreater(time_us["p50"], 0)
        self.assertAlmostEqual(row["algbw_gb_per_s"], row["bytes"] / time_us["p50"] / 1e3)
        self.assertAlmostEqual(row["busbw_gb_per_s"], row["algbw_gb_per_s"] * 2 * (row["tp"] - 1) / row["tp"])
        self.assertGreaterEqual(row["wait_us"], 0)
        # A sample is a call: the slowest rank's is no shorter than the shortest.
        self.assertLessEqual(row["transfer_us"], time_us["max"])
        self.assertGreaterEqual(row["transfer_us"], 0)
        self.assertIs(row["graph"], False)
        self.assertEqual(row["kind"], "measured")

    def check_crossovers(self, report):
        """The first is the fastest of the smallest size; each later one is clearly faster where it begins."""
        for tp in {row["tp"] for row in report["rows"]}:
            changes = [c for c in report["crossovers"] if c["tp"] == tp]
            rows = {(r["bytes"], r["algorithm"]): r["time_us"] for r in report["rows"] if r["tp"] == tp}
            sizes = sorted({size for size, _ in rows})
            self.assertEqual(changes[0]["from_bytes"], sizes[0])
            self.assertEqual([c["from_bytes"] for c in changes], sorted({c["from_bytes"] for c in changes}))
            for before, change in zip([None, *changes], changes):
                size = change["from_bytes"]
                times = {way: time_us for (of, way), time_us in rows.items() if of == size}
                self.assertEqual(times[change["algorithm"]]["p50"], min(t["p50"] for t in times.values()))
                if before is not None:
                    self.assertLess(times[change["algorithm"]]["ci95"]["p50"][1],
                                    times[before["algorithm"]]["ci95"]["p50"][0])
            for size in sizes:  # nobody is clearly faster than the one that is said to be the fastest
                said = [c["algorithm"] for c in changes if c["from_bytes"] <= size][-1]
                low = rows[size, said]["ci95"]["p50"][0]
                for (of, _), time_us in rows.items():
                    if of == size:
                        self.assertGreaterEqual(time_us["ci95"]["p50"][1], low)

    def test_every_size_and_way_at_every_degree(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                report = self.report("--tp", f"1..{ranks}", *SHORT, ranks=ranks)
                self.assertEqual((report["schema"], report["complete"]), ("shardscope.comm/1", True))
                want = [(tp, size, way) for tp in range(1, ranks + 1) for size in SIZES
                        for way in (["none"] if tp == 1 else ["shm", "mpi"])]
                self.assertEqual([(r["tp"], r["bytes"], r["algorithm"]) for r in report["rows"]], want)
                for row in report["rows"]:
                    self.check_row(row)
                self.assertEqual(report["left_out"], [])
                self.check_crossovers(report)

    def test_all_ranks_by_default_and_alone_without_bandwidth_of_a_bus(self):
        self.assertEqual({row["tp"] for row in self.report(*SHORT, ranks=3)["rows"]}, {3})
        rows = self.report(*SHORT)["rows"]
        self.assertEqual({(row["tp"], row["algorithm"], row["busbw_gb_per_s"]) for row in rows}, {(1, "none", 0)})

    def test_named_ways_alone(self):
        for way in ("mpi", "shm"):
            report = self.report("--allreduce", way, *SHORT, ranks=2)
            self.assertEqual({row["algorithm"] for row in report["rows"]}, {way})
        report = self.report("--allreduce", "mpi", "--tp", "1,2", *SHORT, ranks=2)
        self.assertEqual([row["algorithm"] for row in report["rows"]], ["none"] * 5 + ["mpi"] * 5)

    def test_sizes(self):
        done = self.ok(["comm", "--min-bytes", "1001", "--max-bytes", "2100", "--iterations", "5", "--json", "-"])
        self.assertIn("note: 1001 bytes are no whole number of fp32 elements: sizes begin with 1004", text(done.stderr))
        report = json.loads(done.stdout)
        self.assertEqual([row["bytes"] for row in report["rows"]], [1004, 2008])
        self.assertEqual(len(report["warnings"]), 1)
        self.assertEqual([r["bytes"] for r in self.report("--min-bytes", "1", "--max-bytes", "1", "--iterations", "5",
                                                          ranks=2)["rows"]], [4, 4])

    def test_until_the_noise_is_low_or_the_time_is_over(self):
        row = self.report("--min-bytes", "1024", "--max-bytes", "1024", "--max-seconds", "0.3")["rows"][0]
        self.assertTrue(row["time_us"]["n"] >= 400 or row["unmet"])
        row = self.report("--max-bytes", "1024", "--iterations", "1000000", "--max-seconds", "0.1", ranks=2)["rows"][0]
        self.assertIn("0.1 s ended it with", row["unmet"])


class Output(CommRuns):
    def test_the_table(self):
        report_file, csv_file = self.folder / "r.json", self.folder / "r.csv"
        done = self.ok(["comm", "--tp", "1,2", *SHORT, "--json", report_file, "--csv", csv_file], 2)
        table = text(done.stdout)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["r.csv", "r.json"])
        report = json.loads(report_file.read_text())
        rows = table_rows(table)
        self.assertEqual([(r["tp"], int(r["size(B)"]), int(r["count"]), r["type"], r["algorithm"]) for r in rows],
                         [(r["tp"], r["bytes"], r["count"], "fp32", r["algorithm"]) for r in report["rows"]])
        for shown, kept in zip(rows, report["rows"]):
            self.assertEqual(shown["#wrong"], "0")
            self.assertEqual(shown["p99"], "n/a")  # of 30 samples
            for column, value in (("time(us)", kept["time_us"]["p50"]), ("algbw(GB/s)", kept["algbw_gb_per_s"]),
                                  ("busbw(GB/s)", kept["busbw_gb_per_s"]), ("wait", kept["wait_us"]),
                                  ("transfer", kept["transfer_us"])):
                self.assertAlmostEqual(float(shown[column]), value, delta=max(0.0006, value * 0.006))
        for change in (c for c in report["crossovers"] if c["tp"] == 2):
            self.assertRegex(table, rf"TP 2, fp32: .*{change['algorithm']} .*from {change['from_bytes']} B on")
        self.assertLessEqual(max(map(len, table.splitlines())), 100)
        lines = list(csv.DictReader(io.StringIO(csv_file.read_text())))
        self.assertEqual([(int(r["tp"]), int(r["bytes"]), r["algorithm"]) for r in lines],
                         [(r["tp"], r["bytes"], r["algorithm"]) for r in report["rows"]])
        self.assertEqual([float(r["time_us_p50"]) for r in lines], [r["time_us"]["p50"] for r in report["rows"]])
        self.assertIn("tp 2, fp32, 4096 B: shm ", text(done.stderr))

    def test_csv_alone_on_standard_output(self):
        done = self.ok(["comm", *SHORT, "--csv", "-"], 2)
        lines = list(csv.DictReader(io.StringIO(text(done.stdout))))
        self.assertEqual(len(lines), 10)
        self.assertEqual({line["wrong"] for line in lines}, {"0"})
        self.assertIn("algbw(GB/s)", text(done.stderr))

    def test_a_quiet_run(self):
        done = self.ok(["comm", *SHORT, "--progress", "never"])
        self.assertEqual(done.stderr, b"")
        self.assertIn("time(us)", text(done.stdout))

    def test_a_configuration_file(self):
        file = self.folder / "comm.conf"
        file.write_text("min-bytes = 4096\nmax-bytes = 8192\niterations = 5\nallreduce = shm\n")
        rows = self.report("--config", file, "--max-bytes", "4096", ranks=2)["rows"]
        self.assertEqual([(row["bytes"], row["algorithm"], row["time_us"]["n"]) for row in rows], [(4096, "shm", 5)])
        file.write_text("\nmin-bytes = 0\n")
        self.refused(["--config", file], f"min-bytes in {file}:2")
        file.write_text("iterations = 5\n")
        self.refused(["--config", file, "--json", file], file, "--config reads")

    def test_help_has_an_example(self):
        help_text = text(self.ok(["comm", "--help"]).stdout)
        self.assertIn("shardscope comm ", help_text.split("Example:")[1])
        for option in ("--min-bytes", "--max-bytes", "--allreduce", "--dtype", "--graphs", "--tp"):
            self.assertIn(option, help_text)
        self.assertIn("comm ", text(self.ok(["--help"]).stdout))


class Refusals(CommRuns):
    def test_one_line_each(self):
        for arguments, *words in ((["--min-bytes", "0"], "--min-bytes", "use 1 to"),
                                  (["--min-bytes", "-4"], "-4 is out of range"),
                                  (["--max-bytes", "many"], "'many'", "--max-bytes"),
                                  (["--min-bytes", "8", "--max-bytes", "4"], "more than --max-bytes 4"),
                                  (["--allreduce", "ring"], "'ring'", "nccl-symmetric, one-shot, two-shot, mpi, shm"),
                                  (["--allreduce", "one-shot", "--backend", "cpu"], "--allreduce one-shot", "mpi or shm"),
                                  (["--dtype", "fp16", "--backend", "cpu"], "fp16", "--dtype"),
                                  (["--graphs", "on", "--backend", "cpu"], "--graphs on"),
                                  (["--tp", "3"], "--tp 3"),
                                  (["--json", self.folder / "none/r.json"], "none/r.json"),
                                  (["--json", "-", "--csv", "-"], "--json -"),
                                  (["--model", "tiny"], "unknown option --model")):
            with self.subTest(arguments=arguments):
                self.refused(arguments, *words)
        self.refused(["--allreduce", "nccl", "--backend", "cpu"], "--allreduce nccl", ranks=2)

    def test_rows_of_an_earlier_run_are_kept(self):
        partial = pathlib.Path(f"{self.file}.partial")
        partial.write_text("rows")
        self.refused(["--json", self.file], partial, "earlier run", ranks=2)
        self.assertEqual(partial.read_text(), "rows")


class Interrupt(CommRuns):
    def start(self, ranks, *more):
        """A job that measures without an end of its own."""
        job = Job([*ENDLESS, "--progress", "always", *more], ranks)
        self.addCleanup(job.close)
        end = time.monotonic() + LIMIT_S
        while "samples" not in job.error_text():  # in a bar
            self.assertIsNone(job.process.poll(), job.error_text())
            self.assertLess(time.monotonic(), end, job.error_text())
            time.sleep(0.02)
        return job

    def ended(self, job):
        self.assertNotEqual(job.wait(LIMIT_S), 0)
        self.assertEqual(job.left_over(), {})
        lines = re.findall(r"shardscope: error: [^\n\x1b]*", job.error_text())
        self.assertEqual(len(lines), 1, job.error_text())
        return lines[0]

    def test_rows_so_far_are_kept_and_marked(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                partial = pathlib.Path(f"{self.file}.partial")
                # Each size takes its four seconds: there is time between the two.
                job = Job(["comm", "--min-bytes", "65536", "--max-bytes", "131072", "--allreduce", "shm", "--iterations",
                           "1000000", "--max-seconds", "4", "--json", self.file], ranks)
                self.addCleanup(job.close)
                end = time.monotonic() + LIMIT_S
                while not partial.exists():
                    self.assertIsNone(job.process.poll(), job.error_text())
                    self.assertLess(time.monotonic(), end, job.error_text())
                    time.sleep(0.02)
                os.kill(job.process.pid, signal.SIGINT)
                line = self.ended(job)
                self.assertIn("1 of 2 sums measured", line)
                self.assertIn(str(partial), line)
                report = json.loads(partial.read_text())
                self.assertFalse(report["complete"])
                self.assertEqual({row["bytes"] for row in report["rows"]}, {65536})
                self.assertTrue(report["warnings"][-1].startswith("interrupted by SIG"))
                self.assertFalse(self.file.exists())
                self.assertIn("algbw(GB/s)", job.error_text())
                partial.unlink()

    def test_before_the_first_row_there_is_nothing_to_keep(self):
        job = self.start(2, "--json", self.file)
        os.kill(job.process.pid, signal.SIGTERM)
        self.assertIn("nothing was measured yet", self.ended(job))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_rank_that_is_killed_ends_the_others_and_is_named(self):
        job = self.start(2, "--timeout", "10")
        os.kill(job.pid_of_rank(1), signal.SIGKILL)
        self.assertNotEqual(job.wait(LIMIT_S), 0)
        self.assertEqual(job.left_over(), {})


if __name__ == "__main__":
    main()
