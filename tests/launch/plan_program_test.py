"""`shardscope plan` as a user starts it: predictions alone, nothing runs."""
import csv
import json
import time

from program import DATA, WithFolder, main, run, text

AWS = DATA / "topologies/nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"
AZURE = DATA / "topologies/nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"
PLAN = ["plan", "--model", "llama2-70b", "--topology", "aws-p4d"]


class Plan(WithFolder):
    def table(self, *arguments, **options):
        return text(self.ok(arguments, **options).stdout)

    def report(self, *arguments):
        return json.loads(self.ok([*arguments, "--json", "-"]).stdout)

    def test_the_table(self):
        begun = time.monotonic()
        table = self.table(*PLAN)
        self.assertLess(time.monotonic() - begun, 5)
        lines = table.splitlines()
        self.assertIn("llama2-70b", lines[0])
        self.assertIn("predicted, nothing ran", lines[0] + lines[1])
        self.assertIn("published TPOTs", table)
        for degree in (1, 2):  # 138 GB of weights
            self.assertTrue(any(line.startswith(f"{degree}") and "does not fit" in line for line in lines), table)
        for degree in (4, 8):
            self.assertTrue(any(line.startswith(f"{degree}") and ".." in line for line in lines), table)
        for words in ("where TPOT would go", "lowest TPOT", "rests on:"):
            self.assertIn(words, table)
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_the_document(self):
        report = self.report(*PLAN, "--tp", "4,8", "--batch", "1,16")
        self.assertEqual(report["schema"], "shardscope.report/1")
        self.assertEqual([(row["tp"], row["batch"]) for row in report["results"]], [(4, 1), (4, 16), (8, 1), (8, 16)])
        for row in report["results"]:
            self.assertEqual((row["kind"], row["fits"]), ("predicted", True))
            low, high = row["range"]["tpot_ms"]
            self.assertTrue(0 < low < row["tpot_ms"]["p50"] < high)
            self.assertEqual(row["tpot_ms"]["n"], 0)
            self.assertLess(row["mbu"]["max"], 1)
        self.assertEqual(report["environment"]["host"], None)
        self.assertEqual(report["topology"]["gpu_count"], 8)
        self.assertEqual(report["calibration"]["software"], "shardscope")
        self.assertEqual(report["recommendation"]["tp"], report["recommendations"][0]["tp"])
        self.assertTrue(report["advice"])

    def test_documents_beside_the_table(self):
        done = self.ok([*PLAN, "--json", "-", "--csv", self.folder / "plan.csv"])
        json.loads(done.stdout)
        self.assertIn("rests on:", text(done.stderr))
        with open(self.folder / "plan.csv", newline="") as lines:
            rows = list(csv.DictReader(lines))
        self.assertEqual([row["tp"] for row in rows], ["1", "2", "4", "8"])
        self.assertEqual(rows[0]["fits"], "false")
        self.assertLess(float(rows[3]["tpot_ms_low"]), float(rows[3]["tpot_ms_p50"]))

    def test_gpu_and_topology(self):
        alone = self.report("plan", "--model", "llama2-7b", "--gpu", "H100-SXM")
        self.assertEqual([row["tp"] for row in alone["results"]], [1, 2, 4, 8])
        self.assertIn("No machine was named", " ".join(alone["warnings"]))
        plan = ["plan", "--model", "llama2-7b", "--topology"]
        by_name = self.report(*plan, "aws-p4d")
        self.assertEqual(by_name["calibration"]["gpu"], "a100-40gb")
        self.refused([*plan, AWS], "which GPU?", "a100-40gb")  # a matrix has no names
        by_file = self.report(*plan, AWS, "--gpu", "NVIDIA A100-SXM4-40GB")
        self.assertEqual([row["tpot_ms"] for row in by_file["results"]],
                         [row["tpot_ms"] for row in by_name["results"]])

    def test_links_are_felt(self):
        def tpot(*arguments):
            return self.report("plan", "--model", "llama2-70b", *arguments)["results"][0]["tpot_ms"]["p50"]
        azure = ["--topology", "azure-nc96ads-v4", "--quant", "int4", "--tp", "2"]
        self.assertLess(tpot(*azure), tpot(*azure, "--placement", "worst"))

    def test_two_machines(self):
        table = self.table(*PLAN, "--tp", "4", "--against", "azure-nc96ads-v4")
        self.assertIn("aws-p4d: 4 x a100-40gb", " ".join(table.split()))
        report = self.report(*PLAN, "--tp", "4", "--against", AZURE, "--gpu",
                             "a100-40gb")
        self.assertTrue(any(AZURE.name in line for line in report["advice"]), report["advice"])

    def test_a_bound(self):
        kept = self.report(*PLAN, "--batch", "1..64x2", "--slo-tpot-ms", "60")
        self.assertEqual(kept["recommendations"][0]["goal"], "bound")
        self.assertLessEqual(kept["recommendations"][0]["tpot_ms"], 60)
        self.assertIn("nothing here keeps it; the nearest is TP 8", self.table(*PLAN, "--slo-tpot-ms", "1"))

    def test_less_bytes_are_faster_and_fit(self):
        def row(*arguments):
            return self.report(*PLAN, "--tp", "4", *arguments)["results"][0]
        plain, quantised = row(), row("--quant", "int8")
        self.assertLess(quantised["tpot_ms"]["p50"], plain["tpot_ms"]["p50"])
        self.assertLess(quantised["needed_bytes_per_gpu"], 0.6 * plain["needed_bytes_per_gpu"])
        cached = row("--kv-dtype", "fp8", "--batch", "16")
        self.assertLess(cached["memory_bytes_per_gpu"]["kv"], row("--batch", "16")["memory_bytes_per_gpu"]["kv"])

    def test_own_measurements(self):
        sums = DATA / "topologies/nccl-tests/azure-ndv4-8xa100-40gb-superbench.txt"
        shipped = self.report(*PLAN, "--tp", "8")
        own = self.report(*PLAN, "--tp", "8", "--calibrate", sums)
        self.assertIn(sums.name, own["results"][0]["allreduce_times"])
        self.assertTrue(any(sums.name in note for note in own["calibration"]["own"]))
        self.assertEqual(shipped["calibration"]["own"], [])
        transfer = [report["results"][0]["attribution"]["allreduce_transfer"] for report in (shipped, own)]
        self.assertNotEqual(*transfer)
        self.assertEqual(own["options"]["calibrate"], [str(sums)])
        self.assertIn(sums.name, self.table(*PLAN, "--calibrate", sums))
        large = DATA / "topologies/nccl-tests/dgx-a100-4gpu-p2p-on-and-off.txt"
        self.refused([*PLAN, "--calibrate", sums, large], large, "under 16 KiB")
        self.refused([*PLAN, "--calibrate", self.folder / "none.txt"], "none.txt")
        (self.folder / "a.txt").write_text("")
        self.refused([*PLAN, "--calibrate", self.folder / "a.txt", "--json", self.folder / "a.txt"], "overwrite")

    def test_pipeline_stages(self):
        report = self.report(*PLAN, "--pp", "2")
        self.assertEqual([(row["tp"], row["pp"]) for row in report["results"]], [(1, 2), (2, 2), (4, 2)])
        self.assertIn("PP", self.table(*PLAN, "--pp", "2"))

    def test_models(self):
        for model in (DATA / "reference/tiny/llama-mha", "qwen3-8b", "mpt-7b"):
            table = self.table("plan", "--model", model, "--gpu", "l4", "--prompt-tokens", "8", "--output-tokens", "8")
            self.assertIn("lowest TPOT", table)

    def test_several_ranks_are_one(self):
        self.assertEqual(self.table(*PLAN, ranks=2).replace("\r", ""), self.table(*PLAN))

    def test_list(self):
        listed = self.table("plan", "--list")
        for name in ("a100-40gb", "aws-p4d", "azure-nc96ads-v4", "llama2-70b", "tensorrt-llm"):
            self.assertIn(name, listed)
        document = self.report("plan", "--list")
        self.assertEqual(document["schema"], "shardscope.catalogue/1")
        self.assertIn("aws-p4d", [machine["name"] for machine in document["machines"]])

    def test_self_check(self):
        done = self.ok(["plan", "--self-check"])
        self.assertIn("whole systems", text(done.stdout))
        document = self.report("plan", "--self-check")
        self.assertTrue(all(rule["holds"] for rule in document["rules"]))
        self.assertGreaterEqual(document["all"]["covered"], 0.9)

    def test_the_page(self):
        self.ok([*PLAN, "--html", self.folder / "plan.html"])
        page = (self.folder / "plan.html").read_text()
        self.assertIn("shardscope plan: llama2-70b", page)

    def test_options_of_a_file(self):
        (self.folder / "plan.conf").write_text("model = llama2-7b\ngpu = l4\ntp = 1,2\n")
        report = self.report("plan", "--config", self.folder / "plan.conf", "--tp", "4")
        self.assertEqual([row["tp"] for row in report["results"]], [4])
        self.assertEqual(report["options"]["gpu"], "l4")

    def test_refusals(self):
        self.refused(["plan"], "no model given")
        self.refused(["plan", "--model", "llama2-70b"], "on which GPUs?", "--topology NAME", "--list")
        self.refused(["plan", "--model", "llama2-7", "--gpu", "l4"], "llama2-7b")
        self.refused(["plan", "--model", "llama2-7b", "--gpu", "a100"], "a100-40gb", "a100-80gb-sxm")
        self.refused(["plan", "--model", "llama2-7b", "--gpu", "h100-smx"], "did you mean h100-sxm?")
        self.refused(["plan", "--model", "llama2-7b", "--topology", "aws-p4e"], "did you mean aws-p4d")
        self.refused([*PLAN, "--software", "tensorrt"], "did you mean tensorrt-llm?")
        self.refused([*PLAN, "--gpu", "h100-sxm"], "h100-sxm", "a100-40gb", "not the same")
        self.refused([*PLAN, "--tp", "16"], "TP 16", "8 GPUs of aws-p4d", "up to 8")
        self.refused([*PLAN, "--tp", "8", "--pp", "2"], "2 stages", "up to 4")
        self.refused([*PLAN, "--prompt-tokens", "8000"], "context of 4096")
        self.refused([*PLAN, "--slo-tpot-ms", "0"], "--slo-tpot-ms")
        self.refused([*PLAN, "--quant", "int3"], "int8, int4, nf4, fp8")
        self.refused([*PLAN, "--quant", "nf4", "--quant-group", "32"], "--quant-group")
        self.refused([*PLAN, "--against", "aws-p4e"], "--against", "aws-p4d")
        self.refused([*PLAN, "--tp", "8", "--against", "azure-nc96ads-v4"], "4 GPUs")
        self.refused([*PLAN, "--list"], "--list", "alone")
        self.refused(["plan", "--list", "--csv", "-"], "--csv")
        self.refused(["plan", "--modle", "llama2-7b"], "did you mean --model?")
        quantised = DATA / "cases/A09-gguf/gqa-Q4_0.gguf"
        self.refused(["plan", "--model", quantised, "--gpu", "l4", "--quant", "int4", "--prompt-tokens", "8",
                      "--output-tokens", "8"], "quantised already")

    def test_a_machine_of_two_kinds(self):
        file = self.folder / "mixed.json"
        self.ok(["topo", "--file", AWS, "--json", file])
        machine = json.loads(file.read_text())
        plan = ["plan", "--model", "llama2-7b", "--topology", file]
        for gpu, name in zip(machine["gpus"], ["NVIDIA L4"] * 4 + ["NVIDIA L40S"] * 4):
            gpu["name"] = name
        file.write_text(json.dumps(machine))
        self.refused(plan, "several kinds", "NVIDIA L40S")


if __name__ == "__main__":
    main()
