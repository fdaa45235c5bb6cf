#!/usr/bin/env python3
"""Runs test programs whose cases start processes, to their end and killed in the middle, and looks what is left behind:
no process that came from them, nothing in their temporary folder, no file in /dev/shm that nobody uses.

    leftovers_test.py PROGRAM…
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SHARED_MEMORY = pathlib.Path("/dev/shm")
PATIENCE_S = 10  # for processes whose parent was killed: the kernel ends them, at once but not in no time


def processes_with(token):
    """Processes whose environment holds the token: what the program started, however it was orphaned."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if token in (folder / "environ").read_bytes() and "\nState:\tZ" not in (folder / "status").read_text():
                found.append(f"process {folder.name}: {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:
            pass  # it has ended, or is none of ours
    return found


def shared_files():
    """Our user's files in /dev/shm."""
    found = set()
    for path in SHARED_MEMORY.rglob("*"):
        try:
            if path.stat().st_uid == os.getuid() and path.is_file():
                found.add(str(path))
        except OSError:
            pass  # it has gone
    return found


def unused_shared_files(before):
    """Files of ours in /dev/shm that are new and that no process has open or mapped."""
    new = shared_files() - before
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            used = (folder / "maps").read_text() + "\n".join(os.readlink(link) for link in (folder / "fd").iterdir())
        except OSError:
            continue
        new -= {path for path in new if path in used}
    return sorted(f"file {path}" for path in new)


def run(program, kill_after_s):
    """What is left after one run; None: the program failed by itself."""
    before = shared_files()
    token = f"shardscope-leftovers-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder, "SHARDSCOPE_LEFTOVERS": token}
        child = subprocess.Popen([program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = child.communicate(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            output, _ = child.communicate()
        if kill_after_s is None and child.returncode != 0:
            print(output.decode(errors="replace"))
            return None
        end = time.monotonic() + PATIENCE_S
        while (left := processes_with(token.encode())) and time.monotonic() < end:
            time.sleep(0.05)
        left += [f"file {path} in the temporary folder" for path in pathlib.Path(folder).rglob("*")]
    return left + unused_shared_files(before)


def finds_what_is_left():
    """The test sees a process and a file that are left on purpose."""
    before = shared_files()
    token = f"shardscope-leftovers-planted-{os.getpid()}"
    file = SHARED_MEMORY / token
    file.write_text("left")
    sleeper = subprocess.Popen(["sleep", "100"], env={**os.environ, "SHARDSCOPE_LEFTOVERS": token})
    try:
        seen = len(processes_with(token.encode())) == 1 and f"file {file}" in unused_shared_files(before)
    finally:
        sleeper.kill()
        sleeper.wait()
        file.unlink()
    return seen and not processes_with(token.encode())


def main():
    if not finds_what_is_left():
        sys.exit("error: a process and a file that were left on purpose were not found")
    failed = False
    for program in sys.argv[1:]:
        for kill_after_s in (None, 0.3, 0.8, 1.5):
            left = run(program, kill_after_s)
            how = "run to its end" if kill_after_s is None else f"killed after {kill_after_s} s"
            print(f"{pathlib.Path(program).name}, {how}: {'failed' if left is None else left or 'nothing left'}")
            failed |= left is None or bool(left)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
