// Percentiles, a generation's steps and generations in order.
Report.sections.push((view) => {
  const {known} = Page;
  const section = Page.section("spread", "Spread of the times");
  const rows =
      Report.rowsOf(view).filter((row) => known(Report.p50(row, "tpot_ms")) || known(Report.p50(row, "itl_ms")));
  const names = ["p50", "p90", "p95", "p99"];
  const supported = (distribution, name) => !distribution.supported || distribution.supported[name] !== false;

  function percentiles(field, title, how) {
    return Page.plot({
      title,
      how,
      choosers: Report.axisChoosers(rows),
      draw: (batch) => {
        const axis = Report.axisOf(rows, batch);
        const of = (row, name) => (row[field] && known(row[field][name]) ? row[field][name] : null);
        const above = (row, name) =>
            (of(row, name) === null || !(of(row, "p50") > 0) ? null : (of(row, name) / of(row, "p50") - 1) * 100);
        const open =
            axis.rows.some((row) => names.some((name) => of(row, name) !== null && !supported(row[field], name)));
        const cell = (row, name) =>
            (of(row, name) === null || supported(row[field], name) ?
                 of(row, name) :
                 {value: of(row, name), text: `${Page.figure(of(row, name))}*`});
        return {
          config: Plots.bars({
            categories: axis.rows.map((row) => [axis.nameOf(row), `${Page.figure(of(row, "p50"))} ms`]),
            x: {label: `${axis.label}, and the median`},
            y: {label: "above the median (%)"},
            format: (value) => Page.figure(value),
            series: names.slice(1).map((name) => ({
                                         label: name,
                                         values: axis.rows.map((row) => above(row, name)),
                                         hollow: axis.rows.map((row) => row[field] && !supported(row[field], name))
                                       }))
          }),
          table:
              Page.table(
                  [
                    {name: "TP"}, {name: "batch"},
                    ...["mean", ...names, "min", "max"].map((name) => ({name, unit: "ms"})), {name: "values"}
                  ],
                  axis.rows.map(
                      (row) =>
                          [row.tp, row.batch, of(row, "mean"), ...names.map((name) => cell(row, name)), of(row, "min"),
                           of(row, "max"), row[field] ? row[field].n : null]),
                  {heads: 2}),
          note: open ?
              "Empty bars, and * in the data: too few independent values to say how well the percentile is known." :
              ""
        };
      }
    });
  }
  if (rows.length > 0 && rows.every((row) => row.kind === "predicted")) {
    section.append(Page.missing("No percentiles", "a prediction is one figure; its range stands in the plots above."));
    return;
  }
  if (rows.length > 0) {
    const pair = Page.el("div", {class: "pair"});
    pair.append(
        percentiles(
            "tpot_ms", "TPOT of generations",
            "How far the slow generations lie above the median; low bars are a steady machine. A value is " +
                "one generation's mean time per output token."),
        percentiles(
            "itl_ms", "ITL: gaps between tokens",
            "How far the long gaps between two output tokens lie above the median: what a reader of the " +
                "stream feels as stutter."));
    section.append(pair);
  } else {
    section.append(Page.missing("No percentiles", "no row has a TPOT."));
  }

  const sampled = Report.rowsOf(view).filter((row) => row.samples && row.samples.length > 0);
  if (sampled.length === 0) {
    section.append(Page.missing("No step times", "--samples keeps each generation's figures in the report."));
    return;
  }
  const median = (values) => {
    const sorted = [...values].sort(Report.ascending);
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
  const pair = Page.el("div", {class: "pair"});
  section.append(pair);
  pair.append(Page.plot({
    title: "Steps of a generation",
    how: "The gap before each output token: a slope is attention over a growing context, a spike is something " +
        "that disturbed all generations at the same place.",
    choosers: [Report.rowChooser(sampled)],
    draw: (row) => {
      const gaps = Math.max(...row.samples.map((sample) => sample.itl_ms.length));
      if (gaps === 0) return {missing: "One output token: no gaps between tokens."};
      const steps = Array.from({length: gaps}, (_, i) => row.samples.map((sample) => sample.itl_ms[i]).filter(known));
      const line = (label, style, of) => ({
        label,
        style,
        thin: style > 0,
        radius: gaps > 40 ? 0 : 3,
        points: steps.map((values, i) => ({x: i + 2, y: of(values)}))
      });
      return {
        config: Plots.lines({
          x: {label: "output token", loose: true},
          y: {label: "ms", loose: true},
          series: [
            line("median of the generations", 0, median), line("slowest", 1, (values) => Math.max(...values)),
            line("fastest", 2, (values) => Math.min(...values))
          ]
        }),
        table: Page.table(
            [
              {name: "token"}, {name: "median", unit: "ms"}, {name: "fastest", unit: "ms"},
              {name: "slowest", unit: "ms"}
            ],
            steps.map((values, i) => [i + 2, median(values), Math.min(...values), Math.max(...values)])),
        note: `${Page.counted(row.samples.length, "generation")}. The vertical axis need not begin at zero.`
      };
    }
  }));
  pair.append(Page.plot({
    title: "Generations in order",
    how: "Each mark is one measured generation; the two visits of a degree (while degrees go up, and down " +
        "again) should lie at the same height.",
    choosers: [Report.rowChooser(sampled)],
    draw: (row) => {
      const field = row.samples.some((sample) => known(sample.tpot_ms)) ? "tpot_ms" : "ttft_ms";
      const points = row.samples.map((sample, i) => ({pass: sample.pass, x: i + 1, y: sample[field]}))
                         .filter((point) => known(point.y));
      const word = field === "tpot_ms" ? "TPOT" : "TTFT";
      return {
        config: Plots.lines({
          x: {label: "generation", loose: true},
          y: {label: `${word} (ms)`, loose: true},
          series: [0, 1]
                      .map((pass) => ({
                             label: pass === 0 ? "first visit" : "second visit",
                             style: pass,
                             bare: true,
                             points: points.filter((point) => point.pass === pass)
                           }))
                      .filter((one) => one.points.length > 0)
        }),
        table: Page.table(
            [{name: "generation"}, {name: "visit"}, {name: word, unit: "ms"}],
            points.map((point) => [point.x, point.pass + 1, point.y])),
        note: "The vertical axis need not begin at zero."
      };
    }
  }));
});
