"""shardscope comm on devices: shardscope-emulated, every way of summing, and why one cannot be used. No times."""
import json
import unittest

from program import main, run
from schema_program_test import SCHEMAS, Validator, undescribed

WAYS = ["nccl", "nccl-symmetric", "one-shot", "two-shot"]
SHORT = ["--backend", "cuda", "--max-bytes", "2048", "--iterations", "2", "--warmup", "1", "--max-seconds", "60"]


def machine(devices):
    return {"SHARDSCOPE_EMULATION": f"devices={devices},policy=worker"}


class CommOnDevices(unittest.TestCase):
    def done(self, ranks, *arguments, devices):
        return run(["comm", *SHORT, *arguments], ranks, env=machine(devices))

    def report(self, ranks, *arguments, devices=None):
        done = self.done(ranks, *arguments, "--json", "-", devices=devices or max(ranks, 1))
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        report = json.loads(done.stdout)
        self.assertEqual([e.message for e in Validator(SCHEMAS["comm"]).iter_errors(report)], [])
        self.assertEqual(list(undescribed(report, SCHEMAS["comm"], SCHEMAS["comm"])), [])
        for row in report["rows"]:
            self.assertEqual((row["kind"], row["wrong"], row["time_us"]["n"]), ("emulated", 0, 2))
            self.assertGreater(row["calls_per_sample"], 1)
            self.assertGreaterEqual(row["wait_us"], 0)
            self.assertGreater(row["transfer_us"], 0)
        return report

    def refused(self, ranks, *arguments, devices):
        done = self.done(ranks, *arguments, devices=devices)
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if "shardscope: error: " in line]
        self.assertEqual((done.returncode, len(lines), done.stdout), (2, 1, b""), done.stderr)
        return lines[0]

    def test_every_way_is_right_at_every_degree(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                report = self.report(ranks, "--tp", "2..3" if ranks == 3 else "2")
                self.assertEqual([(r["tp"], r["bytes"], r["algorithm"], r["dtype"], r["graph"]) for r in report["rows"]],
                                 [(tp, size, way, "bf16", True) for tp in range(2, ranks + 1) for size in (1024, 2048)
                                  for way in WAYS])
                self.assertEqual(report["left_out"], [])
                self.assertEqual(len(report["environment"]["devices"]), ranks)

    def test_our_ways_among_more_ranks(self):
        for ranks in (5, 7, 8):
            with self.subTest(ranks=ranks):
                report = self.report(ranks, "--allreduce", "one-shot,two-shot", "--min-bytes", "2048")
                self.assertEqual([(r["tp"], r["algorithm"]) for r in report["rows"]],
                                 [(ranks, "one-shot"), (ranks, "two-shot")])

    def test_types_and_modes(self):
        report = self.report(2, "--dtype", "fp16,fp32", "--graphs", "on,off", "--allreduce", "nccl,one-shot")
        self.assertEqual([(r["dtype"], r["graph"], r["bytes"], r["algorithm"], r["count"]) for r in report["rows"]],
                         [(dtype, graph, size, way, size // width) for dtype, width in (("fp32", 4), ("fp16", 2))
                          for graph in (True, False) for size in (1024, 2048) for way in ("nccl", "one-shot")])

    def test_one_way_alone(self):
        for way in WAYS:
            with self.subTest(way=way):
                report = self.report(2, "--allreduce", way, "--min-bytes", "2048")
                self.assertEqual([row["algorithm"] for row in report["rows"]], [way])

    def test_one_device(self):
        report = self.report(0)
        self.assertEqual({row["busbw_gb_per_s"] for row in report["rows"]}, {0})

    def test_ways_that_the_machine_does_not_have_are_left_out_or_refused_with_the_reason(self):
        shared = ["--oversubscribe-devices"]
        done = self.done(2, *shared, "--json", "-", devices=1)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual({row["algorithm"] for row in report["rows"]}, {"one-shot", "two-shot"})
        self.assertEqual([way["algorithm"] for way in report["left_out"]], ["nccl", "nccl-symmetric"])
        notes = [line for line in done.stderr.decode().splitlines() if "is left out" in line]
        self.assertEqual(len(notes), 2)
        for way, note in zip(report["left_out"], notes):
            self.assertIn(way["why"], note)
        line = self.refused(2, *shared, "--allreduce", "nccl", devices=1)
        self.assertIn("--allreduce nccl", line)
        self.assertIn(report["left_out"][0]["why"].split(",")[0], line)
        self.assertIn(", use auto", line)
        self.assertIn("--allreduce shm", self.refused(2, "--allreduce", "shm", devices=2))


if __name__ == "__main__":
    main()
