// What was measured, in what state it is, what follows from it.
Report.sections.push((view) => {
  const {report, results} = Report;
  const {el} = Page;
  const model = report.model || {};
  const environment = report.environment || {};

  const predicted = results.length > 0 && results.every((row) => row.kind === "predicted");

  function devices() {
    if (predicted) return null;  // the backend's line names them
    const gpus = environment.devices || [];
    if (gpus.length === 0) {
      const ranks = (environment.ranks || []).length;
      return `${environment.cpu || "CPU"}, ${Page.counted(ranks, "rank")} of ${
          Page.counted(environment.threads_per_rank || 1, "thread")}`;
    }
    const counts = new Map();
    for (const gpu of gpus) counts.set(gpu.name || "GPU", (counts.get(gpu.name || "GPU") || 0) + 1);
    return [...counts].map(([name, count]) => `${count} × ${name}`).join(", ");
  }

  function weights() {
    const quantisation = model.quantisation || {};
    const stored = quantisation.scheme && quantisation.scheme !== "none" ? quantisation.scheme : model.dtype;
    return `${stored}, ${Page.bytes(model.bytes ? model.bytes.total : null)}`;
  }

  /// Whether times leave out collectives, since nothing is known of theirs.
  const computeOnly = (rehearsal) => rehearsal && rehearsal.step_collectives_ms === null;

  function banners() {
    const kinds = Report.unique(results.map((row) => row.kind));
    const share = () => (kinds.length > 1 ? "Some figures are" : "All figures are");
    const rehearsals = results.map((row) => row.rehearsal).filter(Boolean);
    const worst = Math.max(...rehearsals.map((one) => one.stated_error || 0));
    const stated = rehearsals.some(computeOnly) ? "computing" : "TPOT";
    const unknown = rehearsals.some((one) => one.stated_error === null) ? " Of some rows the error is not known." : "";
    const errors = (worst > 0 ? ` The stated error of ${stated} is at most ${Page.percent(worst)}.` : "") + unknown;
    const lines = [];
    if (kinds.includes("emulated"))
      lines.push(["emulated", "The devices are stand-ins of the tests: times say nothing about any machine."]);
    if (kinds.includes("rehearsed"))
      lines.push([
        "rehearsed",
        `${share()} rehearsed: one device stood for all ranks of a degree, and collectives are modelled.${errors}`
      ]);
    for (const model of Report.unique(rehearsals.map((one) => one.collective_model)))
      lines.push(["collectives", model]);
    if (kinds.includes("predicted"))
      lines.push([
        "predicted",
        `${share()} predicted: nothing was run. Whiskers are the stated ranges; --json has what they rest on.`
      ]);
    if (model.kind === "synthetic" && !predicted)
      lines.push([
        "synthetic weights", "The weights are random numbers of the model's shape: times are as real, texts are not."
      ]);
    if (model.layers_cut)
      lines.push(["layers cut", `${model.layers} of ${model.layers_in_file} layers: no figure is the whole model's.`]);
    if (report.complete === false) lines.push(["incomplete", "The run had not ended when this was written."]);
    const bad = results.filter((row) => row.status !== "ok").length;
    if (bad > 0) lines.push([`${bad} of ${Page.counted(results.length, "row")} not ok`, "See the table of all rows."]);
    if (results.length === 0) lines.push(["no rows", "Nothing was measured."]);
    return lines.map(([word, sentence]) => Page.banner(word, sentence));
  }

  /// The row with the best figure, as a tile.
  function tile(name, value, better, text, suffix = () => "") {
    const kind = (row) =>
        (view.kind === "measured" ? "" : `, ${view.kind}${computeOnly(row.rehearsal) ? ", compute only" : ""}`);
    const rows = Report.having(view, value).filter((row) => row.status === "ok");
    if (rows.length === 0) return null;
    const best = rows.reduce((a, b) => (better(value(b), value(a)) ? b : a));
    return el(
        "div", {class: "tile"}, el("span", {}, name), el("b", {}, text(value(best))),
        el("span", {}, `${Report.groupOf(best)}, batch ${best.batch}${suffix(best)}${kind(best)}`));
  }

  const less = (a, b) => a < b;
  const more = (a, b) => a > b;
  const mean = (spread) => (spread ? spread.mean : null);
  const mbu = Report.having(view, (row) => mean(row.mbu)).length > 0 ? "mbu" : "mbu_achievable";
  const severalTps = Report.tpsOf(Report.rowsOf(view)).length > 1;
  const what = report.command === "scale" ? "TP scaling of " :
      report.command === "bench"          ? "Benchmark of " :
                                            `${report.command}: `;

  Page.root.append(
      el("header", {class: "head"}, el("h1", {}, what, model.name || "a model"),
         el("p", {class: "subtitle"},
            [
              weights(), devices(), environment.host ? `host ${environment.host}` : null, environment.backend,
              environment.time ? environment.time.replace("T", " ").replace("Z", " UTC") : null
            ].filter(Boolean)
                .join(" · ")),
         banners(),
         el("div", {class: "tiles"},
            tile("lowest TPOT (p50)", (row) => Report.p50(row, "tpot_ms"), less, (value) => `${Page.figure(value)} ms`),
            tile(
                "best speed-up", (row) => (severalTps && row.tp !== row.tp_base ? row.speedup : null), more,
                (value) => `${Page.figure(value)}×`,
                (row) => ` against TP=${row.tp_base}, ${Page.percent(row.efficiency)} of ideal${
                    predicted || Report.surelyFaster(row) ? "" : "; not beyond the noise"}`),
            tile("most tokens per second", (row) => row.throughput_tokens_per_s, more, (value) => Page.figure(value)),
            tile(
                mbu === "mbu" ? "highest MBU (data sheet)" : "highest MBU (achievable)", (row) => mean(row[mbu]), more,
                Page.percent)),
         report.advice && report.advice.length ?
             el("ul", {class: "advice"}, report.advice.map((line) => el("li", {}, line))) :
             null,
         report.warnings && report.warnings.length ?
             el("ul", {class: "warnings"}, report.warnings.map((line) => el("li", {}, `warning: ${line}`))) :
             null));
  Page.root.append(Page.contents);
  if (Report.views.length > 1) {
    const first = [view, ...Report.views.filter((one) => one !== view)];
    Page.root.append(
        el("div", {class: "views"}, Page.chooser("Plots show", Report.options(first, Report.nameOf), Report.show)));
  } else if (results.length > 0) {
    Page.root.append(el("p", {class: "how"}, `Workload: ${Report.nameOf(view)}.`));
  }
});
