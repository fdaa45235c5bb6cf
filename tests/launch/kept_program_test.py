"""What a run leaves on the disk when the disk, or the user, does something else than hoped for."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from program import command, environment, main, run

TINY = ["bench", "--model", "tiny", "--batch", "1,2", "--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1",
        "--iterations", "4"]
FILE_KB = 4  # less than a report, more than its points as CSV


def run_on_a_full_disk(arguments):
    """Runs where no file may grow beyond FILE_KB: each write fails there, as on a disk that is full."""
    limited = ["bash", "-c", f'trap "" XFSZ; ulimit -f {FILE_KB}; exec "$@"', "-", *command(arguments)]
    return subprocess.run(limited, capture_output=True, timeout=120, env=environment(), stdin=subprocess.DEVNULL)


def lines_with(stream, start):
    return [line for line in stream.decode().splitlines() if line.startswith(start)]


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.json = self.folder / "report.json"
        self.csv = self.folder / "points.csv"
        self.partial = pathlib.Path(f"{self.json}.partial")

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_a_forgotten_resume_costs_nothing(self):
        done = run([*TINY, "--json", self.json])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.json.rename(self.partial)
        before = self.partial.read_bytes()
        for ranks in (0, 2):
            done = run([*TINY, "--json", self.json, "--csv", self.csv], ranks)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(lines_with(done.stderr, "shardscope: error: ")), 1, done.stderr)
            self.assertIn(f"{self.partial} holds points of an earlier run, {self.json}, "
                          f"go on with --resume {self.partial}, or remove it".encode(), done.stderr)
            self.assertEqual(self.names(), ["report.json.partial"])
        done = run(["generate", "--model", "tiny", "--prompt-ids", "1,2", "--max-tokens", "2", "--json", self.json])
        self.assertEqual(done.returncode, 0, done.stderr)  # writes no .partial file
        self.assertEqual(self.partial.read_bytes(), before)
        done = run([*TINY, "--json", self.json, "--csv", self.csv, "--resume", self.partial])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names(), ["points.csv", "report.json"])

    def test_a_full_disk_costs_what_does_not_fit_it_and_nothing_else(self):
        done = run_on_a_full_disk([*TINY, "--json", self.json, "--csv", self.csv])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("TPOT", done.stdout.decode())
        self.assertEqual(len(self.csv.read_text().splitlines()), 3)
        self.assertEqual(self.names(), ["points.csv"])
        warnings = lines_with(done.stderr, "warning: points are not kept for now: ")
        self.assertEqual(len(warnings), 1, done.stderr)  # of at least three tries
        errors = lines_with(done.stderr, "shardscope: error: ")
        self.assertEqual(len(errors), 1, done.stderr)
        for line in (warnings[0], errors[0]):
            self.assertIn("cannot write the report: File too large", line)
            self.assertIn(str(self.json), line)

    def test_a_closed_standard_output_costs_no_file(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command([*TINY, "--json", self.json]), stdout=full, stderr=subprocess.PIPE, timeout=120,
                                  env=environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(lines_with(done.stderr, "shardscope: error: ")), 1, done.stderr)
        self.assertIn(b"standard output", done.stderr)
        self.assertTrue(json.loads(self.json.read_text())["complete"])
        self.assertEqual(self.names(), ["report.json"])

    def test_the_report_shows_what_ran_wherever_it_was_said(self):
        config = self.folder / "run.conf"
        config.write_text("iterations = 3\nbatch = 2  # instead of 1\nsamples = true\n")
        done = run(["bench", "--model", "tiny", "--prompt-tokens", "8", "--output-tokens", "6", "--config", config,
                    "--iterations", "4", "--warmup", "1", "--peak-tflops", "0.5", "--json", "-"])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        options = report["options"]
        self.assertEqual({name: options.get(name) for name in (
            "model", "batch", "iterations", "samples", "peak-tflops", "warmup", "timeout", "backend", "seed", "dry-run",
            "config", "help", "tp")},
            {"model": "tiny", "batch": "2", "iterations": 4, "samples": True, "peak-tflops": 0.5, "warmup": 1,
             "timeout": 60, "backend": "auto", "seed": "0", "dry-run": False, "config": None, "help": None, "tp": None})
        self.assertEqual([r["batch"] for r in report["results"]], [2])


if __name__ == "__main__":
    main()
