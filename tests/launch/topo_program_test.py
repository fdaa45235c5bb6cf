"""`shardscope topo` and `compare` as a user starts them."""
import json
import pathlib
import xml.etree.ElementTree

from program import DATA, WithFolder, main, text

RECORDED = DATA / "topologies"
AWS = RECORDED / "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"
AZURE = RECORDED / "nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"
ROCM = RECORDED / "nvidia-smi/rocm-smi-showtopo-4gpu-xgmi-not-nvidia.txt"


class Topo(WithFolder):
    def test_this_machine(self):
        page = text(self.ok(["topo"]).stdout)
        document = json.loads(self.ok(["topo", "--json", "-"]).stdout)
        self.assertEqual(document["schema"], "shardscope.topology/1")
        self.assertTrue(document["cpu"])
        self.assertGreater(len(document["numa_nodes"]), 0)
        self.assertTrue(document["numa_nodes"][0]["cores"])
        if not pathlib.Path("/proc/driver/nvidia/version").exists():
            self.assertEqual((document["class"], document["gpu_count"], document["gpus"]), ("none", 0, []))
            self.assertIn("class: none", page)
            self.assertIn(document["cpu"], page)
            self.assertIn("NUMA", page)

    def test_a_file_as_page_document_and_drawing(self):
        page = text(self.ok(["topo", "--file", AWS]).stdout)
        for word in ("NV12", "class: nvswitch", "4  0-3        NV12", "0-23,48-71"):
            self.assertIn(word, page)
        drawing = self.folder / "aws.svg"
        document = self.folder / "aws.json"
        done = self.ok(["topo", "--file", AWS, "--json", document, "--svg", drawing])
        self.assertIn("class: nvswitch", text(done.stdout))
        self.assertTrue(xml.etree.ElementTree.fromstring(drawing.read_text()).tag.endswith("svg"))
        again = json.loads(self.ok(["topo", "--file", document, "--json", "-"]).stdout)
        first = json.loads(document.read_text())
        self.assertEqual(again["source"], {"kind": "shardscope", "file": str(document)})
        self.assertEqual({**again, "source": None}, {**first, "source": None})

    def test_standard_input_and_output(self):
        done = self.ok(["topo", "--file", "-", "--svg", "-"], stdin=AZURE.read_bytes())
        self.assertTrue(done.stdout.startswith(b"<svg"))
        self.assertIn("class: nvlink-pairs", text(done.stderr))
        self.assertIn("standard input", text(done.stderr))

    def test_under_mpirun_rank_0_speaks_alone(self):
        done = self.ok(["topo", "--file", AZURE], ranks=3)
        self.assertEqual(text(done.stdout).count("class: "), 1)

    def test_what_is_refused(self):
        self.refused(["topo", "--file", ROCM], "rocm-smi", ROCM)
        self.refused(["topo", "--file", ROCM], "rocm-smi", ROCM, ranks=2)
        self.refused(["topo", "--file", RECORDED / "nccl-xml/azure-ncv4-graph.xml"], "graph")
        self.refused(["topo", "--file", RECORDED / "nccl-tests/h200-vm-4gpu-cuda-failure-no-rows.txt"], "rows")
        self.refused(["topo", "--file", self.folder / "missing"], "missing")
        self.refused(["topo", "--file", self.folder], self.folder)
        self.refused(["topo", "--file", __file__], "nothing that is known")
        self.refused(["topo", "--json", "-", "--svg", "-"], "two documents for standard output")
        self.refused(["topo", "--file", AWS, "--json", self.folder / "no" / "such.json"], "such.json")
        copy = self.folder / "copy.txt"
        copy.write_bytes(AWS.read_bytes())
        self.refused(["topo", "--file", copy, "--json", copy], "overwrite", "--file")
        self.refused(["topo", "--json", copy, "--svg", copy], "overwrite each other")
        self.refused(["topo", "--fil", AWS], "--file")
        self.refused(["topo", AWS], "belongs to no option")
        self.assertEqual(copy.read_bytes(), AWS.read_bytes())


class Compare(WithFolder):
    def test_why_tp_4_differs_between_two_clouds(self):
        done = self.ok(["compare", AWS, AZURE])
        page = text(done.stdout)
        for word in (AWS.stem, AZURE.stem, "NV12", "SYS", "TP=4"):
            self.assertIn(word, page)
        document = json.loads(self.ok(["compare", AWS, AZURE, "--json", "-"]).stdout)
        self.assertEqual(document["schema"], "shardscope.compare/1")
        self.assertEqual(document["names"], [AWS.stem, AZURE.stem])
        self.assertIn("TP=4", document["summary"])

    def test_a_machine_with_itself(self):
        done = self.ok(["compare", AWS, AWS, "--json", self.folder / "c.json"])
        document = json.loads((self.folder / "c.json").read_text())
        self.assertEqual(document["differences"], [])
        self.assertTrue(document["summary"])
        self.assertTrue(done.stdout)

    def test_what_is_refused(self):
        self.refused(["compare"], "0 files", "A B")
        self.refused(["compare", AWS], "1 file to compare")
        self.refused(["compare", AWS, ROCM], "rocm-smi", ROCM)
        self.refused(["compare", AWS, AZURE, "--json", self.folder / "no" / "x.json"], "x.json")


if __name__ == "__main__":
    main()
