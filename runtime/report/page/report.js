"use strict";
// The page of a report: what its other files draw from. A view is what the figures of one plot have in common:
// placement, lengths, kind, and whether replicas ran together; within a view a row is a TP degree and a batch.
const Report = (() => {
  const report = Page.data("report");
  const results = report.results || [];
  const known = Page.known;

  /// Names of a result's parts of TPOT in the order in which they are stacked, with words for people.
  const parts = [
    ["ideal_memory", "memory at full speed"], ["matrix_loss", "small matrices"], ["attention", "attention"],
    ["elementwise", "small operations"], ["allreduce_transfer", "all-reduce transfer"],
    ["allreduce_wait", "waiting for the slowest"], ["head_and_sampling", "LM head and sampling"],
    ["gaps", "launch gaps"], ["residual", "not explained"]
  ];

  const unique = (values) => [...new Set(values)];
  const ascending = (a, b) => a - b;
  const placementsOf = (row) => [row.placement, ...(row.placement_also || [])];
  const together = (row) => (row.replicas || 1) > 1;
  /// "TP=2", "4 × TP=2" of replicas at once.
  const groupOf = (row) => (together(row) ? `${row.replicas} × TP=${row.tp}` : `TP=${row.tp}`);
  const p50 = (row, name) => (row[name] ? row[name].p50 : null);

  function viewsOf() {
    const views = new Map();
    for (const row of results) {
      for (const placement of placementsOf(row)) {
        const view =
            {placement, prompt: row.prompt_tokens, output: row.output_tokens, kind: row.kind, together: together(row)};
        views.set(JSON.stringify(view), view);
      }
    }
    return [...views.values()];
  }
  const views = viewsOf();

  function rowsOf(view) {
    return results
        .filter(
            (row) => placementsOf(row).includes(view.placement) && row.prompt_tokens === view.prompt &&
                row.output_tokens === view.output && row.kind === view.kind && together(row) === view.together)
        .sort((a, b) => a.tp - b.tp || a.batch - b.batch);
  }

  /// "512 + 128 tokens, placement best"; what all views share is left out.
  function nameOf(view) {
    const differ = (key) => unique(views.map((one) => one[key])).length > 1;
    const words = [`${view.prompt} + ${view.output} tokens`];
    if (differ("placement")) words.push(`placement ${view.placement}`);
    if (differ("kind")) words.push(view.kind);
    if (differ("together")) words.push(view.together ? "replicas at once" : "one group");
    return words.join(", ");
  }

  /// The rows of a view that have a figure: value(row) is a number.
  function having(view, value) {
    return rowsOf(view).filter((row) => known(value(row)));
  }

  const tpsOf = (rows) => unique(rows.map((row) => row.tp)).sort(ascending);
  const batchesOf = (rows) => unique(rows.map((row) => row.batch)).sort(ascending);
  const options = (values, text = String) => values.map((value) => ({value, text: text(value)}));
  const at = (rows, tp, batch) => rows.find((row) => row.tp === tp && row.batch === batch);

  /// A chooser of batches, the smallest first.
  const batchChooser = (rows) => ({label: "batch", options: options(batchesOf(rows))});
  /// A chooser of rows, the last (the greatest degree at the smallest batch) first.
  function rowChooser(rows) {
    const sorted = [...rows].sort((a, b) => b.tp - a.tp || a.batch - b.batch);
    return {label: "row", options: options(sorted, (row) => `${groupOf(row)}, batch ${row.batch}`)};
  }

  /// Degrees, or where there is one alone, batches: what stands along an axis. {label, rows, nameOf(row)}.
  function axisOf(rows, batch) {
    const several = tpsOf(rows).length > 1 || batchesOf(rows).length === 1;
    return several ?
        {label: "tensor-parallel degree", rows: rows.filter((row) => row.batch === batch), nameOf: groupOf} :
        {label: "batch", rows, nameOf: (row) => `batch ${row.batch}`};
  }
  /// The choosers that such an axis needs.
  const axisChoosers = (rows) => (tpsOf(rows).length > 1 || batchesOf(rows).length === 1 ? [batchChooser(rows)] : []);

  /// The row that this one's speed-up and loss are against.
  function baseOf(row) {
    return results.find(
        (one) => one.tp === row.tp_base && one.batch === row.batch && one.prompt_tokens === row.prompt_tokens &&
            one.output_tokens === row.output_tokens && one.kind === row.kind && together(one) === together(row) &&
            placementsOf(one).some((placement) => placementsOf(row).includes(placement)));
  }

  /// Within which the row's TPOT is known: the 95 % interval of the median, or the range that a prediction states.
  function bounds(row) {
    const range = (row.range || {}).tpot_ms;
    return range ? {low_ms: range[0], high_ms: range[1]} : row.noise || {};
  }
  const boundsNote = (rows) =>
      (rows.some((row) => row.kind === "predicted") ?
           "Whiskers: the range that the prediction states." :
           "Whiskers: the 95 % interval of the median, both visits included.");

  /// Whether TPOT is less (or more) than `share` of the base row's, whatever the two are within their noise.
  function surely(row, more, share) {
    const [mine, others] = [row, baseOf(row)].map((one) => (one ? one.noise : null) || {});
    return more ? known(mine.low_ms) && known(others.high_ms) && mine.low_ms > others.high_ms * share :
                  known(mine.high_ms) && known(others.low_ms) && mine.high_ms < others.low_ms * share;
  }
  /// Neither can be told of a row without a speed-up: its TPOT, or the base's, leaves something out.
  const surelyFaster = (row) => known(row.speedup) && surely(row, false, 1);
  const surelyLoses = (row) => known(row.speedup) && surely(row, true, row.tp_base / row.tp);

  /// A figure that is not to be trusted like the others is drawn hollow.
  const doubtful = (row) => row.status !== "ok";
  const doubtNote = (rows) =>
      (rows.some(doubtful) ? "Hollow marks: rows whose status is not ok, see the table of all rows." : "");

  const sections = [];  // of the page, in order: functions of a view, as the other files add them

  function show(view) {
    Page.clear();
    for (const draw of sections) draw(view);
    Page.show();
  }

  return {
    report,
    results,
    parts,
    views,
    rowsOf,
    nameOf,
    having,
    tpsOf,
    batchesOf,
    options,
    at,
    batchChooser,
    rowChooser,
    axisOf,
    axisChoosers,
    bounds,
    boundsNote,
    doubtful,
    doubtNote,
    placementsOf,
    groupOf,
    surelyFaster,
    surelyLoses,
    p50,
    unique,
    ascending,
    sections,
    show
  };
})();
