// The topology, and every row with its verdicts.
Report.sections.push(() => {
  const {el} = Page;
  const section = Page.section("topology", "Topology");
  const {topology} = Report.report;
  if (!topology || topology.gpu_count === 0) {
    section.append(
        Page.missing("No GPU topology", "this run used no GPUs; shardscope topo shows how a machine's are joined."));
    return;
  }
  section.append(Page.picture("topology") || "", Page.facts([["class", topology.class], ["GPUs", topology.gpu_count]]));
  const gpus = (list) => (list || []).join(", ");
  const groups =
      Object.entries(topology.groups || {})
          .map(
              ([
                degree, group
              ]) => [Number(degree), gpus(group.best), group.best_narrowest, gpus(group.worst), group.worst_narrowest]);
  const columns =
      ["TP", "best GPUs", "narrowest link inside", "worst GPUs", "narrowest link inside"].map((name) => ({name}));
  if (groups.length > 0) section.append(Page.details("Groups of each degree", Page.table(columns, groups)));
  const warnings = topology.warnings || [];
  if (warnings.length > 0) section.append(el("ul", {class: "warnings"}, warnings.map((line) => el("li", {}, line))));
});

Report.sections.push(() => {
  const {el, known} = Page;
  const {results, p50} = Report;
  const section = Page.section(
      "rows", "All rows", "Every point that was to be measured, and what must be known before believing it.");
  const share = (value) => ({value: known(value) ? value : null, text: Page.percent(value)});
  const spread = (of) => {
    if (!of) return null;
    const [min, mean, max] = [of.min, of.mean, of.max].map(Page.percent);
    return {value: of.mean, text: min === max ? mean : `${min.replace(" %", "")} to ${max}`};
  };
  const replicas = (row) => row.replicas || 1;
  const rate = (row) => row.throughput_tokens_per_s;
  const differ = (of) => Report.unique(results.map(of)).length > 1;
  const lengths = (row) => `${row.prompt_tokens} + ${row.output_tokens}`;
  const placements = (row) => Report.placementsOf(row).join("/");
  const some = (of) => results.some((row) => known(of(row)) || (of(row) && known(of(row).mean)));
  const status = (row) => ({value: row.status.replaceAll("_", " "), class: row.status === "ok" ? null : "bad"});

  // Columns: name, unit, cell of a row, whether it is there.
  const columns = [
    ["TP", null, (row) => row.tp, true], ["placement", null, placements, differ(placements)],
    ["batch", null, (row) => row.batch, true], ["tokens", "prompt + output", lengths, differ(lengths)],
    ["kind", null, (row) => row.kind, differ((row) => row.kind)], ["replicas", null, replicas, differ(replicas)],
    ["status", null, status, true], ["TTFT", "p50, ms", (row) => p50(row, "ttft_ms"), true],
    ["TPOT", "p50, ms", (row) => p50(row, "tpot_ms"), true],
    ["±", "95 %", (row) => share(row.noise ? row.noise.relative : null), true],
    ["ITL", "p99, ms", (row) => (row.itl_ms ? row.itl_ms.p99 : null), true], ["tokens/s", null, rate, true],
    [
      "tokens/s", "per device", (row) => (known(rate(row)) ? rate(row) / (row.tp * row.pp * replicas(row)) : null), true
    ],
    ["MBU", "data sheet", (row) => spread(row.mbu), some((row) => row.mbu)],
    ["MBU", "achievable", (row) => spread(row.mbu_achievable), some((row) => row.mbu_achievable)],
    ["speed-up", null, (row) => row.speedup, some((row) => row.speedup)],
    ["efficiency", null, (row) => share(row.efficiency), some((row) => row.efficiency)],
    ["commu\u00adnication", "share", (row) => share(row.comm_share), some((row) => row.comm_share)]
  ].filter(([, , , there]) => there);
  section.append(Page.table(
      columns.map(([name, unit]) => ({name, unit})), results.map((row) => columns.map(([, , cell]) => cell(row)))));
  if (results.length > 0 && !differ(lengths)) {
    section.append(el("p", {class: "how"}, `All rows: ${lengths(results[0])} tokens, prompt and output.`));
  }

  const judged = results.filter((row) => (row.verdicts || []).length > 0);
  if (judged.length > 0) {
    const name = (row) => `TP=${row.tp}, ${placements(row)}, batch ${row.batch}, ${lengths(row)} tokens` +
        (replicas(row) > 1 ? `, ${row.replicas} replicas` : "");
    section.append(
        el("h3", {}, "Verdicts"),
        el("dl", {class: "verdicts"},
           judged.map((row) => [el("dt", {}, name(row)), row.verdicts.map((line) => el("dd", {}, line))])));
  } else if (results.length > 0) {
    section.append(el("p", {class: "how"}, "No row has a verdict against it."));
  }
});
