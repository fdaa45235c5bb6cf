"""Pages of made-up reports in a real browser: page_browser_test.py WRITE_PAGES [CLASS.test…].

Nothing but the file itself is asked for, nothing fails, every plot has marks, tables hold the report's numbers, and all
of it at 360 and 1280 pixels, in the dark, and in print.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import Browser  # noqa: E402

WRITE_PAGES = sys.argv.pop(1)
NAMES = ("big", "mixed", "single", "batches", "nothing_ok", "empty", "no_tpot", "replicas", "hostile", "predicted")

# What each plot shows: its title, and for each visible series how many values it has, how many marks and ends of
# whiskers lie within the axes, and in how many of them the canvas has the series' colour near the mark.
PLOTS = """(() => [...document.querySelectorAll("figure.plot .canvas")].filter((one) => !one.hidden).map((holder) => {
  const canvas = holder.querySelector("canvas");
  const chart = Chart.getChart(canvas);
  const ratio = chart.currentDevicePixelRatio;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const pen = copy.getContext("2d", {willReadFrequently: true});
  const number = (colour) => {
    pen.fillStyle = colour;
    return [1, 3, 5].map((at) => parseInt(pen.fillStyle.slice(at, at + 2), 16));
  };
  const colours = chart.data.datasets.map((one) => number(one.borderColor));
  pen.drawImage(canvas, 0, 0);
  const inked = (x, y, width, height, colour) => {
    const box = [x * ratio, y * ratio, Math.max(1, width * ratio), Math.max(1, height * ratio)].map(Math.round);
    const {data} = pen.getImageData(...box);
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 128 && colour.every((part, at) => Math.abs(part - data[i + at]) < 48)) return true;
    }
    return false;
  };
  const {left, right, top, bottom} = chart.chartArea;
  const series = chart.data.datasets.map((dataset, index) => {
    const value = (one) => (one !== null && typeof one === "object" ? one.y : one);
    const marks = chart.getDatasetMeta(index).data.filter((_, i) => Number.isFinite(value(dataset.data[i])));
    const within = marks.filter(({x, y}) => x >= left - 1 && x <= right + 1 && y >= top - 1 && y <= bottom + 1);
    const ends = (dataset.whiskers || dataset.data.map((one) => (one ? [one.low, one.high] : [])))
        .flatMap((pair) => pair || []).filter(Number.isFinite)
        .map((one) => chart.getDatasetMeta(index).yScale.getPixelForValue(one));
    const at = marks.map((mark) => (mark.base === undefined ? inked(mark.x - 7, mark.y - 7, 14, 14, colours[index]) :
        inked(mark.x - mark.width / 2 - 1, Math.min(mark.y, mark.base) - 1, mark.width + 2,
              Math.abs(mark.y - mark.base) + 2, colours[index])));
    return {label: dataset.label, values: marks.length, within: within.length, inked: at.filter(Boolean).length,
            hidden: !chart.isDatasetVisible(index), ends: ends.length,
            ends_within: ends.filter((y) => y >= top - 1 && y <= bottom + 1).length,
            flat: marks.every((mark) => mark.base !== undefined && Math.abs(mark.base - mark.y) < 3)};
  });
  const figure = holder.closest("figure");
  return {title: figure.querySelector("h3").textContent, how: figure.querySelector(".how").textContent, series,
          label: canvas.getAttribute("aria-label"), rows: figure.querySelectorAll("details tbody tr").length};
}))()"""

# The rows of a table as lists: exact numbers where cells have them, else texts.
TABLE = """((table) => [...table.querySelectorAll("tbody tr")].map((row) => [...row.children].map(
  (cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)))))"""


def figure(title):
    return ("[...document.querySelectorAll('figure.plot')]"
            f".find((one) => one.querySelector('h3').textContent === {json.dumps(title)})")


def table_of(page, title):
    return page.value(f"{TABLE}({figure(title)}.querySelector('details table'))")


def choose(page, title, text, nth=0):
    """Chooses the option of that text in a plot's chooser."""
    page.value(f"""((select) => {{
      select.value = [...select.options].find((one) => one.text === {json.dumps(text)}).value;
      select.dispatchEvent(new Event("change"));
    }})({figure(title)}.querySelectorAll("select")[{nth}])""")


