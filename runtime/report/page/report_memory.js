// Memory bandwidth: MBU by degree and batch, and the roofline.
Report.sections.push((view) => {
  const {el, known} = Page;
  const section = Page.section("memory", "Memory bandwidth");
  const rows = Report.rowsOf(view);
  const measures = [
    ["mbu", "of the data sheet's bandwidth"], ["mbu_achievable", "of what reading achieves here"],
    ["mbu_useful", "of the data sheet's, without copies and padding"]
  ].filter(([name]) => rows.some((row) => row[name]));
  const tps = Report.tpsOf(rows);
  const batches = Report.batchesOf(rows);

  function heatCell(row, name) {
    if (!row) return {value: null, text: "–"};
    if (row.status !== "ok" && !row[name]) return {value: null, text: row.status.replaceAll("_", " "), class: "bad"};
    if (!row[name]) return {value: null, text: row.cache_resident ? "in cache" : Page.unknown};
    const {min, mean, max} = row[name];
    const differ = Page.percent(min) !== Page.percent(max);
    const node =
        el("div", {"data-min": min, "data-max": max}, el("b", {"data-value": mean}, Page.percent(mean)),
           differ ? el("span", {}, `${Page.percent(min).replace(" %", "")} to ${Page.percent(max)}`) : null);
    if (row.status === "ok") return {value: node, heat: mean};
    node.append(el("span", {}, row.status.replaceAll("_", " ")));
    return {value: node, class: "bad"};
  }

  function heatMap(name) {
    const head = el("tr", {}, el("td", {}), batches.map((batch) => el("th", {scope: "col"}, `batch ${batch}`)));
    const body = tps.map((tp) => el("tr", {}, el("th", {scope: "row"}, `TP=${tp}`), batches.map((batch) => {
                           const {value, text, heat, class: css} = heatCell(Report.at(rows, tp, batch), name);
                           const cell = el("td", {class: css}, value === null ? text : value);
                           if (known(heat))
                             cell.style.backgroundColor =
                                 `rgba(var(--heat), ${(0.06 + 0.5 * Math.min(1, heat)).toFixed(3)})`;
                           return cell;
                         })));
    return el(
        "div", {class: "table heat", tabindex: "0", role: "region", "aria-label": "MBU by degree and batch"},
        el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
  }

  if (measures.length > 0) {
    const holder = el("div", {}, heatMap(measures[0][0]));
    section.append(
        el("figure", {class: "plot"},
           el("figcaption", {}, el("h3", {}, "Model bandwidth utilisation"),
              el("p", {class: "how"},
                 "A stronger colour is better: what share of the memory bandwidth the bytes of a decode step take, " +
                     "mean over the ranks, and below it the least and the most of them where they differ. Over " +
                     "100 % the row is invalid: a wrong peak, wrong bytes, or a cache.")),
           el("div", {class: "choosers"},
              Page.chooser(
                  "measure", Report.options(measures, ([name, words]) => `${name}: ${words}`),
                  ([name]) => holder.replaceChildren(heatMap(name)))),
           holder));
    if (!measures.some(([name]) => name === "mbu"))
      section.append(Page.missing(
          "No MBU against a data sheet", "--peak-bandwidth GB_PER_S gives the peak of one rank's device or share."));
  } else {
    const cached = rows.some((row) => row.cache_resident);
    section.append(Page.missing(
        "No MBU",
        cached ? "what a step reads fits the caches, so memory bandwidth says nothing; a larger model or batch would." :
                 "no row has a TPOT and a read bandwidth."));
  }

  // Roofline of the weights' products: 2 operations a parameter and sequence, over the bytes a rank moves. A table of
  // embeddings that is not the head, too, is in no product.
  const mean = (values) => values.reduce((total, value) => total + value, 0) / values.length;
  const moved = (rank) => rank.bytes_per_step.weights + rank.bytes_per_step.kv_read + rank.bytes_per_step.kv_write;
  const model = Report.report.model || {};
  const parameters = model.parameters - (model.tied_embeddings ? 0 : model.vocab * model.hidden);
  const points = rows.filter(
                         (row) => known(Report.p50(row, "tpot_ms")) && row.ranks.length > 0 && !row.cache_resident &&
                             row.mbu_achievable && parameters > 0)
                     .map((row) => {
                       const bytes = mean(row.ranks.map(moved));
                       const operations = 2 * parameters * row.batch / (row.tp * row.pp);
                       const seconds = Report.p50(row, "tpot_ms") / 1e3;
                       return {
                         row,
                         x: operations / bytes,
                         y: operations / seconds / 1e9,
                         rate: bytes / seconds / 1e9,
                         achievable: mean(row.ranks.map((rank) => rank.achievable_gb_per_s))
                       };
                     });
  if (points.length < 2) {
    if (points.length === 1)
      section.append(Page.missing("No roofline of one point", "--batch 1,4,16 shows how it rises with the batch."));
    return;
  }
  const peaks = Report.report.environment || {};
  section.append(Page.plot({
    title: "Roofline",
    how: "How far the products of weights are from what memory allows: the slanted lines are a rank's memory " +
        "bandwidth, a mark below one is time spent otherwise. A larger batch does more with each byte and " +
        "moves right.",
    draw: () => {
      const low = Math.min(...points.map((point) => point.x)) / 1.5;
      const high = Math.max(...points.map((point) => point.x)) * 1.5;
      const roof = (label, rate, style) => ({
        label,
        ideal: true,
        style,
        points: [low, high].map((x, i) => ({x, y: x * rate, text: i === 1 ? label : null}))
      });
      const rates =
          Report.tpsOf(points.map((point) => point.row))
              .map((tp) => [tp, mean(points.filter((point) => point.row.tp === tp).map((point) => point.achievable))]);
      const spread = Math.max(...rates.map(([, rate]) => rate)) / Math.min(...rates.map(([, rate]) => rate));
      const roofs = spread < 1.1 ?
          [roof(
              `achievable, ${Page.figure(mean(rates.map(([, rate]) => rate)))} GB/s a rank`,
              mean(rates.map(([, rate]) => rate)), 0)] :
          rates.map(([tp, rate]) => roof(`achievable at TP=${tp}, ${Page.figure(rate)} GB/s a rank`, rate, 0));
      if (known(peaks.peak_gb_per_s))
        roofs.push(roof(`data sheet, ${Page.figure(peaks.peak_gb_per_s)} GB/s`, peaks.peak_gb_per_s, 1));
      if (known(peaks.peak_tflops))
        roofs.push({
          label: `compute peak, ${Page.figure(peaks.peak_tflops)} TFLOP/s`,
          ideal: true,
          style: 2,
          points: [low, high].map(
              (x, i) =>
                  ({x, y: peaks.peak_tflops * 1e3, text: i === 1 ? `${Page.figure(peaks.peak_tflops)} TFLOP/s` : null}))
        });
      return {
        config: Plots.lines({
          x: {label: "FLOP per byte", log: true},
          y: {label: "GFLOP/s of a rank", log: true},
          series: [
            ...Report.tpsOf(points.map((point) => point.row))
                .map(
                    (tp, i) => ({
                      label: `TP=${tp}`,
                      style: i,
                      points: points.filter((point) => point.row.tp === tp)
                                  .map(({row, x, y}) => ({x, y, text: String(row.batch), hollow: Report.doubtful(row)}))
                    })),
            ...roofs
          ]
        }),
        table:
            Page.table(
                [
                  {name: "TP"}, {name: "batch"}, {name: "intensity", unit: "FLOP/byte"},
                  {name: "of a rank", unit: "GFLOP/s"}, {name: "read and written", unit: "GB/s"},
                  {name: "achievable", unit: "GB/s"}
                ],
                points.map(({row, x, y, rate, achievable}) => [row.tp, row.batch, x, y, rate, achievable]), {heads: 2}),
        note: "Numbers at marks: batch. Operations: 2 a parameter and sequence, divided by the degree " +
            "(attention's own are left out, and so is a table of embeddings that is not the head); bytes: weights " +
            "and KV of a step, mean of the ranks."
      };
    }
  }));
});
