"""A measurement that is interrupted: its points are kept and named, nothing is left over, and it can go on."""
import json
import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

from program import Job, main, run

MODEL = ["bench", "--model", "tiny", "--batch", "1,2", "--warmup", "1", "--prompt-tokens", "8"]
SHORT = [*MODEL, "--output-tokens", "4", "--iterations", "2"]
# Whatever the machine, this does not end by itself.
ENDLESS = [*MODEL, "--output-tokens", "250", "--iterations", "1000000", "--max-seconds", "1000"]
LIMIT_S = 60


def error_lines(text):
    """Also where one stands behind a bar."""
    return re.findall(r"shardscope: error: [^\n\x1b]*", text)


def short_report(ranks, made={}):
    """Of SHORT, measured once for all tests."""
    if ranks not in made:
        done = run([*SHORT, "--json", "-"], ranks)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode(errors="replace"))
        made[ranks] = json.loads(done.stdout)
    return made[ranks]


def of_run(report, output_tokens, iterations, max_seconds):
    """The same report as if a run with other options had left it."""
    report = json.loads(json.dumps(report))
    report["protocol"].update(iterations=iterations, max_seconds=max_seconds)
    for point in [*report["workload"]["points"], *report["results"]]:
        point["output_tokens"] = output_tokens
    return report


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16) >> (number - 1) & 1)


class Interrupt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "report.json"
        self.partial = pathlib.Path(f"{self.file}.partial")

    def until(self, holds, job):
        end = time.monotonic() + LIMIT_S
        while not holds():
            self.assertIsNone(job.process.poll(), job.error_text())
            self.assertLess(time.monotonic(), end, job.error_text())
            time.sleep(0.02)

    def start(self, ranks, *more):
        """A job that has begun to generate."""
        job = Job([*ENDLESS, "--progress", "always", *more], ranks)
        self.addCleanup(job.close)
        self.until(lambda: "8 + 250: " in job.error_text(), job)  # in a bar
        return job

    def start_with_a_point(self, ranks, *more):
        """A job that goes on with the first of two points measured. Returns that point, too."""
        report = of_run(short_report(ranks), 250, 1000000, 1000)
        report.update(complete=False, results=report["results"][:1])
        self.partial.write_text(json.dumps(report))
        return self.start(ranks, "--resume", self.partial, *more), report["results"][0]

    def ended(self, job, *words):
        """The job's one line of error, after an end in time without a rank left."""
        self.assertNotEqual(job.wait(LIMIT_S), 0)
        self.assertEqual(job.left_over(), {})
        lines = error_lines(job.error_text())
        self.assertEqual(len(lines), 1, job.error_text())
        for word in words:
            self.assertIn(word, lines[0])
        return lines[0]

    def partial_report(self):
        report = json.loads(self.partial.read_text())
        self.assertFalse(report["complete"])
        self.assertFalse(self.file.exists())
        return report

    def goes_on_to_the_end(self, ranks):
        """What was kept is enough for a run that does end."""
        kept = of_run(self.partial_report(), 4, 2, short_report(ranks)["protocol"]["max_seconds"])
        self.partial.write_text(json.dumps(kept))
        done = run([*SHORT, "--json", self.file, "--resume", self.partial], ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(self.file.read_text())
        self.assertTrue(report["complete"])
        self.assertEqual([(r["batch"], r["status"]) for r in report["results"]], [(1, "ok"), (2, "ok")])
        self.assertEqual(report["results"][0]["tpot_ms"], kept["results"][0]["tpot_ms"])
        self.assertFalse(self.partial.exists())

    def test_before_the_first_point_there_is_nothing_to_keep(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # under nohup it stays ignored
            with self.subTest(signal=number.name):
                job = self.start(0, "--json", self.file, "--csv", self.folder / "points.csv")
                os.kill(job.process.pid, number)
                line = self.ended(job)
                self.assertTrue(line.endswith(f"interrupted by {number.name}, nothing was measured yet"), line)
                self.assertEqual(job.process.returncode, 1)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_points_are_kept_and_shown_and_it_can_go_on(self):
        table = self.file.with_suffix(".csv")
        job, point = self.start_with_a_point(0, "--json", self.file, "--csv", table)
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job, f"interrupted by SIGINT, 1 of 2 points measured, go on with --resume {self.partial}")
        self.assertEqual(job.process.returncode, 1)
        text = job.error_text()
        self.assertIn("1 of 2 points are taken over", text)
        after_bars = text.split("\x1b[K")[-1]  # the last bar was taken away
        self.assertIn("batch 1, 8 + 250 tokens", after_bars)
        self.assertIn("shardscope: error: ", after_bars)
        report = self.partial_report()
        self.assertIn("interrupted by SIGINT", report["warnings"])
        self.assertEqual([(r["batch"], r["status"]) for r in report["results"]], [(1, "ok")])
        self.assertEqual(report["results"][0]["tpot_ms"], point["tpot_ms"])
        self.assertIn(",ok,", pathlib.Path(f"{table}.partial").read_text().splitlines()[1])
        self.goes_on_to_the_end(0)

    def test_without_a_json_file_it_says_what_is_lost(self):
        job, _ = self.start_with_a_point(0)
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job, "1 of 2 points measured", "nothing was kept: --json FILE keeps the points")
        table = self.folder / "points.csv"
        job, _ = self.start_with_a_point(0, "--csv", table)
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job, f"{table}.partial", "--json FILE")
        self.assertTrue(pathlib.Path(f"{table}.partial").exists())
        self.assertTrue(self.partial.exists())  # which was read alone

    def test_a_launcher_that_is_interrupted(self):
        job, _ = self.start_with_a_point(2, "--json", self.file)
        os.kill(job.process.pid, signal.SIGINT)  # mpirun sends SIGTERM to the ranks
        self.ended(job, "interrupted by SIG", "1 of 2 points measured, ", f"--resume {self.partial}")
        self.assertEqual([w for w in self.partial_report()["warnings"] if w.startswith("interrupted by SIG")][1:], [])
        self.goes_on_to_the_end(2)

    def test_rank_0_alone_is_told_to_end(self):
        job, _ = self.start_with_a_point(2, "--json", self.file)
        os.kill(job.pid_of_rank(0), signal.SIGTERM)
        self.ended(job, "interrupted by SIGTERM", f"--resume {self.partial}")
        self.partial_report()

    def test_another_rank_that_is_told_to_end_says_so(self):
        job = self.start(3, "--json", self.file, "--tp", "2")
        pid = job.pid_of_rank(2)
        self.until(lambda: catches(pid, signal.SIGTERM), job)
        os.kill(pid, signal.SIGTERM)
        self.ended(job, "interrupted by SIGTERM, rank 2 on ")
        self.assertFalse(self.file.exists())

    def test_a_rank_that_stops_costs_no_points(self):
        job, _ = self.start_with_a_point(2, "--json", self.file, "--timeout", "2")
        os.kill(job.pid_of_rank(1), signal.SIGSTOP)
        self.ended(job, "rank 1")
        kept = f"1 of 2 points are kept in {self.partial}; go on with --resume {self.partial}\n"
        self.assertRegex(job.error_text(), f"{re.escape(kept)}(?s:.)*shardscope: error: ")
        self.goes_on_to_the_end(2)


if __name__ == "__main__":
    main()
