"use strict";
// What the pages of reports share: elements, numbers, tables, sections, choosers. Every text of a report goes into the
// page as a text node or through setAttribute of a name that stands here, never as HTML. plots.js adds Page.plot.
//
//   const report = Page.data("report");
//   const section = Page.section("tpot", "Time per output token", "How to read what follows.");
//   section.append(Page.table([{name: "TP"}, {name: "TPOT p50", unit: "ms"}], [[1, 12.5], [2, null]]));
const Page = (() => {
  const root = document.getElementById("page");
  const unknown = "n/a";

  /// The document of that id, as the program wrote it.
  function data(id) {
    return JSON.parse(document.getElementById(`data-${id}`).textContent);
  }

  const pictures = new Map([...document.querySelectorAll(".picture")].map((one) => [one.id, one]));
  /// The picture of that id to be put into its place, or null.
  function picture(id) {
    const found = pictures.get(`picture-${id}`) || null;
    if (found) found.hidden = false;
    return found;
  }

  /// An element. Children: nodes, texts and numbers (as text), lists of them; null is left out.
  function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false)
        element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  function known(value) {
    return typeof value === "number" && Number.isFinite(value);
  }

  /// Three digits that count: "0.123", "5.08", "345", "12,345". What rounding leaves of a difference is 0.
  function figure(value) {
    if (!known(value)) return unknown;
    const size = Math.abs(value);
    if (size < 1e-12) return "0";
    if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
    if (size < 1e-4) return value.toExponential(2);
    return value.toPrecision(3);
  }

  /// A fraction as "55 %", small ones as "5.5 %".
  function percent(value) {
    if (!known(value)) return unknown;
    const hundredfold = value * 100;
    const digits = Math.abs(hundredfold) < 9.95 && hundredfold !== 0 ? 1 : 0;
    return `${hundredfold.toFixed(digits)} %`;
  }

  /// Decimal units: "4.24 GB".
  function bytes(value) {
    if (!known(value)) return unknown;
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = 0;
    while (Math.abs(value) >= 999.5 && power + 1 < units.length) {
      value /= 1000;
      ++power;
    }
    return `${power === 0 ? value : figure(value)} ${units[power]}`;
  }

  /// A message's size: powers of two in binary units ("64 KiB"), others as bytes().
  function size(value) {
    if (!known(value) || value < 1024 || value % 1024 !== 0) return bytes(value);
    return value % (1 << 20) === 0 ? `${figureOrWhole(value / (1 << 20))} MiB` : `${figureOrWhole(value / 1024)} KiB`;
  }
  const figureOrWhole = (value) => (Number.isInteger(value) ? String(value) : figure(value));

  /// "1 rank", "2 ranks".
  function counted(count, noun) {
    return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
  }

  function cell(tag, value, column) {
    const shown = value !== null && typeof value === "object" && !(value instanceof Node) ? value : {value};
    const number = known(shown.value);
    const format = column.format || figure;
    let content = shown.text;
    if (content === undefined) content = shown.value === null || shown.value === undefined ? unknown : shown.value;
    if (content === shown.value && number)
      content = Number.isInteger(shown.value) ? String(shown.value) : format(shown.value);
    if (number && column.format) content = shown.text === undefined ? format(shown.value) : shown.text;
    const classes = [number || shown.value === null || column.number ? "number" : null, shown.class].filter(Boolean);
    return el(
        tag, {
          class: classes.join(" ") || null,
          "data-value": number ? shown.value : null,
          style: shown.style,
          title: shown.title,
          scope: tag === "th" ? "row" : null
        },
        content);
  }

  /// A table that scrolls in its own frame. columns: {name, unit, format(number) -> text, number: right-aligned texts}.
  /// A cell is a number (whole ones in full, others by `format`; the exact one in data-value), a text, a node, null
  /// (not known), or {value, text, class, title}. The first `heads` cells of a row are its heading.
  function table(columns, rows, {caption = null, heads = 1} = {}) {
    const numeric =
        columns.map((column, i) => column.number || rows.some((row) => known(row[i]) || known(row[i] && row[i].value)));
    const head = columns.map(
        (column, i) =>
            el("th", {scope: "col", class: numeric[i] ? "number" : null}, column.name,
               column.unit ? el("span", {class: "unit"}, column.unit) : null));
    const body = rows.map(
        (row) =>
            el("tr", {},
               row.map((value, i) => cell(i < heads ? "th" : "td", value, {...columns[i], number: numeric[i]}))));
    return el(
        "div", {class: "table", tabindex: "0", role: "region", "aria-label": caption || "data"},
        el("table", {}, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, head)),
           el("tbody", {}, body)));
  }

  /// Two columns: what, and how it is. Rows without a value are left out.
  function facts(pairs) {
    const rows = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return el(
        "dl", {class: "facts"}, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  const contents = el("nav", {class: "contents", "aria-label": "contents"});

  /// A section at the end of the page, with its line in the contents. `how`: a sentence that says how to read it.
  function section(id, title, how = null) {
    const made = el("section", {id}, el("h2", {}, title), how ? el("p", {class: "how"}, how) : null);
    contents.append(el("a", {href: `#${id}`}, title));
    root.append(made);
    return made;
  }

  /// Takes everything off the page.
  function clear() {
    root.replaceChildren();
    contents.replaceChildren();
  }

  /// What would stand here, and what would give it.
  function missing(what, remedy) {
    return el("p", {class: "missing"}, el("strong", {}, `${what}: `), remedy);
  }

  /// A select with its label. options: [{value, text}]. Calls chosen(value) at a change. With one option: its text.
  function chooser(label, options, chosen) {
    if (options.length === 1) return el("span", {class: "chooser"}, `${label} `, el("b", {}, options[0].text));
    const select = el("select", {}, options.map((option, i) => el("option", {value: String(i)}, option.text)));
    // The chosen one stands as text beside it in print.
    const printed = el("b", {class: "print-only"}, options[0].text);
    select.addEventListener("change", () => {
      printed.textContent = options[Number(select.value)].text;
      chosen(options[Number(select.value)].value);
    });
    return el("label", {class: "chooser"}, `${label} `, select, printed);
  }

  /// A loud line: what a reader must know before the first figure.
  function banner(word, sentence) {
    return el("p", {class: "banner"}, el("strong", {}, word), ` ${sentence}`);
  }

  /// Details that are open in print.
  function details(summary, ...children) {
    return el("details", {}, el("summary", {}, summary), children);
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });

  return {
    root,
    contents,
    clear,
    data,
    picture,
    el,
    known,
    figure,
    percent,
    bytes,
    size,
    counted,
    table,
    facts,
    section,
    missing,
    chooser,
    banner,
    details,
    unknown
  };
})();
