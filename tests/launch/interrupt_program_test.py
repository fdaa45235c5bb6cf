"""A measurement that is interrupted: its points are kept and named, nothing is left over, and it can go on."""
import json
import os
import pathlib
import signal
import tempfile
import time
import unittest

from program import Job, main, run

# Some seconds of work a point: long enough to be met in the middle, short enough to be done after all.
WORK = ["bench", "--model", "smollm2-135m", "--layers", "4", "--prompt-tokens", "8", "--output-tokens", "250",
        "--warmup", "1", "--iterations", "2", "--batch", "1,2"]


def error_lines(text):
    return [line for line in text.splitlines() if line.startswith("shardscope: error: ")]


class Interrupt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "report.json"
        self.partial = pathlib.Path(f"{self.file}.partial")

    def start(self, ranks, *more):
        """A job that has begun to load or to measure."""
        job = Job([*WORK, *more], ranks)
        self.addCleanup(job.close)
        end = time.monotonic() + 60
        while "loading shards" not in job.error_text() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        self.assertIsNone(job.process.poll(), job.error_text())
        return job

    def ended(self, job, *words):
        """The job's one line of error, after a quick end without a rank left."""
        self.assertNotEqual(job.wait(10), 0)
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

    def test_alone_it_keeps_what_there_is_and_goes_on_to_the_end(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # under nohup it stays ignored
            with self.subTest(signal=number.name):
                job = self.start(0, "--json", self.file)
                os.kill(job.process.pid, number)
                self.ended(job, f"interrupted by {number.name}, ", " of 2 points measured, ", f"--resume {self.partial}")
                self.assertEqual(job.process.returncode, 1)
                self.assertIn(f"interrupted by {number.name}", self.partial_report()["warnings"])
        done = run([*WORK, "--json", self.file, "--resume", self.partial])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(self.file.read_text())
        self.assertTrue(report["complete"])
        self.assertEqual([(r["batch"], r["status"]) for r in report["results"]], [(1, "ok"), (2, "ok")])
        self.assertFalse(self.partial.exists())

    def test_points_of_an_earlier_run_are_kept_and_shown(self):
        job = self.start(0, "--json", self.file)
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job)
        # Of the same run, but for the time it takes: a point as if it had been measured before.
        short = run([word if word != "250" else "4" for word in WORK] + ["--json", "-"])
        self.assertEqual(short.returncode, 0, short.stderr)
        point = {**json.loads(short.stdout)["results"][0], "output_tokens": 250}
        self.partial.write_text(json.dumps({**self.partial_report(), "results": [point]}))

        table = self.file.with_suffix(".csv")
        job = self.start(0, "--json", self.file, "--resume", self.partial, "--csv", table, "--progress", "always")
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job, "interrupted by SIGINT, 1 of 2 points measured, go on with --resume")
        text = job.error_text()
        self.assertIn("1 of 2 points are taken over", text)
        after_bars = text.split("\r\x1b[K")[-1]  # the last bar was taken away
        self.assertIn("batch 1, 8 + 250 tokens", after_bars)
        self.assertIn("shardscope: error: ", after_bars)
        results = self.partial_report()["results"]
        self.assertEqual((results[0]["batch"], results[0]["status"]), (1, "ok"))
        self.assertEqual(results[0]["tpot_ms"], point["tpot_ms"])
        self.assertIn(",ok,", pathlib.Path(f"{table}.partial").read_text().splitlines()[1])

    def test_without_a_file_it_says_that_nothing_was_kept(self):
        for ranks in (0, 2):
            job = self.start(ranks)
            os.kill(job.process.pid, signal.SIGINT)
            self.ended(job, "of 2 points measured", "nothing was kept: --json FILE keeps the points")
        job = self.start(0, "--csv", self.file)
        os.kill(job.process.pid, signal.SIGINT)
        self.ended(job, str(self.partial), "--json FILE")
        self.assertTrue(self.partial.exists())

    def test_a_launcher_that_is_interrupted(self):
        job = self.start(2, "--json", self.file)
        os.kill(job.process.pid, signal.SIGINT)  # mpirun sends SIGTERM to the ranks
        self.ended(job, "interrupted by SIG", " of 2 points measured, ", f"--resume {self.partial}")
        self.assertEqual([w for w in self.partial_report()["warnings"] if w.startswith("interrupted by SIG")][1:], [])
        done = run([*WORK, "--json", self.file, "--resume", self.partial], 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(self.file.read_text())["complete"])

    def test_rank_0_alone_is_told_to_end(self):
        job = self.start(2, "--json", self.file)
        os.kill(job.pid_of_rank(0), signal.SIGTERM)
        self.ended(job, "interrupted by SIGTERM", f"--resume {self.partial}")
        self.partial_report()

    def test_another_rank_that_is_told_to_end_says_so(self):
        job = self.start(3, "--json", self.file, "--tp", "2")
        os.kill(job.pid_of_rank(2), signal.SIGTERM)
        self.ended(job, "interrupted by SIGTERM, rank 2 on ")
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    main()
