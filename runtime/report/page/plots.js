// Plots over Chart.js. A plot is drawn anew when the colour scheme changes and for print, so what it shows is a
// function of its choices alone.
//
//   section.append(Page.plot({
//     title: "TPOT", how: "Lower is better.",
//     choosers: [{label: "batch", options: [{value: 1, text: "1"}]}],
//     draw: (batch) => ({config: Plots.lines({x: {label: "TP", log: true}, y: {label: "ms"}, series: [
//       {label: "measured", points: [{x: 1, y: 12.5, low: 12.1, high: 13.0}]}]}), table: Page.table(…)})}));
//   Page.show();  // once all plots are in their places
const Plots = (() => {
  /// Round values from low to high, of a logarithmic axis: 1, 2, 5, … or finer where it spans little.
  function logTicks(low, high) {
    const span = Math.log10(high / low);
    const fine = [1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5];
    const steps = span > 3.5 ? [1] : span > 1.2 ? [1, 2, 5] : span > 0.4 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : fine;
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
      for (const step of steps) {
        const value = Number((step * 10 ** power).toPrecision(3));
        if (value >= low && value <= high) ticks.push(value);
      }
    }
    return ticks;
  }

  function short(value) {
    if (Math.abs(value) >= 1000 || Number.isInteger(value)) return value.toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  }

  /// axis: {label, log, ticks (the only ones), loose (need not show zero), format}; values: all that it must show.
  function scale(axis, values, colours) {
    const shown = values.filter((value) => Page.known(value) && (!axis.log || value > 0));
    const [low, high] = [Math.min(...shown), Math.max(...shown)];
    const made = {
      type: axis.log ? "logarithmic" : "linear",
      title: {display: true, text: axis.label, color: colours.text},
      grid: {color: colours.grid, borderColor: colours.muted},
      ticks: {color: colours.text, callback: axis.format || short, maxRotation: 0, autoSkipPadding: 10}
    };
    let ticks = axis.ticks;
    if (axis.log && shown.length > 0) {
      const room = Math.max(1.08, (high / low) ** 0.06);
      made.min = low / room;
      made.max = high * room;
      ticks = ticks || logTicks(made.min, made.max);
    } else if (axis.loose && shown.length > 0) {
      // Noise alone must not fill the plot: a tenth of the value at least.
      const room = Math.max((high - low) * 0.05, high * 0.05);
      made.min = Math.max(0, low - room);
      made.max = high + room;
      made.ticks.includeBounds = false;
    } else {
      made.beginAtZero = true;
    }
    if (ticks)
      made.afterBuildTicks = (axisNow) => {
        axisNow.ticks = ticks.map((value) => ({value}));
      };
    return made;
  }

  function options(scales, plugins, tooltip) {
    return {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      scales,
      interaction: {mode: "nearest", intersect: false},
      plugins: {legend: {display: false}, tooltip: {callbacks: tooltip}, ...plugins}
    };
  }

  /// Lines through points {x, y, low, high, text, hollow}. series: {label, points, style (a number: colour, dash and
  /// mark; default: its place), ideal (a thin grey line without marks), bare (marks alone), radius (of marks),
  /// unlisted}.
  function lines({x, y, series}) {
    const colours = Marks.theme();
    const all = series.flatMap((one) => one.points);
    const datasets = series.map((one, i) => {
      const style = (one.style ?? i) % Marks.count;
      const colour = one.ideal ? colours.muted : colours.series[style];
      const radius = one.ideal ? 0 : one.radius ?? 5;
      return {
        type: "line",
        label: one.label,
        data: one.points,
        unlisted: one.unlisted,
        showLine: !one.bare,
        borderColor: colour,
        backgroundColor: colour,
        borderWidth: one.ideal ? 1.2 :
            one.thin           ? 1.2 :
                                 2.2,
        borderDash: one.ideal ? Marks.dashes[2 + (one.style ?? 3) % 3] : Marks.dashes[style],
        pointStyle: Marks.shapes[style],
        pointRadius: radius,
        pointHoverRadius: radius && 7,
        pointBorderWidth: 2,
        pointBorderColor: colour,
        sample: colour,
        pointBackgroundColor: one.points.map((point) => (point.hollow ? colours.surface : colour))
      };
    });
    const tooltip = {
      title: () => "",
      label: ({dataset, parsed, raw}) => `${dataset.label}${raw.text && !dataset.unlisted ? ` (${raw.text})` : ""}: ${
          x.label} ${short(parsed.x)}, ${y.label} ${Page.figure(parsed.y)}`
    };
    const scales = {
      x: scale(x, all.map((point) => point.x), colours),
      y: scale(y, all.flatMap((point) => [point.y, point.low, point.high]), colours)
    };
    return {
      type: "line",
      data: {datasets},
      plugins: [Marks.whiskers, Marks.labels],
      options: options(scales, {}, tooltip)
    };
  }

  /// The greatest and the least height of stacks.
  function stackEnds(series) {
    let [most, least] = [0, 0];
    for (let i = 0; i < Math.max(...series.map((one) => one.values.length)); ++i) {
      const values = series.map((one) => one.values[i] ?? 0);
      most = Math.max(most, values.reduce((sum, value) => sum + Math.max(0, value), 0));
      least = Math.min(least, values.reduce((sum, value) => sum + Math.min(0, value), 0));
    }
    return [most, least];
  }

  /// Bars beside each other, or stacked (negative parts below zero). series: {label, values (null: none), whiskers:
  /// [[low, high] or null], hollow: [bool], style}; markers: {label, values}: a diamond at each category;
  /// format(value, index): what is written into a bar.
  function bars({categories, x, y, series, stacked = false, markers = [], format = null}) {
    const colours = Marks.theme();
    const datasets = markers.map((one) => ({
                                   type: "line",
                                   label: one.label,
                                   data: one.values,
                                   last: true,
                                   showLine: false,
                                   pointStyle: "rectRot",
                                   pointRadius: 7,
                                   pointHoverRadius: 8,
                                   pointBorderWidth: 2,
                                   borderColor: colours.text,
                                   pointBorderColor: colours.text,
                                   pointBackgroundColor: colours.surface,
                                   sample: colours.surface,
                                   stack: "markers"
                                 }));
    series.forEach((one, i) => {
      const style = (one.style ?? i) % Marks.count;
      const fill = Marks.pattern(style, colours.series[style], colours.surface);
      datasets.push({
        type: "bar",
        label: one.label,
        data: one.values,
        whiskers: one.whiskers,
        sample: fill,
        backgroundColor: one.values.map((_, at) => (one.hollow && one.hollow[at] ? "transparent" : fill)),
        borderColor: colours.series[style],
        borderWidth: 1.5,
        borderSkipped: false,
        stack: stacked ? "all" : undefined,
        maxBarThickness: 110,
        pointStyle: "rect",
        skipNull: true
      });
    });
    const values = scale(y, [], colours);
    const ends = series.flatMap((one) => one.whiskers || []).flatMap((pair) => pair || []).filter(Page.known);
    if (ends.length > 0) values.suggestedMax = Math.max(...ends);
    values.stacked = stacked;
    if (stacked) {
      const [most, least] = stackEnds(series);
      values.min = least < 0 ? least * 1.05 - most * 0.01 : 0;
      values.ticks.includeBounds = false;
    }
    const scales = {
      x: {
        stacked,
        title: {display: true, text: x.label, color: colours.text},
        grid: {display: false, borderColor: colours.muted},
        ticks: {color: colours.text, maxRotation: 60}
      },
      y: values
    };
    const tooltip = {label: ({dataset, parsed}) => `${dataset.label}: ${Page.figure(parsed.y)}`};
    return {
      type: "bar",
      data: {labels: categories, datasets},
      plugins: [Marks.whiskers, Marks.segments],
      options: options(scales, {segments: {format}}, tooltip)
    };
  }

  const drawn = [];  // every plot on the page: {redraw, end}
  let printing = false;

  /// A figure of the page. choosers: [{label, options}]; draw(...choices) gives {config: of Chart.js, table, note,
  /// label: for those who do not see it} or {missing: why there is nothing}. `height` in pixels.
  Page.plot = ({title, how, choosers = [], draw, height = 360}) => {
    const choices = choosers.map((one) => one.options[0].value);
    const canvas = Page.el("canvas", {role: "img"});
    const holder = Page.el("div", {class: "canvas"}, canvas);
    holder.style.height = `${height}px`;
    const note = Page.el("p", {class: "note"});
    const legend = Page.el("div");
    const data = Page.details("Data");
    let chart = null;
    const end = () => {
      if (chart) chart.destroy();
      chart = null;
    };
    function redraw() {
      end();
      const made = draw(...choices);
      holder.hidden = Boolean(made.missing);
      note.textContent = made.missing || made.note || "";
      note.hidden = !note.textContent;
      note.classList.toggle("bad", Boolean(made.doubt));
      canvas.setAttribute("aria-label", made.label || title);
      data.replaceChildren(data.firstChild, made.table || "");
      data.hidden = !made.table;
      legend.replaceChildren();
      if (made.missing) return;
      made.config.options.devicePixelRatio = printing ? 3 : Math.max(2, devicePixelRatio);
      chart = new Chart(canvas, made.config);
      if (chart.data.datasets.length > 1) legend.replaceChildren(Marks.legend(chart));
    }
    const selects = choosers.map((one, i) => Page.chooser(one.label, one.options, (value) => {
      choices[i] = value;
      redraw();
    }));
    drawn.push({redraw, end});
    const head = Page.el(
        "div", {}, Page.el("figcaption", {}, Page.el("h3", {}, title), Page.el("p", {class: "how"}, how)),
        selects.length ? Page.el("div", {class: "choosers"}, selects) : null);
    return Page.el("figure", {class: "plot"}, head, Page.el("div", {}, holder, legend, note, data));
  };

  const clearPage = Page.clear;
  /// Takes everything off the page, plots too.
  Page.clear = () => {
    for (const {end} of drawn.splice(0)) end();
    clearPage();
  };

  function drawAll() {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const {redraw} of drawn) redraw();
  }

  function print(begins) {
    printing = begins;
    document.documentElement.classList.toggle("printing", begins);
    drawAll();
  }

  let listening = false;
  /// Draws all plots: once the page has them in their places.
  Page.show = () => {
    drawAll();
    if (listening) return;
    listening = true;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
  };

  return {lines, bars, short};
})();
