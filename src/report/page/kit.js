// What the page is drawn with: elements, numbers, tables, charts. Text of the package is only ever set as text.
const page = document.getElementById("page");
const tip = document.getElementById("tip");
const nav = element("nav", { "aria-label": "Sections" });
addEventListener("error", ({ error, message }) => {
  if (error) page.append(element("p", { class: "missing broken" }, "This page cannot be drawn: " + message));
});

// ---- Elements ----

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {}))
    if (value !== undefined && value !== false) node.setAttribute(name, value);
  for (const child of children.flat(Infinity)) if (child !== undefined && child !== null) node.append(child);
  return node;
}
function element(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}
function shape(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}
const missing = (text) => element("p", { class: "missing" }, text);
const legend = (entries) => element("div", { class: "legend" }, entries.map(([color, text]) => element("span", {}, swatch(color), text)));
// It may break behind a slash.
const code = (text) => element("code", {}, text.split(/(?<=\/)/).map((part, at) => [at ? element("wbr") : null, part]));
const swatch = (color) => element("i", { class: "swatch", style: `background:${color}` });

function section(id, title, draw) {
  const node = element("section", { id }, element("h2", {}, title));
  page.append(node);
  nav.append(element("a", { href: "#" + id }, title));
  try {
    draw(node);
  } catch (error) {
    node.append(element("p", { class: "missing broken" }, "This cannot be shown: " + error.message));
  }
}

function hover(node, text) {
  const place = (event) => {
    const { offsetWidth: width, offsetHeight: height } = tip;
    const right = event.clientX + 14 + width > innerWidth - 8;
    tip.style.left = Math.max(8, right ? event.clientX - 14 - width : event.clientX + 14) + "px";
    tip.style.top = Math.min(event.clientY + 14, innerHeight - height - 8) + "px";
  };
  node.classList.add("hit");
  node.addEventListener("pointerenter", (event) => {
    tip.textContent = text;
    tip.hidden = false;
    place(event);
  });
  node.addEventListener("pointermove", place);
  node.addEventListener("pointerleave", () => (tip.hidden = true));
  return node;
}

// ---- Numbers ----

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
function number(value, digits = 0) {
  if (!isNumber(value)) return "–";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
function significant(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  return number(value, size === 0 ? 0 : Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(size)))));
}
// Of an axis: no more digits than it needs.
const plain = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
function scaled(value, units, format = significant) {
  if (!isNumber(value)) return "–";
  let at = 0;
  while (at + 1 < units.length && Math.abs(value) >= 1000) (value /= 1000), ++at;
  return format(value) + " " + units[at];
}
const time = (us, format) => scaled(us, ["µs", "ms", "s"], format);
const bytes = (amount) => scaled(amount, ["B", "kB", "MB", "GB", "TB"]);
const rate = (flops, format) => scaled(flops, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"], format);
const percent = (share) => (isNumber(share) ? number(100 * share, 1) + " %" : "–");
const tokens = (count) => `${number(count)} ${count === 1 ? "token" : "tokens"}`;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const cut = (text, length) => (text.length > length ? text.slice(0, Math.max(1, length - 1)) + "…" : text);

// ---- Tables ----

// Columns: title, value(row), text(row) or a node, whether it is a number, and whether it may be left out where no
// row has a value.
function table(all, rows, { tall = false, label = "" } = {}) {
  const columns = all.filter((column) => !column.isOptional || rows.some((row) => isNumber(column.value(row))));
  const body = element("tbody");
  const heads = columns.map((column) =>
    element("th", { class: column.isNumber ? "n" : undefined, scope: "col" }, element("button", { type: "button", title: "Sort by this column" }, column.title)),
  );
  const lines = rows.map((row) => ({
    row,
    node: element(
      "tr",
      {},
      columns.map((column) => {
        const value = column.value(row);
        const shown = column.text ? column.text(row) : column.isNumber ? number(value, column.digits) : (value ?? "");
        const known = value !== undefined && value !== null;
        return element("td", { class: column.isNumber ? "n" : column.class, "data-value": known ? value : undefined }, shown);
      }),
    ),
  }));
  heads.forEach((head, at) => {
    head.firstChild.addEventListener("click", () => {
      const column = columns[at];
      const first = column.isNumber ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? (first === "ascending" ? "descending" : "ascending") : first;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const sorted = [...lines].sort((one, other) => {
        const a = column.value(one.row), b = column.value(other.row);
        if (a === undefined || a === null || b === undefined || b === null)
          return (a === undefined || a === null) - (b === undefined || b === null);
        return sign * (isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      });
      body.replaceChildren(...sorted.map((line) => line.node));
    });
  });
  body.append(...lines.map((line) => line.node));
  return element(
    "div",
    { class: tall ? "scroll tall" : "scroll", tabindex: 0, role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, element("tr", {}, heads)), body),
  );
}

// A choice between phases above what `draw` gives for one of them.
function byPhase(node, draw) {
  const place = element("div");
  const buttons = phases.map((phase) => element("button", { type: "button", "aria-pressed": "false" }, phase));
  const show = (at) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === at));
    place.replaceChildren();
    draw(phases[at], place);
  };
  buttons.forEach((button, at) => button.addEventListener("click", () => show(at)));
  node.append(element("div", { class: "choice", role: "group", "aria-label": "Phase" }, buttons), place);
  show(0);
}

