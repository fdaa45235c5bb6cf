"""`shardscope compare` of reports as a user starts it (of topologies: topo_program_test.py)."""
import json
import pathlib

from program import DATA, WithFolder, main, run, text

SHORT = ["--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "2", "--iterations", "12"]
AWS = DATA / "topologies/nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"


def scale(folder, name, *arguments):
    file = pathlib.Path(folder) / name
    done = run(["scale", "--model", "tiny", *SHORT, *arguments, "--json", file])
    assert done.returncode == 0, text(done.stderr)
    return file


def slower(report, factor):
    """The same report of a machine on which everything takes longer: whatever is a time of TPOT, and what follows."""
    report = json.loads(json.dumps(report))
    for row in report["results"]:
        # Known to 1 %, as a quiet machine would give it.
        tpot = row["tpot_ms"]["p50"] * factor
        row["noise"].update(low_ms=tpot * 0.99, high_ms=tpot * 1.01)
        row["tpot_ms"]["p50"] = tpot
        for of in (row, *row["ranks"]):
            if of["attribution"] is None:
                continue
            parts = of["attribution"]
            parts["allreduce_wait"] += tpot - sum(parts.values())
    return report


class CompareReports(WithFolder):
    def setUp(self):
        super().setUp()
        self.report = json.loads(scale(self.folder, "a.json").read_text())

    def write(self, name, report):
        file = pathlib.Path(self.folder) / name
        file.write_text(json.dumps(report))
        return file

    def compared(self, *arguments):
        return json.loads(self.ok(["compare", *arguments, "--json", "-"]).stdout)

    def test_a_report_with_itself(self):
        file = self.write("quiet.json", slower(self.report, 1))
        document = self.compared(file, file)
        self.assertEqual(document["schema"], "shardscope.compare/1")
        self.assertEqual(document["differences"], [])
        self.assertEqual(document["lone_points"], [])
        self.assertEqual(len(document["points"]), 1)
        self.assertNotIn(document["points"][0]["verdict"], ("faster", "slower"))
        self.assertEqual(document["points"][0]["ratio"], 1)

    def test_a_slower_run_with_where_its_time_went(self):
        files = [self.write("before.json", slower(self.report, 1)), self.write("after.json", slower(self.report, 1.3))]
        page = text(self.ok(["compare", *files]).stdout)
        self.assertTrue(page.startswith("after against before: of 1 point slower at 1 (1.30x the TPOT)"), page)
        self.assertIn("100 % waiting for the slowest", " ".join(page.split()))
        point = self.compared(*files)["points"][0]
        self.assertEqual(point["verdict"], "slower")
        self.assertAlmostEqual(sum(point["explained_ms"].values()), point["difference_ms"])
        self.assertAlmostEqual(point["explained_ms"]["allreduce_wait"], point["difference_ms"])
        back = self.compared(*reversed(files))["points"][0]
        self.assertEqual(back["verdict"], "faster")

    def test_the_page(self):
        file = self.folder / "page.html"
        report = self.folder / "a.json"
        self.ok(["compare", report, report, "--html", file])
        page = file.read_text()
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertIn("shardscope.compare/1", page)

    def test_work_that_differs_is_compared_by_force_alone(self):
        a = self.folder / "a.json"
        b = scale(self.folder, "b.json", "--batch", "2", "--seed", "3")
        self.refused(["compare", a, b], "did not measure the same work", "workload.points[0].batch: 1, 2", "--force")
        document = self.compared(a, b, "--force")
        self.assertTrue(document["incomparable"])
        self.assertEqual(document["differences"][0]["effect"], "Not the same work.")
        work = {one["what"]: one["values"] for one in document["differences"] if one["effect"] == "Not the same work."}
        self.assertEqual(work["workload.points[0].batch"], ["1", "2"])
        self.assertEqual(work["workload.seed"], ["0", "3"])
        for values in work.values():
            self.assertNotEqual(values[0], values[1])
        self.assertIn("did not measure the same work", document["summary"])
        self.assertEqual(document["points"], [])
        self.assertEqual([one["report"] for one in document["lone_points"]], [0, 1])

    def test_what_is_refused(self):
        a = self.folder / "a.json"
        self.refused(["compare", a, AWS], "a report among topologies", str(a), str(AWS))
        self.refused(["compare", AWS, AWS, "--force"], "--force", "reports")
        self.refused(["compare", AWS, AWS, "--html", self.folder / "x.html"], "--html", "reports")
        self.refused(["compare", a, self.write("cut.json", {**self.report, "complete": False})], "did not end", "cut.json")
        cut = self.folder / "half.json"
        cut.write_text(a.read_text()[:3000])
        self.refused(["compare", a, cut], "half.json")
        self.refused(["compare", a, self.write("two.json", {**self.report, "schema": "shardscope.report/2"})],
                     "shardscope.report/2", "two.json")
        broken = json.loads(a.read_text())
        broken["results"][0]["tp"] = "one"
        self.refused(["compare", a, self.write("broken.json", broken)], "broken.json", "results[0]")
        self.refused(["compare", a, a, "--json", a], "overwrite")
        self.refused(["compare", a, a, "--html", a], "overwrite")
        self.refused(["compare", a, a, "--html", "-", "--json", "-"], "two documents for standard output")

    def test_the_document_follows_its_schema(self):
        try:
            from jsonschema import Draft202012Validator as Validator
        except ImportError:
            self.skipTest("no jsonschema")
        folder = pathlib.Path(__file__).parents[2] / "runtime/report/schema"
        schema = json.loads((folder / "compare.schema.json").read_text())
        before = self.write("before.json", slower(self.report, 1))
        after = self.write("after.json", slower(self.report, 1.3))
        extra = json.loads(before.read_text())
        extra["results"] = []
        documents = [self.compared(before, after, self.write("extra.json", extra)), self.compared(AWS, AWS)]
        self.assertTrue(documents[0]["lone_points"])
        for document in documents:
            self.assertEqual([error.message for error in Validator(schema).iter_errors(document)], [])
            self.assertEqual(list(document), schema["required"])
        for part in ("reports", "points", "lone_points"):
            self.assertEqual(sorted(documents[0][part][0]), sorted(schema["properties"][part]["items"]["required"]))


if __name__ == "__main__":
    main()
