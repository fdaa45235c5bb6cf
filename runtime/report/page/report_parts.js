// Where the time goes: parts of TPOT by degree, what is lost against perfect scaling, and rank by rank.
Report.sections.push((view) => {
  const {known} = Page;
  const {parts} = Report;
  const section = Page.section("parts", "Where the time goes");
  const rows = Report.rowsOf(view).filter((row) => row.attribution && known(Report.p50(row, "tpot_ms")));
  if (rows.length === 0) {
    section.append(Page.missing(
        "No attribution",
        "no row has one. It comes from generations with instruments (--attribution on) of at least two output " +
            "tokens, and needs each rank's read bandwidth."));
    return;
  }
  const largestResidual = 0.05;  // of TPOT: beyond it the parts are not to be trusted
  const sum = (values) => parts.reduce((total, [name]) => total + (values[name] ?? 0), 0);
  const overlapping = (values) => parts.some(([name]) => values[name] < -0.005 * Math.abs(sum(values)));
  const series = (values) =>
      parts.map(([name, words], i) => ({label: words, style: i, values: values.map((one) => one[name])}));
  const columns = [{name: "TPOT p50", unit: "ms"}, ...parts.map(([, words]) => ({name: words, unit: "ms"}))];
  const cells = (total, values) => [total, ...parts.map(([name]) => values[name])];
  const share = (totals) => (value, i) =>
      totals[i] > 0 && Math.abs(value) / totals[i] >= 0.04 ? Page.percent(value / totals[i]) : "";
  const below = "Parts below zero are overlaps: subtract them from the height above zero to get the diamond.";
  const joined = (...sentences) => sentences.filter(Boolean).join(" ");
  const unknown = (list) => {
    const names = parts.filter(([name]) => list.some((values) => !known(values[name]))).map(([, words]) => words);
    return names.length > 0 ? `Not known, and not in the bars: ${names.join(", ")}.` : "";
  };

  const predicted = rows.some((row) => row.kind === "predicted");

  function ofDegrees(batch) {
    const axis = Report.axisOf(rows, batch);
    const totals = axis.rows.map((row) => Report.p50(row, "tpot_ms"));
    const values = axis.rows.map((row) => row.attribution);
    const worst = Math.max(...values.map((one, i) => Math.abs(one.residual) / totals[i]));
    const doubt = worst > largestResidual;
    const name = axis.label === "batch" ? "batch" : "tp";
    return {
      config: Plots.bars({
        categories: axis.rows.map(axis.nameOf),
        x: {label: axis.label},
        y: {label: "ms per output token"},
        stacked: true,
        series: series(values),
        markers: [{label: predicted ? "TPOT, predicted" : "TPOT p50, measured without instruments", values: totals}],
        format: share(totals)
      }),
      table: Page.table(
          [{name: name === "tp" ? "TP" : name}, ...columns],
          axis.rows.map((row, i) => [row[name], ...cells(totals[i], values[i])])),
      note: joined(
          doubt ? `Up to ${Page.percent(worst)} of TPOT are not explained: the parts are not to be trusted.` :
                  `Not explained: at most ${Page.percent(worst)} of TPOT.`,
          "Mean over the ranks.", values.some(overlapping) && below, unknown(values)),
      doubt,
      label: "stacked parts of the time per output token"
    };
  }

  function ofLosses(losing, batch) {
    const shown = losing.filter((row) => row.batch === batch);
    const values = shown.map((row) => row.loss);
    const totals = values.map(sum);
    const lost = shown.map((row, i) => (Report.surelyLoses(row) ? totals[i] : null));
    const within = shown.filter((row) => !Report.surelyLoses(row)).map((row) => `TP=${row.tp}`);
    const bases = Report.unique(shown.map((row) => row.tp_base)).join(", ");
    return {
      config: Plots.bars({
        categories: shown.map((row) => `TP=${row.tp}`),
        x: {label: `tensor-parallel degree, against TP=${bases}`},
        y: {label: "ms lost per output token"},
        stacked: true,
        series: series(values),
        markers: [{label: "lost in all", values: totals}],
        format: share(lost)
      }),
      table: Page.table(
          [{name: "TP"}, {name: "lost in all", unit: "ms"}, ...columns.slice(1)],
          shown.map((row, i) => [row.tp, ...cells(totals[i], values[i])])),
      note: joined(
          within.length < shown.length && "Percentages are of the loss.",
          within.length > 0 && !shown.every((row) => row.kind === "predicted") &&
              `${within.join(", ")}: the loss is not beyond the noise of the two rows.`,
          values.some(overlapping) &&
              "What scales better than its share lies below zero: subtract it to get the diamond.",
          unknown(values)),
      label: "stacked parts of the loss against perfect scaling"
    };
  }

  function ofRanks(row) {
    const ranks = row.ranks.filter((rank) => rank.attribution);
    const values = ranks.map((rank) => rank.attribution);
    const totals = values.map(sum);
    const waits = ranks.map((rank) => ({rank: rank.rank, ms: rank.attribution.allreduce_wait}))
                      .filter((one) => known(one.ms))
                      .sort((a, b) => a.ms - b.ms);
    const [least, most] = [waits[0], waits[waits.length - 1]];
    return {
      config: Plots.bars({
        categories: ranks.map((rank) => `rank ${rank.rank}`),
        x: {label: `ranks of TP=${row.tp}, batch ${row.batch}`},
        y: {label: "ms per output token"},
        stacked: true,
        series: series(values),
        markers: [{label: "TPOT p50", values: ranks.map(() => Report.p50(row, "tpot_ms"))}],
        format: share(totals)
      }),
      table: Page.table(
          [{name: "rank"}, ...columns, {name: "achievable", unit: "GB/s"}],
          ranks.map((rank, i) => [rank.rank, ...cells(totals[i], values[i]), rank.achievable_gb_per_s])),
      note: joined(
          waits.length > 1 &&
              `Rank ${least.rank} waits least (${Page.figure(least.ms)} ms a token), rank ${most.rank} most (${
                  Page.figure(most.ms)} ms).`,
          values.some(overlapping) && below, unknown(values)),
      label: "stacked parts of the time per output token of each rank"
    };
  }

  const pair = Page.el("div", {class: "pair"});
  section.append(pair);
  pair.append(Page.plot({
    title: "Parts of a step",
    height: 460,
    how: "Each bar is the time of one output token, from what memory at full speed would take (bottom) to what no " +
        "measurement explains (top); percentages are of TPOT.",
    choosers: Report.axisChoosers(rows),
    draw: ofDegrees
  }));
  const losing = rows.filter((row) => row.loss && row.tp !== row.tp_base);
  if (losing.length > 0) {
    pair.append(Page.plot({
      title: "What is lost against perfect scaling",
      height: 460,
      how: "Each bar is what this degree takes longer than its share of the smallest degree's time, by part.",
      choosers: [Report.batchChooser(losing)],
      draw: (batch) => ofLosses(losing, batch)
    }));
  } else {
    section.append(Page.missing("No loss by part", "it needs two degrees with an attribution: scale --tp 1,2,4."));
  }
  const groups = rows.filter((row) => row.ranks.filter((rank) => rank.attribution).length > 1);
  if (groups.length === 0) return;
  section.append(Page.plot({
    title: "Rank by rank",
    height: 400,
    how: "Who waits for whom: a rank with little waiting is the one that the others wait for.",
    choosers: [Report.rowChooser(groups)],
    draw: ofRanks
  }));
});
