// How a series looks: colour, dash, mark and pattern together, so that no difference is one of colour alone; and what
// plots draw over Chart.js: whiskers, labels at marks, shares in bars.
const Marks = (() => {
  const shapes = ["circle", "rect", "triangle", "rectRot", "crossRot", "star", "rectRounded", "cross", "dash"];
  const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2], [1, 2], [8, 2, 2, 2, 2, 2], [3, 6]];
  const count = shapes.length;

  /// Colours of page.css as they are now.
  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      text: colour("text"),
      muted: colour("muted"),
      grid: colour("grid"),
      surface: colour("surface"),
      series: shapes.map((_, i) => colour(`series-${i}`))
    };
  }

  function tile(width, height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    return [canvas, canvas.getContext("2d")];
  }

  /// A fill, the i-th of nine: the first is plain, the others hatched in the page's ground colour.
  function pattern(i, colour, surface) {
    const size = 8;
    const [canvas, pen] = tile(size, size);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = pen.fillStyle = surface;
    pen.lineWidth = 1.5;
    const up = [[-2, size + 2, size + 2, -2], [-2, 2, 2, -2], [size - 2, size + 2, size + 2, size - 2]];
    const down = up.map(([x1, y1, x2, y2]) => [size - x1, y1, size - x2, y2]);
    const level = [[0, 4, size, 4]];
    const upright = [[4, 0, 4, size]];
    const dot = (x, y) => [[x, y, x + 0.1, y]];
    pen.lineCap = "round";
    const lines = [
      [], up, level, [...dot(2, 2), ...dot(6, 6)], down, upright, [...level, ...upright], dot(4, 4), [...up, ...down]
    ][i % count];
    for (const [x1, y1, x2, y2] of lines) {
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.lineTo(x2, y2);
      pen.stroke();
    }
    return pen.createPattern(canvas, "repeat");
  }

  /// A piece of a dataset as it is drawn, for the legend.
  function sample(dataset) {
    const [width, height, ratio] = [36, 14, 3];
    const [canvas, pen] = tile(width * ratio, height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    pen.scale(ratio, ratio);
    pen.strokeStyle = dataset.borderColor;
    pen.lineWidth = dataset.borderWidth;
    if (dataset.type === "bar") {
      pen.fillStyle = dataset.sample;
      pen.fillRect(2, 1, width - 4, height - 2);
      pen.strokeRect(2, 1, width - 4, height - 2);
      return canvas;
    }
    if (dataset.showLine !== false) {
      pen.setLineDash(dataset.borderDash || []);
      pen.beginPath();
      pen.moveTo(1, height / 2);
      pen.lineTo(width - 1, height / 2);
      pen.stroke();
      pen.setLineDash([]);
    }
    if (dataset.pointRadius > 0) {
      pen.fillStyle = dataset.sample;
      const mark =
          {pointStyle: dataset.pointStyle, radius: Math.min(5, dataset.pointRadius), borderWidth: 2, rotation: 0};
      pen.lineWidth = 2;
      Chart.helpers.drawPoint(pen, mark, width / 2, height / 2);
    }
    return canvas;
  }

  /// The legend of a chart: each entry shows or hides its datasets. Unlisted datasets have none of their own, but go
  /// with the entry of the same label; `last` ones stand at the end.
  function legend(chart) {
    const {datasets} = chart.data;
    const listed = datasets.filter((one) => !one.unlisted);
    const sorted = [...listed.filter((one) => !one.last), ...listed.filter((one) => one.last)];
    return Page.el("ul", {class: "legend"}, sorted.map((dataset) => {
      const button = Page.el("button", {type: "button", "aria-pressed": "true"}, sample(dataset), dataset.label);
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        datasets.forEach((one, i) => one.label === dataset.label && chart.setDatasetVisibility(i, shown));
        chart.update();
      });
      return Page.el("li", {}, button);
    }));
  }

  function whisker(chart, meta, x, low, high, colour) {
    const pen = chart.ctx;
    const ends = [low, high].map((value) => meta.yScale.getPixelForValue(value));
    pen.save();
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, ends[0]);
    pen.lineTo(x, ends[1]);
    for (const y of ends) {
      pen.moveTo(x - 4, y);
      pen.lineTo(x + 4, y);
    }
    pen.stroke();
    pen.restore();
  }

  /// Whiskers: of points that have `low` and `high`, and of bars whose dataset has `whiskers`.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      chart.data.datasets.forEach((dataset, index) => {
        if (!chart.isDatasetVisible(index)) return;
        const meta = chart.getDatasetMeta(index);
        meta.data.forEach((drawn, i) => {
          const point = dataset.data[i];
          const [low, high] = dataset.whiskers ? dataset.whiskers[i] || [] : point ? [point.low, point.high] : [];
          if (!Page.known(low) || !Page.known(high)) return;
          whisker(chart, meta, drawn.x, low, high, dataset.whiskers ? theme().text : dataset.borderColor);
        });
      });
    }
  };

  /// The points on a chart that can be seen: {x, y, text}.
  function pointsOf(chart) {
    return chart.data.datasets.flatMap((dataset, index) => {
      if (!chart.isDatasetVisible(index)) return [];
      return chart.getDatasetMeta(index).data.map(({x, y}, i) => ({x, y, text: (dataset.data[i] || {}).text}));
    });
  }

  /// The `text` of points, beside them where neither a mark nor another label is; left out where there is no room.
  const labels = {
    id: "labels",
    afterDatasetsDraw(chart) {
      const pen = chart.ctx;
      const colours = theme();
      const {left, right, top, bottom} = chart.chartArea;
      const points = pointsOf(chart);
      const taken = points.map(({x, y}) => ({left: x - 5, right: x + 5, top: y - 5, bottom: y + 5}));
      pen.save();
      pen.font = `11px ${Chart.defaults.font.family}`;
      pen.lineJoin = "round";
      pen.lineWidth = 3;
      pen.strokeStyle = colours.surface;
      pen.fillStyle = colours.text;
      for (const {x, y, text} of points.filter((point) => point.text)) {
        const width = pen.measureText(text).width;
        const box = (from, above) => ({left: from, right: from + width, top: above, bottom: above + 12});
        const free = (one) => one.left >= left && one.right <= right && one.top >= top && one.bottom <= bottom &&
            taken.every(
                (other) => one.left >= other.right || other.left >= one.right || one.top >= other.bottom ||
                    other.top >= one.bottom);
        const place = [
          box(x + 6, y - 16), box(x - 6 - width, y - 16), box(x + 6, y + 4), box(x - 6 - width, y + 4),
          box(Math.min(x + 6, right - width), y - 16)
        ].find(free);
        if (!place) continue;
        taken.push(place);
        pen.strokeText(text, place.left, place.bottom - 2);
        pen.fillText(text, place.left, place.bottom - 2);
      }
      pen.restore();
    }
  };

  /// What a bar or a segment is worth, written into it where there is room: options.format(value, index).
  const segments = {
    id: "segments",
    afterDatasetsDraw(chart, _, options) {
      if (!options.format) return;
      const pen = chart.ctx;
      const colours = theme();
      pen.save();
      pen.font = `600 11px ${Chart.defaults.font.family}`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      chart.data.datasets.forEach((dataset, index) => {
        const meta = chart.getDatasetMeta(index);
        if (meta.type !== "bar" || !chart.isDatasetVisible(index)) return;
        meta.data.forEach((bar, i) => {
          const text = Page.known(dataset.data[i]) ? options.format(dataset.data[i], i) : "";
          const width = pen.measureText(text).width + 6;
          if (!text || Math.abs(bar.base - bar.y) < 15 || bar.width < width) return;
          const middle = (bar.base + bar.y) / 2;
          pen.fillStyle = colours.surface;
          pen.fillRect(bar.x - width / 2, middle - 7, width, 14);
          pen.fillStyle = colours.text;
          pen.fillText(text, bar.x, middle + 0.5);
        });
      });
      pen.restore();
    }
  };

  return {shapes, dashes, count, theme, pattern, legend, whiskers, labels, segments};
})();
