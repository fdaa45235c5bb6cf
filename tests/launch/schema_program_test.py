"""Every document that the program writes, against its JSON Schema in runtime/report/schema/, and no field beyond it."""
import copy
import json
import pathlib
import sys
import tempfile
import unittest

from program import DATA, main, run

try:
    from jsonschema import Draft202012Validator as Validator
except ImportError:
    sys.exit(f"{sys.executable} has no jsonschema: install python3-jsonschema, or put /usr/bin first in PATH")

SCHEMAS = {path.name.split(".")[0]: json.loads(path.read_text())
           for path in (pathlib.Path(__file__).parents[2] / "runtime/report/schema").glob("*.schema.json")}
SHORT = ["--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1", "--iterations", "4"]
REAL = DATA / "reference/tiny/llama-mha"  # has a tokenizer


def resolved(schema, root):
    """The schema that a reference means; references within one file are all that there are."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    return schema


def branch_of(value, schema, root):
    """Of alternatives, the one that the value takes."""
    schema = resolved(schema, root)
    for branch in schema.get("anyOf", []):
        if Validator({**branch, "$defs": root["$defs"]}).is_valid(value):
            return resolved(branch, root)
    return schema


def undescribed(value, schema, root, path=""):
    """Paths of fields that the schema does not know."""
    schema = branch_of(value, schema, root)
    if isinstance(value, dict):
        for key, item in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if known is None:
                yield f"{path}.{key}"
            else:
                yield from undescribed(item, known, root, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            ahead = schema.get("prefixItems", [])
            yield from undescribed(item, ahead[i] if i < len(ahead) else schema.get("items", {}), root, f"{path}[{i}]")


def errors_of(document, name):
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in Validator(SCHEMAS[name]).iter_errors(document)]


def described_places(value, schema, root, path=()):
    """Path and value of every field that the schema requires, or that is a number."""
    schema = branch_of(value, schema, root)
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key)
            if inner is not None:
                yield (*path, key), item
                yield from described_places(item, inner, root, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from described_places(item, schema.get("items", {}), root, (*path, i))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def objects_in(schema, path="$"):
    """Every part of a schema that describes an object's fields."""
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
            yield path, schema
        for key, item in schema.items():
            yield from objects_in(item, f"{path}.{key}")
    elif isinstance(schema, list):
        for i, item in enumerate(schema):
            yield from objects_in(item, f"{path}[{i}]")


class Schemas(unittest.TestCase):
    def test_they_are_schemas_and_require_every_field(self):
        self.assertEqual(sorted(SCHEMAS), ["catalogue", "comm", "compare", "doctor", "generate", "report", "selfcheck",
                                           "shards", "topology"])
        for name, schema in SCHEMAS.items():
            Validator.check_schema(schema)
            self.assertEqual(schema["properties"]["schema"]["const"], schema["title"])
            for path, part in objects_in(schema):
                with self.subTest(schema=name, path=path):
                    only_some = part.get("then", {}).get("required", [])  # documents have these: those of plan
                    self.assertLessEqual(set(only_some), set(part["properties"]))
                    always = [key for key in part["properties"] if key not in only_some]
                    self.assertEqual(part["required"], always)

    def test_what_they_share_is_the_same(self):
        seen = {}
        for schema in SCHEMAS.values():
            for name, part in schema.get("$defs", {}).items():
                self.assertEqual(seen.setdefault(name, part), part, name)
        self.assertIn("model", seen)


