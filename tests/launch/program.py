"""Starts the built program as a user would, alone or under mpirun, and leaves no process behind.

Each test file is called with the program and the data folder, and optionally names of tests:
FILE PROGRAM DATA [CLASS.test…].
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

PROGRAM = sys.argv[1]
DATA = pathlib.Path(sys.argv[2])
CASES = DATA / "cases"
LIMIT_S = 120
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def command(arguments, ranks=0, mpirun_options=()):
    launcher = ["mpirun", "-q", *mpirun_options, "-np", str(ranks)] if ranks else []
    return [*launcher, PROGRAM, *map(str, arguments)]


def environment(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMIX_", "OMPI_COMM_WORLD"))}
    return {**env, **MPI, **(extra or {})}


def run(arguments, ranks=0, stdin=None, env=None, timeout=LIMIT_S, mpirun_options=()):
    """Runs to the end; standard output and error as bytes."""
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command(arguments, ranks, mpirun_options), capture_output=True, timeout=timeout,
                          env=environment(env), **given)


def generate(model, *arguments, ranks=0, **options):
    """The document of `generate --json -`."""
    done = run(["generate", "--model", model, *arguments, "--json", "-"], ranks, **options)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return json.loads(done.stdout)


def processes_with(tag):
    """Pids whose environment carries CASE_TAG=tag."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"CASE_TAG=" + tag.encode() in variables:
            names = dict(v.split(b"=", 1) for v in variables if b"=" in v)
            found[int(path.parent.name)] = names.get(b"OMPI_COMM_WORLD_RANK", b"").decode()
    return found


class Job:
    """A run in the background, with its processes findable by rank."""

    def __init__(self, arguments, ranks, env=None):
        self.tag = uuid.uuid4().hex
        self.folder = tempfile.mkdtemp(prefix="shardscope-job-")
        self.errors = open(os.path.join(self.folder, "stderr"), "w+b")
        self.process = subprocess.Popen(command(arguments, ranks), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.errors, env=environment({**(env or {}), "CASE_TAG": self.tag}),
                                        start_new_session=True)

    def pid_of_rank(self, rank, within_s=20):
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            for pid, of in processes_with(self.tag).items():
                if of == str(rank):
                    return pid
            time.sleep(0.05)
        raise AssertionError(f"rank {rank} never started: {self.error_text()}")

    def error_text(self):
        self.errors.flush()
        return pathlib.Path(self.errors.name).read_text(errors="replace")

    def wait(self, limit_s):
        """Exit status, or an AssertionError when it does not end in time."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s} s: {self.error_text()}") from None

    def left_over(self):
        end = time.monotonic() + 5
        while processes_with(self.tag) and time.monotonic() < end:
            time.sleep(0.1)
        return processes_with(self.tag)

    def close(self):
        for pid in processes_with(self.tag):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)
        self.errors.close()
        shutil.rmtree(self.folder)


def text(stream):
    return stream.decode(errors="replace")


class WithFolder(unittest.TestCase):
    """Tests with a folder of their own, of runs that succeed or are refused in one line."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ok(self, arguments, ranks=0, **options):
        done = run(arguments, ranks, **options)
        self.assertEqual(done.returncode, 0, text(done.stderr))
        return done

    def refused(self, arguments, *words, ranks=0):
        done = run(arguments, ranks)
        lines = [line for line in text(done.stderr).splitlines() if line.startswith("shardscope: error: ")]
        self.assertEqual(done.returncode, 2, text(done.stderr))
        self.assertEqual(len(lines), 1, text(done.stderr))
        for word in words:
            self.assertIn(str(word), lines[0])
        self.assertEqual(done.stdout, b"")


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