def show(page, view):
    """Chooses what the plots show."""
    page.value(f"""((select) => {{
      select.value = [...select.options].find((one) => one.text === {json.dumps(view)}).value;
      select.dispatchEvent(new Event("change"));
    }})(document.querySelector(".views select"))""")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="shardscope-pages-")
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([WRITE_PAGES, cls.folder.name], check=True, timeout=120)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, name, **options):
        page = self.browser.open(pathlib.Path(self.folder.name) / f"{name}.html", **options)
        self.addCleanup(page.close)
        return page

    def report(self, name):
        return json.loads((pathlib.Path(self.folder.name) / f"{name}.json").read_text())

    def check_plots(self, page, name):
        plots = page.value(PLOTS)
        for plot in plots:
            self.assertTrue(plot["how"] and plot["label"], plot)
            self.assertGreater(plot["rows"], 0, f"{name}: {plot['title']}: no data table")
            self.assertTrue(any(one["values"] for one in plot["series"]), f"{name}: an empty plot: {plot}")
            for one in plot["series"]:
                place = f"{name}: {plot['title']}: {one}"
                self.assertEqual(one["within"], one["values"], f"{place}: marks outside the axes")
                self.assertEqual(one["ends_within"], one["ends"], f"{place}: whiskers outside the axes")
                if one["values"] and not one["flat"] and not one["hidden"]:
                    self.assertGreater(one["inked"], 0, f"{place}: nothing of its colour")
        return plots

    def check_width(self, page, name, width):
        wide = page.value(f"""[...document.querySelectorAll("main *")]
            .filter((one) => !one.closest(".table, .picture") && one.getBoundingClientRect().right > {width} + 1)
            .map((one) => one.tagName + "." + one.className)""")
        self.assertEqual(wide, [], f"{name}: wider than {width} pixels")
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), width, name)

    def test_every_report_at_two_widths_without_a_complaint_or_a_request(self):
        plotted = {}
        for name in NAMES:
            page = self.open(name, width=1280)
            self.assertEqual(page.problems(), [], name)
            self.assertIsNone(page.value("window.attacked"), name)
            plotted[name] = len(self.check_plots(page, name))
            self.check_width(page, name, 1280)
            page.size(360)
            self.check_width(page, name, 360)
            self.check_plots(page, name)
            self.assertEqual(page.problems(), [], name)
        self.assertEqual(plotted["big"], plotted["hostile"])
        self.assertEqual((plotted["nothing_ok"], plotted["empty"]), (0, 0))
        self.assertEqual(plotted["big"], 12)
        self.assertEqual(plotted["mixed"], 12)
        self.assertGreaterEqual(plotted["single"], 4)

    def test_a_page_with_a_fault_is_told(self):
        """The checks of this file find what they look for."""
        path = pathlib.Path(self.folder.name) / "fault.html"
        text = (pathlib.Path(self.folder.name) / "single.html").read_text()
        fault = '<img src="https://shardscope.invalid/x.png"><script>1</script>'
        path.write_text(text.replace("</body>", f"{fault}</body>"))
        page = self.open("fault")
        problems = "\n".join(page.problems())
        self.assertIn("Content Security Policy", problems)
        page.value("setTimeout(() => { throw new Error('late'); }, 0); console.error('said'); 1")
        page.value("new Promise((done) => setTimeout(done, 50))")
        problems = "\n".join(page.problems())
        self.assertIn("late", problems)
        self.assertIn("said", problems)
        page.value("document.querySelectorAll('canvas').forEach((one) => one.getContext('2d').reset())")
        with self.assertRaises(AssertionError):
            self.check_plots(page, "fault")

    def test_tables_hold_the_reports_numbers(self):
        page = self.open("big")
        results = self.report("big")["results"]
        rows = page.value(f"{TABLE}(document.querySelector('#rows table'))")
        self.assertEqual(len(rows), len(results))
        for shown, result in zip(rows, results):
            expected = [result["tp"], result["batch"], result["ttft_ms"]["p50"], result["tpot_ms"]["p50"],
                        result["noise"]["relative"], result["itl_ms"]["p99"], result["throughput_tokens_per_s"],
                        result["throughput_tokens_per_s"] / result["tp"], result["mbu"]["mean"],
                        result["mbu_achievable"]["mean"], result["speedup"], result["efficiency"], result["comm_share"]]
            self.assertEqual([value for value in shown if isinstance(value, (int, float))], expected)

        for batch in (1, 64):
            if batch > 1:
                choose(page, "Parts of a step", str(batch))
            parts = table_of(page, "Parts of a step")
            expected = [[row["tp"], row["tpot_ms"]["p50"], *row["attribution"].values()]
                        for row in results if row["batch"] == batch]
            self.assertEqual(parts, expected)
            for row in parts:
                self.assertAlmostEqual(sum(row[2:]), row[1], places=9)
        ranks = table_of(page, "Rank by rank")
        last = next(row for row in results if (row["tp"], row["batch"]) == (8, 1))
        self.assertEqual([row[2:-1] for row in ranks], [list(rank["attribution"].values()) for rank in last["ranks"]])
        lost = table_of(page, "What is lost against perfect scaling")
        losing = [row for row in results if row["batch"] == 1 and row["tp"] > 1]
        self.assertEqual([row[2:] for row in lost], [list(row["loss"].values()) for row in losing])
        heat = page.value("[...document.querySelectorAll('.heat b')].map((one) => Number(one.dataset.value))")
        self.assertEqual(heat, [row["mbu"]["mean"] for row in results])
        sums = table_of(page, "Time of one all-reduce")
        measured = last["allreduce_choices"]["measured"]
        self.assertEqual([value for row in sums for value in row[1:]], [one["time_us"] for one in measured])

    def test_choosers_and_legend(self):
        page = self.open("mixed")
        results = self.report("mixed")["results"]
        views = page.value("[...document.querySelectorAll('.views option')].map((one) => one.text)")
        self.assertIn("1024 + 32 tokens, placement worst, measured", views)
        show(page, "1024 + 32 tokens, placement worst, measured")
        shown = table_of(page, "Time per output token by TP degree")
        expected = [[row["tp"], row["batch"], row["tpot_ms"]["p50"]] for row in results
                    if row["placement"] == "worst" and row["prompt_tokens"] == 1024 and row["kind"] == "measured"]
        self.assertEqual([row[:3] for row in shown], sorted(expected))
        self.assertEqual(len(page.value("[...document.querySelectorAll('h1')].map((one) => 1)")), 1)
        canvas = f"{figure('Parts of a step')}.querySelector('.canvas canvas')"
        visible = f"Chart.getChart({canvas}).getVisibleDatasetCount()"
        before = page.value(visible)
        page.value(f"{figure('Parts of a step')}.querySelector('.legend button').click()")
        self.assertEqual(page.value(visible), before - 1)
        self.check_plots(page, "mixed, another view")

        show(page, "1024 + 32 tokens, placement best, rehearsed")
        self.check_plots(page, "mixed, rehearsed")
        self.assertIn("rehearsed, compute only", page.texts(".tile")[0])
        banner = page.texts(".banner")[0]
        self.assertIn("stated error of computing is at most 20 %. Of some rows the error is not known.", banner)
        notes = page.value(f"{figure('Parts of a step')}.querySelector('.note').textContent")
        self.assertIn("Not known, and not in the bars: all-reduce transfer, waiting for the slowest.", notes)
        expected = [row["attribution"][part] for row in results if row["kind"] == "rehearsed"
                    for part in ("allreduce_transfer", "allreduce_wait")]
        self.assertEqual(set(expected), {None})
        self.assertIn("n/a", table_of(page, "Parts of a step")[0])
        self.assertEqual(page.problems(), [])

    def test_placements_have_whiskers_and_hollow_marks(self):
        page = self.open("mixed")
        choose(page, "Placements", "8")
        chart = f"Chart.getChart({figure('Placements')}.querySelector('.canvas canvas'))"
        bars = page.value(f"""{chart}.data.datasets.map((one) => ({{label: one.label, whiskers: one.whiskers,
            hollow: one.backgroundColor.map((colour) => colour === "transparent")}}))""")
        self.assertEqual([one["label"] for one in bars], ["best", "worst"])
        for one in bars:
            rows = {row["tp"]: row for row in self.report("mixed")["results"]
                    if (row["prompt_tokens"], row["batch"], row["kind"], row["placement"]) == (128, 8, "measured", one["label"])
                    and row["tpot_ms"]["p50"] is not None}
            self.assertTrue(rows)
            degrees = sorted({row["tp"] for row in self.report("mixed")["results"] if row["kind"] == "measured"})
            self.assertEqual(one["whiskers"], [[rows[tp]["noise"][end] for end in ("low_ms", "high_ms")]
                                               if tp in rows else None for tp in degrees])
            self.assertEqual(one["hollow"], [tp in rows and rows[tp]["status"] != "ok" for tp in degrees])
        self.assertEqual([one["hollow"].count(True) for one in bars], [1, 0])
        self.assertIn("Hollow marks", page.value(f"{figure('Placements')}.querySelector('.note').textContent"))

    def test_predictions_show_their_range_and_no_noise(self):
        page = self.open("predicted")
        self.check_plots(page, "predicted")
        self.assertEqual(page.texts(".banner strong"), ["predicted"])
        title = "Time per output token by TP degree"
        self.assertIn("the range that the prediction states", page.value(f"{figure(title)}.querySelector('.note').textContent"))
        results = self.report("predicted")["results"]
        ranges = {(row["tp"], row["batch"]): row["range"]["tpot_ms"] for row in results}
        self.assertTrue(ranges)
        for row in table_of(page, title):
            self.assertEqual(row[3:5], ranges[(row[0], row[1])])
        self.assertIn("a prediction is one figure", "\n".join(page.texts(".missing")))
        self.assertNotIn("noise", "".join(page.texts(".tile")))
        self.assertEqual(page.problems(), [])

    def test_a_row_that_is_not_ok_has_no_heat(self):
        page = self.open("mixed")
        cells = page.value("""[...document.querySelectorAll(".heat td")].filter((one) => one.textContent).map((one) =>
            [one.textContent, one.className, one.style.backgroundColor])""")
        invalid = [cell for cell in cells if "invalid" in cell[0]]
        self.assertEqual(len(invalid), 1)
        self.assertRegex(invalid[0][0], "%")
        self.assertEqual(invalid[0][1:], ["bad", ""])
        coloured = [cell for cell in cells if cell[2]]
        self.assertGreater(len(coloured), 5)
        self.assertEqual({cell[1] for cell in coloured}, {""})

    def test_replicas_are_named_as_such(self):
        page = self.open("replicas")
        show(page, "64 + 16 tokens, replicas at once")
        self.check_plots(page, "replicas at once")
        self.assertIn("of all replicas of each degree", page.value(f"{figure('Throughput')}.querySelector('.how').textContent"))
        self.assertEqual([row[0] for row in table_of(page, "Throughput")], [1, 2])
        labels = page.value(f"Chart.getChart({figure('Throughput')}.querySelector('.canvas canvas')).data.labels")
        self.assertEqual(labels, ["4 × TP=1", "2 × TP=2"])
        self.assertTrue(page.texts(".tile")[0].endswith("2 × TP=2, batch 4"), page.texts(".tile"))
        show(page, "64 + 16 tokens, one group")
        self.assertIn("of one group of each degree", page.value(f"{figure('Throughput')}.querySelector('.how').textContent"))
        self.assertTrue(page.texts(".tile")[0].endswith("TP=4, batch 4"), page.texts(".tile"))

    def test_a_row_without_a_speed_up_is_neither_surely_faster_nor_slower(self):
        page = self.open("big")
        told = page.value("""Report.results.filter((row) => row.tp > 1).map((row) => [row, {...row, speedup: null}].map(
            (one) => [Report.surelyFaster(one), Report.surelyLoses(one)]))""")
        for at in (0, 1):
            self.assertIn(True, [with_one[at] for with_one, _ in told])
        self.assertEqual({(faster, slower) for _, (faster, slower) in told}, {(False, False)})

    def test_what_is_not_there_is_said_with_what_would_give_it(self):
        text = "\n".join(self.open("single").texts(".missing"))
        for remedy in ("--attribution on", "--tp 1,2,4", "--batch 1,2,4,8", "--prompt-tokens", "--samples"):
            self.assertIn(remedy, text)
        self.assertIn("--output-tokens", "\n".join(self.open("no_tpot").texts(".missing")))
        words = self.open("mixed").texts(".banner strong")
        self.assertEqual(words, ["rehearsed", "collectives", "synthetic weights", "incomplete", "3 of 60 rows not ok"])
        self.assertEqual(self.open("empty").texts(".banner strong"), ["synthetic weights", "incomplete", "no rows"])

    def test_texts_of_a_report_stay_texts(self):
        page = self.open("hostile")
        report = self.report("hostile")
        self.assertEqual(page.value("document.querySelectorAll('main script, main img').length"), 0)
        self.assertEqual(page.value("document.scripts.length"), 4)
        self.assertIn(report["model"]["name"], page.value("document.querySelector('h1').textContent"))
        self.assertEqual(page.value("document.title"), f"shardscope scale: {report['model']['name']}")
        self.assertEqual(page.texts(".advice li"), report["advice"])

    def test_colours_can_be_told_from_the_ground(self):
        contrast = """((selectors) => {
          const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
          const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
          const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
          const ground = (one) => {
            for (; one; one = one.parentElement) {
              const colour = parts(getComputedStyle(one).backgroundColor);
              if (colour.length < 4 || colour[3] === 1) return colour;
            }
            return [255, 255, 255];
          };
          const worst = {};
          for (const selector of selectors) {
            for (const one of document.querySelectorAll(selector)) {
              const [a, b] = [light(parts(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
              const ratio = (a + 0.05) / (b + 0.05);
              if (!(selector in worst) || ratio < worst[selector]) worst[selector] = ratio;
            }
          }
          const style = getComputedStyle(document.documentElement);
          const surface = light(ground(document.querySelector("section")));
          const pen = document.createElement("canvas").getContext("2d");
          for (let i = 0; i < 9; ++i) {
            pen.fillStyle = style.getPropertyValue(`--series-${i}`);
            const colour = light([1, 3, 5].map((at) => parseInt(pen.fillStyle.slice(at, at + 2), 16)));
            worst[`series ${i}`] = (Math.max(colour, surface) + 0.05) / (Math.min(colour, surface) + 0.05);
          }
          return [worst, surface];
        })(["h1", "p", "li", "td", "th", "dt", "dd", "a", "summary", "select", ".unit", ".banner", ".bad",
            ".legend button"])"""
        page = self.open("mixed")
        for dark in (False, True):
            page.scheme(dark)
            worst, surface = page.value(contrast)
            self.assertEqual(surface < 0.2, dark)
            for what, ratio in worst.items():  # as WCAG asks: 4.5 of text, 3 of graphics
                least = 3 if what.startswith("series") else 4.5
                self.assertGreater(ratio, least, f"{what}, {'dark' if dark else 'light'}")
            self.check_plots(page, "dark" if dark else "light")
        self.assertEqual(page.problems(), [])

    def test_print(self):
        for dark in (False, True):
            page = self.open("big", dark=dark)
            closed = "document.querySelectorAll('details:not([open])').length"
            before = page.value(closed)
            self.assertGreater(before, 0)
            page.value("dispatchEvent(new Event('beforeprint'))")
            self.assertEqual(page.value(closed), 0)
            surface = page.value("getComputedStyle(document.documentElement).getPropertyValue('--surface')")
            self.assertEqual(surface.strip(), "#ffffff")
            self.check_plots(page, "print")
            page.value("dispatchEvent(new Event('afterprint'))")
            self.assertEqual(page.value(closed), before)
            pdf = page.pdf()
            self.assertTrue(pdf.startswith(b"%PDF-"))
            self.assertGreaterEqual(pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page /"), 8)
            self.assertEqual(page.value(closed), before)
            self.check_plots(page, "after print")
            self.assertEqual(page.problems(), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
