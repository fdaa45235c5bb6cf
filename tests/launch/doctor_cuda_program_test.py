"""shardscope doctor on machines that nobody has at hand: shardscope-emulated on tables of tests/data/emulation."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from program import DATA, command, environment, main, run
from schema_program_test import SCHEMAS, Validator, undescribed


def machine(name, **more):
    table = {"table": DATA / "emulation" / f"{name}.json", "policy": "worker", **more}
    return {"SHARDSCOPE_EMULATION": ",".join(f"{key}={value}" for key, value in table.items())}


class DoctorOnDevices(unittest.TestCase):
    def findings(self, ranks, env, *arguments):
        done = run(["doctor", *arguments, "--json", "-"], ranks, env=env)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        document = json.loads(done.stdout)
        self.assertEqual([e.message for e in Validator(SCHEMAS["doctor"]).iter_errors(document)], [])
        self.assertEqual(list(undescribed(document, SCHEMAS["doctor"], SCHEMAS["doctor"])), [])
        self.assertEqual(document["kind"], "emulated")
        return document["findings"]

    def only(self, findings, check):
        found = [finding for finding in findings if finding["check"] == check]
        self.assertEqual(len(found), 1, (check, found))
        return found[0]

    def test_eight_h100_with_a_fault_each(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                findings = self.findings(ranks, machine("h100-degraded"))
                for check, verdict, *words in (
                        ("driver", "ok", "8 x NVIDIA H100"),
                        ("CUDA", "ok", "this build has"),
                        ("device per rank", "ok", "GPU0, GPU1" if ranks else "GPU0"),
                        ("NVLink", "problem", "GPU2: 17 of 18 NVLinks are up"),
                        ("NVLink fabric", "problem", "GPU5: registration is in progress"),
                        ("clocks", "problem", "GPU4: hw-slowdown, hw-thermal-slowdown, 1155 of", "91 °C"),
                        ("other processes", "warning", "GPU6: 1 other process"),
                        ("PCIe", "warning", "GPU7: 8 of 16 lanes"),
                        ("peer access", "ok" if ranks else "unknown", "proved"),
                        ("NCCL", "ok" if ranks else "unknown", "2 ranks")):
                    found = self.only(findings, check)
                    self.assertEqual(found["verdict"], verdict, found)
                    for word in words:
                        self.assertIn(word, found["evidence"])
                    self.assertEqual(found["remedy"] is None, verdict == "ok" or check == "NCCL", found)

    def test_claims_and_what_was_proved(self):
        """GPU 0's writes do not arrive at GPU 1, and the driver says that all is well."""
        findings = self.findings(2, machine("pcie-loses-writes"))
        peers = self.only(findings, "peer access")
        self.assertEqual(peers["verdict"], "problem")
        self.assertIn("do not arrive", peers["evidence"])
        self.assertIn("the driver offers it in 10 of 12 directions", peers["evidence"])
        self.assertIn("ACS", peers["remedy"])
        swapped = {**machine("pcie-loses-writes"), "CUDA_VISIBLE_DEVICES": "0,2"}
        self.assertEqual(self.only(self.findings(2, swapped), "peer access")["verdict"], "ok")
        refused = {**machine("pcie-loses-writes"), "CUDA_VISIBLE_DEVICES": "2,3"}
        none = self.only(self.findings(2, refused), "peer access")
        self.assertEqual(none["verdict"], "warning")
        self.assertIn("offers no peer access", none["evidence"])
        whole = self.only(self.findings(4, machine("pcie-loses-writes")), "peer access")
        self.assertIn("nothing is proved between the others", whole["evidence"])
        self.assertIn("CUDA_VISIBLE_DEVICES=A,B mpirun -np 2", whole["remedy"])

    def test_more_ranks_than_devices(self):
        env = {"SHARDSCOPE_EMULATION": "devices=1,policy=worker"}
        findings = self.findings(2, env)
        self.assertEqual(self.only(findings, "device per rank")["verdict"], "problem")
        self.assertEqual(run(["doctor", "--strict"], 2, env=env).returncode, 1)

    def test_a_device_that_cannot_be_taken(self):
        for call in ("cudaMalloc", "cudaMemGetInfo"):
            with self.subTest(call=call):
                findings = self.findings(2, {"SHARDSCOPE_EMULATION": f"devices=2,policy=worker,fail={call}:1"})
                taken = self.only(findings, "device per rank")
                self.assertEqual(taken["verdict"], "problem")
                self.assertIn(call, taken["evidence"])

    def test_nccl_that_does_not_start(self):
        env = {"SHARDSCOPE_EMULATION": "devices=2,policy=worker,fail=ncclCommInitRankConfig:1"}
        findings = self.findings(2, env, "--timeout", "10")
        self.assertEqual(self.only(findings, "NCCL")["verdict"], "problem")
        self.assertEqual(self.only(findings, "peer access")["verdict"], "ok")

    def test_nccl_that_does_not_start_on_one_rank(self):
        """The others wait for it inside NCCL, and are not to blame."""
        sound = "SHARDSCOPE_EMULATION=devices=2,policy=worker"
        for failing in (0, 1):
            with self.subTest(failing=failing), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "doctor.json"
                words = command(["doctor", "--timeout", "8", "--json", file])
                parts = [["-np", "1", "env", sound + ",fail=ncclCommInitRankConfig:1" * (rank == failing), *words]
                         for rank in range(2)]
                done = subprocess.run(["mpirun", "-q", *parts[0], ":", *parts[1]], capture_output=True,
                                      stdin=subprocess.DEVNULL, env=environment(), timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
                findings = json.loads(file.read_text())["findings"]
                nccl = self.only(findings, "NCCL")
                self.assertEqual(nccl["verdict"], "problem")
                self.assertIn(f"rank {failing}: ", nccl["evidence"])
                self.assertIn("ncclCommInitRankConfig", nccl["evidence"])
                self.assertNotIn("progress", nccl["evidence"])
                self.assertEqual(self.only(findings, "peer access")["verdict"], "ok")

    def test_masks_and_settings(self):
        env = {"SHARDSCOPE_EMULATION": "devices=4,policy=worker", "CUDA_VISIBLE_DEVICES": "0,9,1",
               "NCCL_P2P_DISABLE": "1"}
        findings = self.findings(0, env)
        self.assertTrue(any("names 3 devices, CUDA shows 1" in finding["evidence"] for finding in findings))
        self.assertEqual(self.only(findings, "NCCL settings")["verdict"], "warning")

    def test_the_cpu_backend_leaves_devices_alone(self):
        done = run(["doctor", "--backend", "cpu", "--json", "-"], 2, env=machine("h100-degraded"))
        findings = json.loads(done.stdout)["findings"]
        self.assertEqual(json.loads(done.stdout)["kind"], "measured")
        self.assertFalse([f for f in findings if f["check"] == "device per rank"])
        self.assertEqual(self.only(findings, "NVLink")["verdict"], "problem")


if __name__ == "__main__":
    main()
