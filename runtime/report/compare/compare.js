"use strict";
// The page of a comparison of reports: what differs, TPOT of each report at each point with its verdict, and where
// differences come from.
(() => {
  const {el} = Page;
  const comparison = Page.data("comparison");
  const {reports, points} = comparison;

  /// Names of the parts of TPOT, with words for a difference between two runs.
  const parts = [
    ["ideal_memory", "reading memory at full speed"], ["matrix_loss", "products of weights"],
    ["attention", "attention"], ["elementwise", "small operations"], ["allreduce_transfer", "all-reduce transfer"],
    ["allreduce_wait", "waiting for the slowest"], ["head_and_sampling", "LM head and sampling"],
    ["gaps", "launch gaps"], ["residual", "not explained"]
  ];
  const marks = {faster: "▲", slower: "▼", same: "=", unclear: "?"};

  const differing = (key) => new Set(points.map((point) => JSON.stringify(point[key]))).size > 1;
  /// "TP=4, batch 1", with what else tells points apart.
  function nameOf(point) {
    const words =
        [point.replicas > 1 ? `${point.replicas} × TP=${point.tp}` : `TP=${point.tp}`, `batch ${point.batch}`];
    if (differing("placements")) words.push(point.placements.join("/"));
    if (differing("prompt_tokens") || differing("output_tokens")) {
      words.push(`${point.prompt_tokens} + ${point.output_tokens}`);
    }
    if (differing("kind")) words.push(point.kind);
    return words.join(", ");
  }
  const reportName = (index) => `[${index + 1}] ${reports[index].name}`;
  const against = (index) => points.filter((point) => point.report === index);
  const others = reports.map((_, i) => i).slice(1);
  const chooser = {label: "report", options: others.map((index) => ({value: index, text: reportName(index)}))};

  function head() {
    Page.root.append(el("h1", {}, `${reports.map((one) => one.name).join(" against ")}`));
    if (comparison.incomparable.length > 0) {
      Page.root.append(Page.banner("not the same work", comparison.incomparable.join("; ")));
    }
    Page.root.append(el("p", {}, comparison.summary), Page.contents);
    const columns = ["report", "model", "command", "begun (UTC)", "host", "version", "commit", "points"];
    Page.root.append(Page.table(
        columns.map((name) => ({name})),
        reports.map(
            (one,
             i) => [reportName(i), one.model, one.command, one.time, one.host, one.version, one.commit, one.points]),
        {caption: "the reports"}));
  }

  function differences() {
    const section = Page.section("differences", "What differs between the runs", "The largest effect on times first.");
    if (comparison.differences.length === 0) {
      section.append(Page.missing("Nothing differs", "in anything that the reports tell."));
      return;
    }
    const columns = [{name: "what"}, ...reports.map((_, i) => ({name: reportName(i)})), {name: "effect"}];
    section.append(Page.table(columns, comparison.differences.map((one) => [one.what, ...one.values, one.effect])));
  }

  const range = (pair) => (pair ? `${Page.figure(pair[0])} to ${Page.figure(pair[1])}` : null);

  function pointTable(rows, several) {
    const columns = [
      {name: "point"}, ...(several ? [{name: "report"}] : []), {name: "TPOT [1]", unit: "ms"},
      {name: several ? "TPOT" : "TPOT [2]", unit: "ms"}, {name: "change", unit: "ms"}, {name: "ratio", unit: "x"},
      {name: "within noise", unit: "x"}, {name: "verdict"}, {name: "why"}
    ];
    return Page.table(
        columns,
        rows.map(
            (one) =>
                [nameOf(one), ...(several ? [reportName(one.report)] : []), one.tpot_ms[0], one.tpot_ms[1],
                 one.difference_ms, one.ratio, range(one.ratio_range), `${marks[one.verdict]} ${one.verdict}`,
                 one.words || one.reason || ""]),
        {heads: several ? 2 : 1, caption: "the points that both reports have"});
  }

  function times() {
    const section = Page.section("points", "Time per output token, point by point");
    if (points.length === 0) {
      section.append(Page.missing("No point", "is in the first report and in another."));
      return;
    }
    section.append(Page.plot({
      title: "TPOT of each report",
      height: 420,
      how: "Lower is better; whiskers are the 95 % intervals of the medians, widened to hold both visits'. A verdict " +
          "needs intervals that are well apart.",
      choosers: others.length > 1 ? [chooser] : [],
      draw: (index = 1) => {
        const rows = against(index);
        const series = [0, index].map((report, at) => ({
                                        label: reportName(report),
                                        style: report,
                                        values: rows.map((row) => row.tpot_ms[at]),
                                        whiskers: rows.map((row) => row.tpot_range_ms[at])
                                      }));
        return {
          config: Plots.bars({
            categories: rows.map((row) => `${nameOf(row)} ${marks[row.verdict]}`),
            x: {label: "point and verdict: ▲ faster, ▼ slower, = same, ? unclear"},
            y: {label: "TPOT p50 (ms)"},
            series
          }),
          table: pointTable(rows, false),
          label: "bars of the time per output token of two reports"
        };
      }
    }));
    section.append(pointTable(points, others.length > 1));
  }

  function explained() {
    const section = Page.section("explained", "Where the differences come from");
    const known_points = points.filter((point) => point.explained_ms);
    if (known_points.length === 0) {
      section.append(Page.missing("No parts", "a point of both reports needs an attribution (--attribution on)."));
      return;
    }
    const choices = chooser.options.filter(({value}) => known_points.some((point) => point.report === value));
    section.append(Page.plot({
      title: "Parts of the difference",
      height: 440,
      how: "What each part of a step takes more (above zero) or less (below) than in the first report; together they " +
          "are the difference of TPOT.",
      choosers: choices.length > 1 ? [{...chooser, options: choices}] : [],
      draw: (index = choices[0].value) => {
        const rows = against(index).filter((point) => point.explained_ms);
        const unknown = parts.filter(([name]) => rows.some((row) => !Page.known(row.explained_ms[name])));
        return {
          config: Plots.bars({
            categories: rows.map(nameOf),
            x: {label: "point"},
            y: {label: "ms per output token more than in the first report"},
            stacked: true,
            series: parts.map(
                ([name, words], i) => ({label: words, style: i, values: rows.map((row) => row.explained_ms[name])})),
            markers: [{label: "difference of TPOT p50", values: rows.map((row) => row.difference_ms)}]
          }),
          table: Page.table(
              [{name: "point"}, {name: "change", unit: "ms"}, ...parts.map(([, words]) => ({name: words, unit: "ms"}))],
              rows.map((row) => [nameOf(row), row.difference_ms, ...parts.map(([name]) => row.explained_ms[name])])),
          note: unknown.length > 0 ?
              `Not known, and not in the bars: ${unknown.map(([, words]) => words).join(", ")}.` :
              null,
          label: "stacked parts of the difference between two reports"
        };
      }
    }));
  }

  function lone() {
    if (comparison.lone_points.length === 0) return;
    const section = Page.section("lone", "Points that one report lacks");
    section.append(Page.table(
        ["TP", "replicas", "batch", "placement", "prompt", "output", "in", "not in"].map((name) => ({name})),
        comparison.lone_points.map(
            (one) =>
                [one.tp, one.replicas, one.batch, one.placements.join("/"), one.prompt_tokens, one.output_tokens,
                 reportName(one.report), reportName(one.lacks)])));
  }

  for (const draw of [head, times, explained, differences, lone]) draw();
  Page.show();
})();
