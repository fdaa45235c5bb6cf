// TPOT and speed-up against the degree, and placements beside each other.
Report.sections.push((view) => {
  const {known} = Page;
  const tpot = (row) => Report.p50(row, "tpot_ms");
  const rows = Report.having(view, tpot);
  const section = Page.section("scaling", "Scaling");
  if (rows.length === 0) {
    section.append(Page.missing(
        "No TPOT", "no row has one; it needs at least two output tokens (--output-tokens 128) and a row that ran."));
    return;
  }
  const tps = Report.tpsOf(rows);
  const batches = Report.batchesOf(rows);
  const noise = Report.bounds;
  const predicted = rows.some((row) => row.kind === "predicted");

  const table = () => Page.table(
      [
        {name: "TP"}, {name: "batch"}, {name: "TPOT p50", unit: "ms"},
        {name: predicted ? "from" : "95 % from", unit: "ms"}, {name: "to", unit: "ms"}, {name: "speed-up"},
        {name: "efficiency", format: Page.percent}, {name: "against TP"}
      ],
      rows.map(
          (row) =>
              [row.tp, row.batch, tpot(row), noise(row).low_ms, noise(row).high_ms, row.speedup,
               {value: row.efficiency, text: Page.percent(row.efficiency)}, row.tp_base]),
      {heads: 2});
  const pointsOf = (batch, value) => rows.filter((row) => row.batch === batch && known(value(row)));

  function tpotLines() {
    const series = batches.map((batch, i) => ({
                                 label: `batch ${batch}`,
                                 style: i,
                                 points: pointsOf(batch, tpot).map((row) => ({
                                                                     x: row.tp,
                                                                     y: tpot(row),
                                                                     low: noise(row).low_ms,
                                                                     high: noise(row).high_ms,
                                                                     hollow: Report.doubtful(row)
                                                                   }))
                               }));
    const ideals = batches
                       .map((batch, i) => {
                         const [base, ...more] = pointsOf(batch, tpot);
                         if (!base || more.length === 0) return null;
                         return {
                           label: "ideal",
                           ideal: true,
                           style: 3,
                           unlisted: true,
                           points: [base, ...more].map((row) => ({x: row.tp, y: tpot(base) * base.tp / row.tp}))
                         };
                       })
                       .filter(Boolean);
    if (ideals.length > 0) ideals[0].unlisted = false;
    return Plots.lines({
      x: {label: "tensor-parallel degree", log: true, ticks: tps},
      y: {label: "TPOT p50 (ms)", log: true},
      series: [...series, ...ideals]
    });
  }

  function tpotBars() {
    return Plots.bars({
      categories: rows.map((row) => `batch ${row.batch}`),
      x: {label: `TP=${tps[0]}`},
      y: {label: "TPOT p50 (ms)"},
      series: [{
        label: "TPOT p50",
        values: rows.map(tpot),
        whiskers: rows.map((row) => [noise(row).low_ms, noise(row).high_ms]),
        hollow: rows.map(Report.doubtful)
      }],
      format: (value) => Page.figure(value)
    });
  }

  function speedups() {
    const series = batches.map((batch, i) => ({
                                 label: `batch ${batch}`,
                                 style: i,
                                 points: pointsOf(batch, (row) => row.speedup)
                                             .map((row) => ({x: row.tp, y: row.speedup, hollow: Report.doubtful(row)}))
                               }));
    const bases =
        Report.unique(rows.filter((row) => known(row.tp_base)).map((row) => row.tp_base)).sort(Report.ascending);
    const ideals = bases.map((base, i) => ({
                               label: bases.length > 1 ? `ideal against TP=${base}` : "ideal",
                               ideal: true,
                               points: tps.filter((tp) => tp >= base).map((tp) => ({x: tp, y: tp / base}))
                             }));
    return Plots.lines({
      x: {label: "tensor-parallel degree", log: true, ticks: tps},
      y: {label: "speed-up", log: true},
      series: [...series, ...ideals]
    });
  }

  const speedupTable = () => Page.table(
      [{name: "TP"}, ...batches.map((batch) => ({name: `batch ${batch}`}))],
      tps.map((tp) => [tp, ...batches.map((batch) => (Report.at(rows, tp, batch) || {}).speedup ?? null)]));

  const pair = Page.el("div", {class: "pair"});
  section.append(pair);
  const several = tps.length > 1;
  pair.append(Page.plot({
    height: 420,
    title: several ? "Time per output token by TP degree" : "Time per output token by batch",
    how: several ?
        "Lower is better. Both axes are logarithmic, so perfect scaling is the straight dashed line from the " +
            "smallest degree; what a line lies above it is lost." :
        "Lower is better; batches that decode in the same time share what is read.",
    draw: () => ({
      config: several ? tpotLines() : tpotBars(),
      table: table(),
      note: `${Report.boundsNote(rows)} ${Report.doubtNote(rows)}`,
      label: "TPOT p50 against the tensor-parallel degree, a line a batch, with ideal scaling"
    })
  }));
  if (several && rows.some((row) => known(row.speedup) && row.tp !== row.tp_base)) {
    pair.append(Page.plot({
      height: 420,
      title: "Speed-up by TP degree",
      how: "Higher is better: how many times faster than the smallest degree that ran. On the dashed line, " +
          "twice the devices take half the time.",
      draw: () => ({
        config: speedups(),
        table: speedupTable(),
        label: "speed-up against the tensor-parallel degree, a line a batch"
      })
    }));
  }
  if (!several)
    section.append(Page.missing(
        "One degree was measured", "scale --tp 1,2,4 shows how TPOT falls with the degree, and where the loss goes."));

  // Placements beside each other, where there are several.
  const all = Report.results.filter(
      (row) => row.prompt_tokens === view.prompt && row.output_tokens === view.output && row.kind === view.kind &&
          (row.replicas || 1) === 1 && known(tpot(row)));
  const placements = Report.unique(all.flatMap(Report.placementsOf));
  const devices = {
    linear: "the first ranks' devices (linear)",
    best: "those with the best links between them",
    worst: "those with the worst"
  };
  if (placements.length > 1) {
    section.append(Page.plot({
      title: "Placements",
      how: `TPOT of the same degree on ${
          placements.map((one) => devices[one] || one).join(", on ")}; equal bars are the same devices.`,
      choosers: [Report.batchChooser(all)],
      draw: (batch) => {
        const degrees = Report.tpsOf(all);
        const find = (tp, placement) =>
            all.find((row) => row.tp === tp && row.batch === batch && Report.placementsOf(row).includes(placement));
        const each = (placement, of) => degrees.map((tp) => find(tp, placement)).map((row) => (row ? of(row) : null));
        const values = (placement) => each(placement, tpot);
        const shown = all.filter((row) => row.batch === batch);
        return {
          config: Plots.bars({
            categories: degrees.map((tp) => `TP=${tp}`),
            x: {label: "tensor-parallel degree"},
            y: {label: "TPOT p50 (ms)"},
            series: placements.map((placement) => ({
                                     label: placement,
                                     values: values(placement),
                                     whiskers: each(placement, (row) => [noise(row).low_ms, noise(row).high_ms]),
                                     hollow: each(placement, Report.doubtful)
                                   }))
          }),
          note: `${Report.boundsNote(shown)} ${Report.doubtNote(shown)}`,
          table: Page.table(
              [{name: "TP"}, ...placements.map((placement) => ({name: placement, unit: "TPOT p50, ms"}))],
              degrees.map((tp, i) => [tp, ...placements.map((placement) => values(placement)[i])]))
        };
      }
    }));
  }
});
