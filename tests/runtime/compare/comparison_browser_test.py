"""Pages of made-up comparisons in a real browser: comparison_browser_test.py WRITE_COMPARISONS [CLASS.test…].

Nothing but the file itself is asked for, nothing fails, every plot has a bar a figure, tables hold the document's
numbers, and all of it at 360 and 1280 pixels, in the dark, and in print.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "report_page"))
from browser import Browser  # noqa: E402

WRITE_COMPARISONS = sys.argv.pop(1)
NAMES = ("clouds", "three", "rehearsed", "none")

# Of each plot that is shown: its title, and of each series the values that are there, the marks within the axes, and
# the ends of whiskers in all and within the axes.
PLOTS = """[...document.querySelectorAll("figure.plot .canvas")].filter((one) => !one.hidden).map((holder) => {
  const chart = Chart.getChart(holder.querySelector("canvas"));
  const {left, right, top, bottom} = chart.chartArea;
  return {title: holder.closest("figure").querySelector("h3").textContent, series: chart.data.datasets.map((set, i) => ({
    label: set.label,
    ends: (set.whiskers || []).flatMap((pair) => pair || []).length,
    ends_within: (set.whiskers || []).flatMap((pair) => pair || []).map(
      (one) => chart.getDatasetMeta(i).yScale.getPixelForValue(one)).filter((y) => y >= top - 1 && y <= bottom + 1).length,
    values: set.data.filter((value) => Number.isFinite(value)),
    within: chart.getDatasetMeta(i).data.filter((mark, at) => Number.isFinite(set.data[at]) && mark.x >= left &&
      mark.x <= right && mark.y >= top - 1 && mark.y <= bottom + 1).length}))};
})"""
TABLES = """[...document.querySelectorAll("table")].map((table) => [...table.querySelectorAll("tbody tr")].map(
  (row) => [...row.children].map((cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)))))"""


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        subprocess.run([WRITE_COMPARISONS, cls.path], check=True)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def document(self, name):
        return json.loads((self.path / f"{name}.json").read_text())

    def open(self, name, **how):
        page = self.browser.open(self.path / f"{name}.html", **how)
        self.addCleanup(page.close)
        return page

    def test_nothing_fails_and_nothing_is_fetched(self):
        for name in NAMES:
            for how in ({}, {"width": 360}, {"dark": True}):
                with self.subTest(name=name, how=how):
                    page = self.open(name, **how)
                    self.assertEqual(page.problems(), [])
                    self.assertEqual(page.value("document.querySelectorAll('img, iframe, link, b.x').length"), 0)
                    self.assertLessEqual(page.value("document.documentElement.scrollWidth"), how.get("width", 1280))
                    self.assertTrue(page.pdf().startswith(b"%PDF"))
                    self.assertEqual(page.problems(), [])

    def test_every_figure_has_a_mark(self):
        for name in ("clouds", "three"):
            document = self.document(name)
            rows = [point for point in document["points"] if point["report"] == 1]
            plots = {plot["title"]: plot["series"] for plot in self.open(name).value(PLOTS)}
            with self.subTest(name=name):
                self.assertEqual(sorted(plots), ["Parts of the difference", "TPOT of each report"])
                times = plots["TPOT of each report"]
                self.assertEqual([series["values"] for series in times],
                                 [[row["tpot_ms"][at] for row in rows] for at in (0, 1)])
                self.assertEqual([series["within"] for series in times], [len(rows)] * 2)
                self.assertEqual([series["ends"] for series in times], [2 * len(rows)] * 2)
                self.assertEqual([series["ends_within"] for series in times], [2 * len(rows)] * 2)
                parts = plots["Parts of the difference"]
                self.assertEqual(len(parts), 10)  # nine, and their sum
                for series in parts:
                    self.assertEqual(series["within"], len(rows), series["label"])
                for at, row in enumerate(rows):
                    self.assertAlmostEqual(sum(series["values"][at] for series in parts[1:]), row["difference_ms"])

    def test_tables_hold_the_documents_numbers(self):
        document = self.document("clouds")
        tables = self.open("clouds").value(TABLES)
        rows = [row for table in tables for row in table]
        for point in document["points"]:
            found = [row for row in rows if row[1:4] == [*point["tpot_ms"], point["difference_ms"]]]
            self.assertEqual(len(found), 2)  # in the table below the plot, and in that of all points
            self.assertIn(point["verdict"], found[0][6])
        for difference in document["differences"]:
            self.assertIn([difference["what"], *difference["values"], difference["effect"]], rows)

    def test_what_neither_knows_is_no_figure(self):
        page = self.open("rehearsed")
        explained = self.document("rehearsed")["points"][0]["explained_ms"]
        self.assertIsNone(explained["allreduce_transfer"])
        self.assertIsNone(explained["allreduce_wait"])
        parts = next(plot for plot in page.value(PLOTS) if plot["title"] == "Parts of the difference")["series"]
        unknown = ("all-reduce transfer", "waiting for the slowest")
        self.assertEqual([series["values"] for series in parts if series["label"] in unknown], [[], []])
        self.assertIn("n/a", [cell for table in page.value(TABLES) for row in table for cell in row])
        self.assertIn("Not known, and not in the bars: all-reduce transfer, waiting for the slowest.", page.texts(".note"))

    def test_another_report_is_chosen(self):
        document = self.document("three")
        page = self.open("three")
        page.value("""((select) => { select.value = "1"; select.dispatchEvent(new Event("change")); })(
            document.querySelector("figure.plot select"))""")
        series = page.value(PLOTS)[0]["series"]
        self.assertEqual(series[1]["values"],
                         [point["tpot_ms"][1] for point in document["points"] if point["report"] == 2])
        self.assertIn("third", series[1]["label"])
        self.assertEqual(page.problems(), [])

    def test_texts_of_reports_stay_texts(self):
        page = self.open("three")
        name = "</script><img src=x onerror=alert(1)>"
        self.assertIn(name, page.value("document.body.innerText"))
        self.assertIn("<i>x</i>", page.value("document.body.innerText"))

    def test_no_point_in_common(self):
        page = self.open("none")
        self.assertEqual(page.value(PLOTS), [])
        self.assertIn("no point is in both", page.value("document.body.innerText"))
        self.assertIn("Points that one report lacks", page.value("document.body.innerText"))


if __name__ == "__main__":
    unittest.main()
