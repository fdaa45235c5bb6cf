"""shardscope topo on machines that nobody has at hand: shardscope-emulated on tables of tests/data/emulation."""
import json
import unittest

from doctor_cuda_program_test import machine
from program import main, run
from schema_program_test import SCHEMAS, Validator, undescribed


class TopoOnDevices(unittest.TestCase):
    def document(self, name, *arguments):
        done = run(["topo", *arguments, "--json", "-"], env=machine(name))
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        document = json.loads(done.stdout)
        self.assertEqual([e.message for e in Validator(SCHEMAS["topology"]).iter_errors(document)], [])
        self.assertEqual(list(undescribed(document, SCHEMAS["topology"], SCHEMAS["topology"])), [])
        return document

    def warned(self, document, *words):
        return any(all(word in warning for word in words) for warning in document["warnings"])

    def test_what_the_probe_sees(self):
        h100 = self.document("h100-degraded")
        self.assertEqual((h100["class"], h100["gpu_count"]), ("nvswitch", 8))
        self.assertEqual(h100["links"][0][1:4], ["NV18", "NV17", "NV18"])
        self.assertTrue(self.warned(h100, "GPU2 has 17 of 18"))
        self.assertTrue(self.warned(h100, "GPU5", "fabric"))
        pairs = self.document("azure-nc-a100-pairs")
        self.assertEqual(pairs["class"], "nvlink-pairs")
        self.assertEqual(pairs["groups"]["2"]["best_narrowest"], "NV12")
        self.assertEqual(pairs["measurements"], [])

    def test_measured(self):
        lossy = self.document("pcie-loses-writes", "--measure")
        self.assertTrue(self.warned(lossy, "did not arrive (GPU0 to GPU1)"))
        self.assertTrue(self.warned(lossy, "emulated"))
        figures = lossy["measurements"]
        self.assertEqual({f["kind"] for f in figures}, {"p2p_bandwidth", "p2p_latency"})
        self.assertEqual({(f["from"], f["to"]) for f in figures if f["p2p"] is False and f["kind"] == "p2p_latency"},
                         {(a, b) for a in range(4) for b in range(4) if a != b})
        self.assertTrue(any(f["algorithm"] == "all at once" for f in figures))
        whole = self.document("azure-nc-a100-pairs", "--measure")
        self.assertFalse(self.warned(whole, "did not arrive"))

    def test_one_gpu_has_nothing_to_measure(self):
        done = run(["topo", "--measure"], env={"SHARDSCOPE_EMULATION": "devices=1"})
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"need two", done.stderr)


if __name__ == "__main__":
    main()
