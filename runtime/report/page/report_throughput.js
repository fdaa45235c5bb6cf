// Throughput against latency, and TTFT against the prompt's length.
Report.sections.push((view) => {
  const {known} = Page;
  const section = Page.section("throughput", "Throughput and latency");
  const latency = (row) => Report.p50(row, "latency_ms");
  const rate = (row) => row.throughput_tokens_per_s;
  const rows = Report.having(view, rate);
  const pair = Page.el("div", {class: "pair"});
  section.append(pair);
  const columns = [
    {name: "TP"}, {name: "batch"}, {name: "tokens/s"}, {name: "tokens/s per device"}, {name: "latency p50", unit: "ms"},
    {name: "TPOT p50", unit: "ms"}
  ];
  const table = () => Page.table(
      columns,
      rows.map(
          (row) =>
              [row.tp, row.batch, rate(row), rate(row) / (row.tp * row.pp * (row.replicas || 1)), latency(row),
               Report.p50(row, "tpot_ms")]),
      {heads: 2});

  if (Report.batchesOf(rows).length > 1) {
    const points = (tp) =>
        rows.filter((row) => row.tp === tp && known(latency(row)))
            .map((row) => ({x: latency(row), y: rate(row), text: String(row.batch), hollow: Report.doubtful(row)}));
    pair.append(Page.plot({
      title: "Throughput against latency",
      how: "Up and to the left is better. Along a line the batch grows (numbers at the marks): more tokens " +
          "per second, each request slower.",
      draw: () => ({
        config: Plots.lines({
          x: {label: "latency p50, arrival to last token (ms)", log: true},
          y: {label: "output tokens/s", log: true},
          series: Report.tpsOf(rows).map((tp, i) => ({label: `TP=${tp}`, style: i, points: points(tp)}))
        }),
        table: table(),
        label: "output tokens per second against latency, a line a degree, marks labelled by batch"
      })
    }));
  } else if (rows.length > 0) {
    pair.append(Page.plot({
      title: "Throughput",
      how: `Output tokens per second of ${view.together ? "all replicas" : "one group"} of each degree at batch ${
          rows[0].batch}${view.together ? " each" : ""}; more is better.`,
      draw: () => ({
        config: Plots.bars({
          categories: rows.map(Report.groupOf),
          x: {label: "tensor-parallel degree"},
          y: {label: "output tokens/s"},
          series: [{label: "tokens/s", values: rows.map(rate), hollow: rows.map(Report.doubtful)}],
          format: Page.figure
        }),
        table: table()
      })
    }));
    section.append(Page.missing("One batch was measured", "--batch 1,2,4,8 shows what throughput costs in latency."));
  } else {
    section.append(Page.missing("No throughput", "no row has one."));
  }

  // TTFT against the prompt's length: rows of all lengths that agree in the rest.
  const ttft = (row) => Report.p50(row, "ttft_ms");
  const ttftBounds = (row) => (row.range || {}).ttft_ms || row.ttft_ms.ci95.p50;
  const all = Report.results.filter(
      (row) => row.output_tokens === view.output && row.kind === view.kind &&
          (row.replicas || 1) > 1 === view.together && Report.placementsOf(row).includes(view.placement) &&
          known(ttft(row)));
  const lengths = Report.unique(all.map((row) => row.prompt_tokens)).sort(Report.ascending);
  if (lengths.length < 2) {
    section.append(Page.missing(
        "One prompt length was measured", "--prompt-tokens 128,512,2048 shows how TTFT grows with the prompt."));
    return;
  }
  pair.append(Page.plot({
    title: "Time to first token by prompt length",
    how:
        "Lower is better. Both axes are logarithmic: a straight line of slope one is a constant time per prompt token.",
    choosers: [Report.batchChooser(all)],
    draw: (batch) => {
      const shown =
          all.filter((row) => row.batch === batch).sort((a, b) => a.tp - b.tp || a.prompt_tokens - b.prompt_tokens);
      return {
        config: Plots.lines({
          x: {label: "prompt tokens", log: true, ticks: lengths},
          y: {label: "TTFT p50 (ms)", log: true},
          series:
              Report.tpsOf(shown).map((tp, i) => ({
                                        label: `TP=${tp}`,
                                        style: i,
                                        points: shown.filter((row) => row.tp === tp).map((row) => ({
                                                                                           x: row.prompt_tokens,
                                                                                           y: ttft(row),
                                                                                           low: ttftBounds(row)[0],
                                                                                           high: ttftBounds(row)[1],
                                                                                           hollow: Report.doubtful(row)
                                                                                         }))
                                      }))
        }),
        table: Page.table(
            [{name: "TP"}, {name: "prompt tokens"}, {name: "TTFT p50", unit: "ms"}, {name: "p99", unit: "ms"}],
            shown.map((row) => [row.tp, row.prompt_tokens, ttft(row), row.ttft_ms.p99]), {heads: 2}),
        note: shown.some((row) => row.kind === "predicted") ? Report.boundsNote(shown) :
                                                              "Whiskers: 95 % interval of the median."
      };
    }
  }));
});