class Documents(unittest.TestCase):
    def check(self, document, name):
        if name == "report" and document["topology"] is not None:  # a document of its own
            self.check(document["topology"], "topology")
            document = {**document, "topology": None}
        self.assertEqual(errors_of(document, name), [])
        self.assertEqual(list(undescribed(document, SCHEMAS[name], SCHEMAS[name])), [])
        return document

    def document(self, arguments, name, ranks=0):
        done = run([*arguments, "--json", "-"], ranks)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return self.check(json.loads(done.stdout), name)

    def test_scale(self):
        report = self.document(["scale", "--model", "tiny", "--tp", "1,2", "--batch", "1,2", *SHORT], "report", 2)
        self.assertEqual(len(report["results"]), 4)
        self.assertIsNone(report["results"][0]["samples"])

    def test_what_only_some_runs_know(self):
        one_token = ["--prompt-tokens", "4", "--output-tokens", "1", "--warmup", "1", "--iterations", "1"]
        report = self.document(["scale", "--model", "tiny", *one_token], "report")
        self.assertIsNone(report["results"][0]["tpot_ms"]["p50"])
        self.assertIsNone(report["results"][0]["tokenise_ms"])
        report = self.document(["scale", "--model", REAL, "--prompt-file", __file__, "--peak-bandwidth", "10000", *SHORT],
                               "report")
        self.assertIsNotNone(report["results"][0]["tokenise_ms"])

    def test_plan(self):
        arguments = ["plan", "--model", "llama2-70b", "--topology", "aws-p4d", "--against", "azure-nc96ads-v4"]
        report = self.document([*arguments, "--batch", "1,256", "--slo-tpot-ms", "30"], "report")
        self.assertEqual(report["command"], "plan")
        self.assertIn("out_of_memory", [row["status"] for row in report["results"]])
        self.assertIsNotNone(report["recommendation"])
        quantised = self.document([*arguments, "--quant", "int4", "--kv-dtype", "int8", "--output-tokens", "1", "--pp",
                                   "2"], "report")
        self.assertEqual(quantised["model"]["quantisation"]["bits_nominal"], 4)
        nothing = self.document(["plan", "--model", "llama3.1-405b", "--gpu", "t4"], "report")
        self.assertIsNone(nothing["recommendation"])
        for lacking in ("fits", "range", "uncalibrated"):
            wrong = copy.deepcopy(report)
            del wrong["results"][0][lacking]
            self.assertEqual(len(errors_of(wrong, "report")), 1, lacking)
        del report["calibration"]
        self.assertEqual(len(errors_of(report, "report")), 1)

    def test_plan_of_its_own(self):
        self.assertGreater(len(self.document(["plan", "--list"], "catalogue")["gpus"]), 20)
        self.assertGreater(len(self.document(["plan", "--self-check"], "selfcheck")["rows"]), 20)

    def test_samples(self):
        report = self.document(["scale", "--model", "tiny", "--samples", *SHORT], "report")
        row = report["results"][0]
        self.assertEqual(len(row["samples"]), row["generations"])
        self.assertTrue(all(len(sample["itl_ms"]) == 5 for sample in row["samples"]))

    def test_bench(self):
        report = self.document(["bench", "--model", "tiny", *SHORT], "report")
        self.assertEqual(report["command"], "bench")

    def test_a_point_that_fits_no_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "report.json"  # some 60 TB of KV cache
            done = run(["scale", "--model", "llama3.1-405b", "--batch", "4096", "--prompt-tokens", "8000",
                        "--output-tokens", "8", "--json", name])
            self.assertEqual(done.returncode, 1, done.stderr)
            report = self.check(json.loads(name.read_text()), "report")
        self.assertEqual([row["status"] for row in report["results"]], ["out_of_memory"])

    def test_dry_run(self):
        for command in ("scale", "bench", "generate"):
            with self.subTest(command=command):
                document = self.document([command, "--model", "tiny", "--tp", "2", "--dry-run"], "shards")
                self.assertEqual(document["schema"], "shardscope.shards/1")

    def test_generate(self):
        ids = self.document(["generate", "--model", "tiny", "--prompt-ids", "1,2,3", "--max-tokens", "4"], "generate")
        self.assertIsNone(ids["requests"][0]["text"])
        texts = self.document(["generate", "--model", REAL, "--prompt", "the", "--prompt", "quick", "--max-tokens", "4",
                               "--top-logits", "2"], "generate", 2)
        self.assertEqual(len(texts["requests"]), 2)
        self.assertEqual(len(texts["requests"][0]["top_logits"][0]), 2)

    def test_comm(self):
        arguments = ["--max-bytes", "4096", "--iterations", "10"]
        one = self.document(["comm", *arguments], "comm")
        self.assertEqual([row["algorithm"] for row in one["rows"]], ["none"] * 3)
        two = self.document(["comm", "--tp", "1,2", *arguments], "comm", 2)
        self.assertEqual(len(two["rows"]), 3 + 2 * 3)

    def test_topo(self):
        machine = self.document(["topo"], "topology")
        self.assertEqual(machine["source"], {"kind": "probe", "file": None})
        for file in sorted((DATA / "topologies").glob("*/*")):
            done = run(["topo", "--file", file, "--json", "-"])
            with self.subTest(file=file.name):
                self.assertIn(done.returncode, (0, 2))
                if done.returncode == 0:
                    self.check(json.loads(done.stdout), "topology")

    def test_compare(self):
        files = [DATA / "topologies/nvidia-smi" / name for name in (
            "aws-p4-8xa100-sxm4-nv12.txt", "azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt")]
        document = self.document(["compare", *files], "compare")
        self.assertEqual(document["files"], [str(file) for file in files])
        self.assertTrue(document["differences"])

    def test_planted_errors_are_found(self):
        report = self.document(["scale", "--model", "tiny", "--samples", *SHORT], "report")
        root = SCHEMAS["report"]
        places = list(described_places(report, root, root))
        removed = numbers = 0
        for path, value in places:
            changed = copy.deepcopy(report)
            parent = at(changed, path[:-1])
            with self.subTest(path=path):
                if isinstance(parent, dict):
                    del parent[path[-1]]
                    self.assertFalse(Validator(root).is_valid(changed), "a missing field was not found")
                    removed += 1
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    parent[path[-1]] = str(value)
                    self.assertFalse(Validator(root).is_valid(changed), "a number in quotes was not found")
                    numbers += 1
        self.assertGreater(removed, 250)
        self.assertGreater(numbers, 80)
        beyond = copy.deepcopy(report)
        beyond["results"][0]["ranks"][0]["colour"] = "blue"
        self.assertEqual(errors_of(beyond, "report"), [])  # readers take what later versions add
        self.assertEqual(list(undescribed(beyond, root, root)), [".results[0].ranks[0].colour"])
        for row, field, value in ((0, "status", "fine"), (0, "kind", "guessed"), (0, "tp", 0), (0, "batch", 1.5)):
            wrong = copy.deepcopy(report)
            wrong["results"][row][field] = value
            self.assertEqual(len(errors_of(wrong, "report")), 1, field)


if __name__ == "__main__":
    main()
