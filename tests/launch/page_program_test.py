"""`--html` as a user asks for it: the page of a real run, opened in a browser."""
import json
import pathlib
import sys

from program import WithFolder, main, text

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "runtime" / "report_page"))
from browser import Browser  # noqa: E402

TINY = ["--model", "tiny", "--prompt-tokens", "8", "--output-tokens", "6", "--warmup", "1", "--iterations", "4"]
DATA = '<script type="application/json" id="data-report">'


def report_in(page):
    return json.loads(page.read_text().split(DATA)[1].split("</script>")[0])


class PageOfARun(WithFolder):
    def test_scale_writes_the_report_as_a_page_that_a_browser_shows(self):
        page, report = self.folder / "r.html", self.folder / "r.json"
        done = self.ok(["scale", *TINY, "--tp", "1,2", "--batch", "1,2", "--samples", "--html", page, "--json", report],
                       ranks=2)
        self.assertIn(f"report: {page}", text(done.stderr))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["r.html", "r.json"])
        written = json.loads(report.read_text())
        self.assertEqual(report_in(page), written)
        with Browser() as browser:
            shown = browser.open(page)
            self.assertEqual(shown.problems(), [])
            self.assertIn("TP scaling of tiny", shown.value("document.querySelector('h1').textContent"))
            self.assertEqual(shown.value("document.querySelectorAll('#rows table tbody tr').length"), 4)
            self.assertEqual(shown.texts(".banner strong")[0], "synthetic weights")
            plots = shown.texts("figure.plot h3")
            for title in ("Time per output token by TP degree", "Parts of a step", "Rank by rank",
                          "Steps of a generation"):
                self.assertIn(title, plots)

    def test_bench_writes_a_page_alone(self):
        page = self.folder / "r.html"
        self.ok(["bench", *TINY, "--html", page])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["r.html"])
        self.assertEqual(len(report_in(page)["results"]), 1)

    def test_names_that_are_no_place_for_a_page(self):
        file = self.folder / "x"
        self.refused(["bench", *TINY, "--html", "-"], "--html -", "name a file")
        self.refused(["bench", *TINY, "--html", file, "--json", file], "--json and --html", file)
        self.refused(["bench", *TINY, "--html", self.folder / "none" / "r.html"], "none")
        self.refused(["bench", *TINY, "--dry-run", "--html", file], "--html")
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    main()
