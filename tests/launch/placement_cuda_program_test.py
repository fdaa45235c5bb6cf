"""Groups of ranks on the devices that --placement names: shardscope-emulated on a machine of four GPUs in crossed pairs."""
import json
import subprocess
import unittest

from program import DATA, command, environment, main, run
from schema_program_test import SCHEMAS, Validator

CROSSED = {"SHARDSCOPE_EMULATION": f"policy=worker,table={DATA / 'emulation/crossed-pairs.json'}"}
SHORT = ["--model", "tiny", "--layers", 1, "--prompt-tokens", 4, "--output-tokens", 3, "--warmup", 1, "--iterations", 2,
         "--json", "-"]


class Placement(unittest.TestCase):
    def scale(self, *arguments, ranks=4, env=CROSSED):
        return run(["scale", *SHORT, *arguments], ranks, env=env, mpirun_options=("--oversubscribe",), timeout=300)

    def test_groups_work_on_the_devices_of_their_placement(self):
        done = self.scale("--tp", "1,2", "--placement", "best,worst")
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        report = json.loads(done.stdout)
        rows = [(r["tp"], r["placement"], r["placement_also"], r["devices"]) for r in report["results"]]
        self.assertEqual(rows, [(1, "best", ["worst"], [0]), (2, "best", [], [0, 2]), (2, "worst", [], [0, 1])])
        # "invalid": two short readings of an emulated memory may well make an MBU over 100 %.
        self.assertLessEqual({r["status"] for r in report["results"]}, {"ok", "invalid"})
        # What the devices allow proves where the ranks were: only within a pair is there peer access.
        left_out = [[why.split(":")[0] for why in r["allreduce_choices"]["left_out"]] for r in report["results"]]
        self.assertEqual(left_out[1], [])
        self.assertIn("one-shot", left_out[2])
        self.assertEqual([r["tp_base"] for r in report["results"]], [1, 1, 1])
        self.assertEqual(list(Validator(SCHEMAS["report"]).iter_errors(report)), [])
        self.assertEqual(report["topology"]["class"], "nvlink-pairs")
        self.assertEqual(report["topology"]["groups"]["2"]["best"], [0, 2])
        buses = [device["pci_bus_id"] for device in report["environment"]["devices"]]
        self.assertEqual([bus.lower()[-10:] for bus in buses], [gpu["pci_bus_id"][-10:] for gpu in report["topology"]["gpus"]])
        table = done.stderr.decode()
        self.assertRegex(table, r"\nTP  +place  +batch")
        self.assertIn("\nTP 2: devices of best 0,2; worst 0-1\n", table)
        self.assertIn("tp 2 (worst: 0-1), second visit", table)

    def test_linear_that_is_the_worst_is_measured_once(self):
        done = self.scale("--tp", "2", "--placement", "linear,best,worst", "--allreduce", "nccl")
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        report = json.loads(done.stdout)
        self.assertEqual([(r["placement"], r["placement_also"], r["devices"]) for r in report["results"]],
                         [("linear", ["worst"], [0, 1]), ("best", [], [0, 2])])
        note = "tp 2: linear and worst are the same devices (0-1): measured once"
        self.assertIn(note, report["warnings"])
        self.assertIn(f"note: {note}", done.stderr.decode())

    def test_ranks_that_do_not_see_all_devices_are_told_so(self):
        # Each rank has a device of its own, as srun --gpus-per-task would have it.
        done = self.masked("best")
        self.assertIn("rank 0 does not see the devices of all ranks, --placement best, start with all devices visible",
                      done.stderr.decode())
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.masked("linear").returncode, 0)

    def masked(self, placement):
        launcher, ranks = command(["scale", *SHORT, "--tp", "2", "--allreduce", "nccl", "--placement", placement], 3), 4  # mpirun -q -np 3
        shell = ["bash", "-c", 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK exec "$@"', "-"]
        return subprocess.run([*launcher[:ranks], *shell, *launcher[ranks:]], capture_output=True, timeout=300,
                              env=environment(CROSSED), stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
