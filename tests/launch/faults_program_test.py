"""Ranks that die or stop: the job ends, named, and leaves nothing behind."""
import os
import signal
import time
import unittest

from program import Job, main

# Long enough to be in the middle of decoding when the fault comes.
LONG = ["generate", "--model", "smollm2-135m", "--layers", "4", "--prompt-ids", "1,2,3", "--ignore-eos", "--max-tokens", "8000"]


class Faults(unittest.TestCase):
    def start(self, ranks, *more):
        job = Job([*LONG, *more], ranks)
        self.addCleanup(job.close)
        pids = [job.pid_of_rank(rank) for rank in range(ranks)]
        end = time.monotonic() + 60
        while "loading weights" not in job.error_text() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.5)
        self.assertIsNone(job.process.poll(), job.error_text())
        return job, pids

    def test_a_killed_rank_ends_the_job(self):
        for ranks, victim in ((2, 1), (2, 0), (3, 2)):
            with self.subTest(ranks=ranks, victim=victim):
                job, pids = self.start(ranks)
                os.kill(pids[victim], signal.SIGKILL)
                self.assertNotEqual(job.wait(20), 0)
                self.assertRegex(job.error_text(), rf"rank {victim}\b")  # by us or by the launcher
                self.assertEqual(job.left_over(), {})

    def test_a_stopped_rank_is_named_within_the_timeout(self):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                job, pids = self.start(2, "--timeout", "3")
                os.kill(pids[victim], signal.SIGSTOP)
                self.assertNotEqual(job.wait(30), 0)
                text = job.error_text()
                lines = [line for line in text.splitlines() if line.startswith("shardscope: error: ")]
                self.assertEqual(len(lines), 1, text)
                self.assertIn(f"rank {victim}", lines[0])
                self.assertIn("decode", lines[0])
                self.assertEqual(job.left_over(), {})

    def test_a_stopped_idle_rank_is_found_while_the_others_work(self):
        job, pids = self.start(3, "--tp", "2", "--timeout", "3")
        os.kill(pids[2], signal.SIGSTOP)
        self.assertNotEqual(job.wait(30), 0)
        self.assertRegex(job.error_text(), r"shardscope: error: rank 2 made no progress for 3 s.*idle")
        self.assertEqual(job.left_over(), {})

    def test_an_interrupted_job_leaves_nothing(self):
        job, _ = self.start(2)
        os.kill(job.process.pid, signal.SIGINT)
        self.assertNotEqual(job.wait(20), 0)
        self.assertEqual(job.left_over(), {})

    def test_a_long_run_is_no_stuck_rank(self):
        job, _ = self.start(3, "--tp", "2", "--timeout", "1")  # rank 2 sleeps all the time
        time.sleep(3)
        self.assertIsNone(job.process.poll(), job.error_text())


if __name__ == "__main__":
    main()