// ---- Charts ----

// Drawn again whenever its width changes.
function chart(node, height, label, draw) {
  const svg = shape("svg", { role: "img", "aria-label": label });
  node.append(svg);
  const render = () => {
    const width = svg.clientWidth;
    if (width < 50) return;
    const tall = typeof height === "function" ? height(width) : height;
    svg.setAttribute("height", tall);
    svg.replaceChildren();
    draw(svg, width, tall);
  };
  let last = 0;
  new ResizeObserver(() => {
    if (svg.clientWidth !== last) (last = svg.clientWidth), render();
  }).observe(svg);
  return render;
}

function linear(low, high, from, to) {
  const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  scale.ticks = (count) => {
    const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const list = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) list.push(Math.abs(at) < step * 1e-6 ? 0 : at);
    return list;
  };
  return scale;
}
function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  const scale = (value) => inner(Math.log10(value));
  scale.ticks = (count) => {
    const all = (digits) => {
      const list = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
        for (const digit of digits) {
          const at = digit * 10 ** power;
          if (at >= low * 0.999999 && at <= high * 1.000001) list.push(at);
        }
      return list;
    };
    let list = all([1]);
    if (list.length < 3) list = all([1, 3]);
    if (list.length < 3) list = all([1, 2, 5]);
    const every = Math.ceil(list.length / count);
    return list.filter((_, i) => i % every === 0);
  };
  return scale;
}
const line = (x1, y1, x2, y2, kind) => shape("line", { x1, y1, x2, y2, class: kind });
const words = (x, y, text, { anchor = "start", kind } = {}) => shape("text", { x, y, "text-anchor": anchor, class: kind }, text);

function axes(svg, area, x, y, { xTitle, yTitle, xText, yText, xTicks, yTicks }) {
  for (const at of yTicks ?? y.ticks(5)) {
    svg.append(line(area.left, y(at), area.right, y(at), "axis"));
    svg.append(words(area.left - 8, y(at) + 4, yText(at), { anchor: "end" }));
  }
  for (const at of xTicks ?? x.ticks(area.right - area.left < 420 ? 4 : 7)) {
    svg.append(line(x(at), area.bottom, x(at), area.bottom + 4, "axis"));
    svg.append(words(x(at), area.bottom + 18, xText(at), { anchor: "middle" }));
  }
  svg.append(line(area.left, area.bottom, area.right, area.bottom, "axis"));
  svg.append(words(area.right, area.bottom + 36, xTitle, { anchor: "end" }));
  svg.append(words(0, 12, yTitle));
}
const areaOf = (width, height, left = 64, right = 16) => ({ left, right: width - right, top: 28, bottom: height - 44 });
// Bounds around positive values, for a logarithmic axis.
function around(values, room = 1.6) {
  const low = Math.min(...values), high = Math.max(...values);
  return [low / room, high * room];
}
