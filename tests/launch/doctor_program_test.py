"""shardscope doctor: what it finds on this host, alone and under mpirun: table, document, exit status. The verdicts of
hardware that is not here: doctor_*_checks_test.cpp, doctor_cuda_program_test.py."""
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

from program import command, environment, main, run, text
from schema_program_test import SCHEMAS, Validator, undescribed

VERDICTS = ["problem", "warning", "unknown", "ok"]
HOST_CHECKS = {"launch", "core masks", "machine", "cores", "CPU quota", "memory", "/dev/shm", "locked memory"}
LIMIT_S = 120


def rows_of(table):
    """(verdict, check and evidence) of each finding of a table, in its order."""
    return re.findall(rf"^({'|'.join(VERDICTS)}) +(.*)$", table, re.MULTILINE)


class Doctor(unittest.TestCase):
    def document(self, *arguments, ranks=0, **options):
        done = run(["doctor", *arguments, "--json", "-"], ranks, **options)
        self.assertEqual(done.returncode, 0, text(done.stderr))
        document = json.loads(done.stdout)
        self.assertEqual([e.message for e in Validator(SCHEMAS["doctor"]).iter_errors(document)], [])
        self.assertEqual(list(undescribed(document, SCHEMAS["doctor"], SCHEMAS["doctor"])), [])
        self.assertEqual(sum(document["counts"].values()), len(document["findings"]))
        return document

    def finding(self, document, check):
        found = [finding for finding in document["findings"] if finding["check"] == check]
        self.assertEqual(len(found), 1, check)
        return found[0]

    def test_alone(self):
        done = run(["doctor"])
        self.assertEqual(done.returncode, 0, text(done.stderr))
        table = text(done.stdout)
        self.assertRegex(table, r"^verdict +check +evidence\n")
        rows = rows_of(table)
        order = [VERDICTS.index(verdict) for verdict, _ in rows]
        self.assertEqual(order, sorted(order))
        self.assertIn("one rank alone", table)
        self.assertIn("-> mpirun -np ", table)
        self.assertLessEqual(max(map(len, table.splitlines())), 100)
        document = self.document()
        self.assertEqual(len(document["findings"]), len(rows))
        self.assertLessEqual(HOST_CHECKS, {finding["check"] for finding in document["findings"]})
        self.assertEqual(self.finding(document, "launch")["verdict"], "unknown")
        self.assertEqual((document["command"], document["kind"]), ("doctor", "measured"))
        self.assertEqual(document["options"]["backend"], "auto")
        self.assertFalse([f for f in document["findings"] if f["check"].startswith("MPI")])

    def test_two_ranks(self):
        document = self.document(ranks=2)
        launch = self.finding(document, "launch")
        self.assertEqual((launch["verdict"], launch["remedy"]), ("ok", None))
        self.assertIn("2 ranks by mpirun on 1 host", launch["evidence"])
        self.assertEqual(len(document["environment"]["ranks"]), 2)
        self.assertIn("Open MPI", self.finding(document, "MPI")["evidence"])
        self.assertIn("process_vm_readv", self.finding(document, "MPI single copy")["evidence"])
        table = text(run(["doctor"], 2).stdout)
        self.assertEqual(len(rows_of(table)), len(document["findings"]))  # once, not once a rank

    @unittest.skipIf(len(os.sched_getaffinity(0)) > 8, "more ranks than cores would be many")
    def test_more_ranks_than_cores(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        cores = self.finding(self.document(ranks=ranks), "cores")
        self.assertEqual(cores["verdict"], "warning")
        self.assertIn(f"{ranks} ranks of 1 thread", cores["evidence"])
        spinning = self.document(ranks=ranks, env={"OMPI_MCA_mpi_yield_when_idle": "0"})
        self.assertEqual(self.finding(spinning, "cores")["verdict"], "problem")

    def test_a_small_limit_of_locked_memory(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

        done = subprocess.run(command(["doctor", "--json", "-"], 2), capture_output=True, stdin=subprocess.DEVNULL,
                              env=environment(), timeout=LIMIT_S, preexec_fn=limited)
        self.assertEqual(done.returncode, 0, text(done.stderr))
        locked = self.finding(json.loads(done.stdout), "locked memory")
        self.assertEqual(locked["verdict"], "warning")
        self.assertIn("64 KiB", locked["evidence"])
        self.assertIn("ulimit -l unlimited", locked["remedy"])

    def test_messages_that_go_around_shared_memory(self):
        slow = self.finding(self.document(ranks=2, env={"OMPI_MCA_btl": "tcp,self"}), "MPI")
        self.assertEqual(slow["verdict"], "warning")
        self.assertIn("OMPI_MCA_btl=tcp,self", slow["evidence"])

    def test_a_problem_is_a_result_and_a_failure_only_when_asked(self):
        # Whatever is here: no GPU can be used.
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        document = self.document("--backend", "cuda", env=hidden)
        self.assertGreaterEqual(document["counts"]["problem"], 1)
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                done = run(["doctor", "--backend", "cuda", "--strict"], ranks, env=hidden)
                self.assertEqual(done.returncode, 1)
                lines = [line for line in text(done.stderr).splitlines() if line.startswith("shardscope: error: ")]
                self.assertEqual(len(lines), 1, text(done.stderr))
                self.assertRegex(lines[0], r"\d problem")
                self.assertTrue(rows_of(text(done.stdout)))
        if self.document("--backend", "cpu")["counts"]["problem"] == 0:
            self.assertEqual(run(["doctor", "--backend", "cpu", "--strict"]).returncode, 0)

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "doctor.json"
            done = run(["doctor", "--json", file], 2)
            self.assertEqual(done.returncode, 0, text(done.stderr))
            self.assertEqual(len(json.loads(file.read_text())["findings"]), len(rows_of(text(done.stdout))))
            refused = run(["doctor", "--json", pathlib.Path(folder) / "none/doctor.json"])
            self.assertEqual((refused.returncode, refused.stdout), (2, b""))
            config = pathlib.Path(folder) / "doctor.conf"
            config.write_text("backend = cpu\n")
            self.assertEqual(self.document("--config", config)["options"]["backend"], "cpu")

    def test_tasks_that_do_not_see_each_other(self):
        for env in ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}, {"OMPI_COMM_WORLD_SIZE": "4"}):
            with self.subTest(env=env):
                launch = self.finding(self.document(env=env), "launch")
                self.assertEqual(launch["verdict"], "problem")
                self.assertIn("it announced 4: they do not see each other", launch["evidence"])
                self.assertIn("srun --mpi=pmix", launch["remedy"])
                refused = run(["topo"], env=env)
                self.assertEqual(refused.returncode, 2)
                self.assertIn("announced 4 tasks but MPI sees 1", text(refused.stderr))

    def test_a_mask_of_the_user(self):
        core = min(os.sched_getaffinity(0))
        done = subprocess.run(command(["doctor", "--json", "-"]), capture_output=True, stdin=subprocess.DEVNULL,
                              env=environment(), timeout=LIMIT_S,
                              preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.assertEqual(done.returncode, 0, text(done.stderr))
        self.assertIn("on 1 usable core", self.finding(json.loads(done.stdout), "cores")["evidence"])

    def test_verbose_says_findings_as_they_come(self):
        done = run(["doctor", "--verbose"])
        self.assertRegex(text(done.stderr), r"(?m)^unknown: launch: one rank alone")
        self.assertNotIn("launch: one rank", text(run(["doctor"]).stderr))

    def test_refusals_and_help(self):
        for arguments, *words in ((["--strct"], "--strct", "--strict"), (["--backend", "gpu"], "auto, cuda, cpu"),
                                  (["--tp", "2"], "--tp"), (["here"], "here")):
            with self.subTest(arguments=arguments):
                done = run(["doctor", *arguments])
                self.assertEqual((done.returncode, done.stdout), (2, b""))
                for word in words:
                    self.assertIn(word, text(done.stderr))
        help_text = text(run(["doctor", "--help"]).stdout)
        self.assertIn("shardscope doctor", help_text.split("Example:")[1])
        self.assertIn("--strict", help_text)
        self.assertIn("doctor ", text(run(["--help"]).stdout))


if __name__ == "__main__":
    main()
