// The all-reduce by size, as the run measured it to choose.
Report.sections.push((view) => {
  const section = Page.section("allreduce", "All-reduce by size");
  const choosing =
      Report.rowsOf(view).filter((row) => row.allreduce_choices && (row.allreduce_choices.measured || []).length > 0);
  const degrees = Report.tpsOf(choosing);
  if (degrees.length === 0) {
    section.append(Page.missing(
        "No all-reduce times",
        "this run had nothing to choose between; shardscope comm sweeps the all-reduce by size and algorithm."));
    return;
  }
  section.append(Page.plot({
    title: "Time of one all-reduce",
    how: "Lower is better: the median time of each way of summing a message of that size, by which the run " +
        "chose; flat is latency, slanted is bandwidth.",
    choosers: [{label: "TP", options: Report.options([...degrees].reverse())}],
    draw: (tp) => {
      const {measured, choices, left_out: leftOut} = choosing.find((row) => row.tp === tp).allreduce_choices;
      const ways = Report.unique(measured.map((one) => one.algorithm));
      const sizes = Report.unique(measured.map((one) => one.bytes)).sort(Report.ascending);
      const time = (bytes, way) => measured.find((one) => one.bytes === bytes && one.algorithm === way);
      const chosen = (choices || []).map((one) => `${one.algorithm} from ${Page.size(one.from_bytes)}`).join(", ");
      return {
        config: sizes.length > 1 ?
            Plots.lines({
              x: {label: "bytes", log: true, format: Page.size, ticks: sizes.length <= 8 ? sizes : null},
              y: {label: "µs", log: true},
              series: ways.map((way, i) => ({
                                 label: way,
                                 style: i,
                                 points: sizes.filter((bytes) => time(bytes, way))
                                             .map((bytes) => ({x: bytes, y: time(bytes, way).time_us}))
                               }))
            }) :
            Plots.bars({
              categories: ways,
              x: {label: Page.size(sizes[0])},
              y: {label: "µs"},
              series: [{
                label: "one all-reduce",
                values: ways.map((way) => (time(sizes[0], way) ? time(sizes[0], way).time_us : null))
              }],
              format: Page.figure
            }),
        table: Page.table(
            [{name: "size", format: Page.size}, ...ways.map((way) => ({name: way, unit: "µs"}))],
            sizes.map(
                (bytes) =>
                    [{value: bytes, text: Page.size(bytes)},
                     ...ways.map((way) => (time(bytes, way) ? time(bytes, way).time_us : null))])),
        note: `Chosen: ${chosen || "nothing"}.${leftOut && leftOut.length ? ` Left out: ${leftOut.join("; ")}.` : ""}`
      };
    }
  }));
});
