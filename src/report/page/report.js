// The report, drawn from the JSON document beside it.
const data = JSON.parse(document.getElementById("document").textContent);

// ---- What is shown ----

const about = data.package, device = data.device, step = data.step, check = data.stats.check;
const phases = ["decode", ...data.phases.filter((name) => name !== "decode")];
const isHost = about.target === "host";
const why = data.not_measured || "Not measured.";

// Ops as people read them; where two regions have the same ones, with the shape of a weight.
function opsOf(ops) {
  const runs = [];
  for (const op of ops) {
    const last = runs[runs.length - 1];
    if (last && last.op === op) ++last.count;
    else runs.push({ op, count: 1 });
  }
  return runs.map(({ op, count }) => (count > 1 ? `${op} ×${count}` : op)).join(" + ") || "argmax";
}
function weightIn(signature) {
  const shapes = [...signature.matchAll(/weight \w+\[(\d+), (\d+)\]/g)];
  return shapes.length ? `${shapes[shapes.length - 1][1]}×${shapes[shapes.length - 1][2]}` : "";
}
const labels = new Map();
for (const phase of phases) {
  const all = data.selection[phase].selection;
  for (const of of all) {
    const ops = opsOf(of.ops);
    const isTwice = all.filter((other) => opsOf(other.ops) === ops).length > 1;
    labels.set(of.signature, isTwice && weightIn(of.signature) ? `${ops} · ${weightIn(of.signature)}` : ops);
  }
}
const implementation = (of) => of.candidate || "fallback";

// The time of each selection of a phase in one step, and where it comes from.
function timesOf(phase) {
  const all = data.selection[phase].selection;
  if (phase === "decode" && step) {
    const us = all.map((_, i) => sum(step.parts.filter((part) => part.selection === i).map((part) => part.us)));
    const others = [-2, -1].map((which) => sum(step.parts.filter((part) => part.selection === which).map((part) => part.us)));
    return { us, end: others[0], unknown: others[1], from: `timed launch by launch, after ${tokens(step.context)}` };
  }
  const timed = all.length > 0 && all.every((of) => isNumber(of.measured_us));
  return {
    us: all.map((of) => of.uses * (timed ? of.measured_us : of.predicted_us)),
    end: 0,
    unknown: 0,
    from: timed ? "each region timed alone when the package was compiled" : "as the cost model predicts: nothing was timed",
  };
}
const ranks = new Map();
for (const phase of phases) {
  const { us } = timesOf(phase);
  const order = us.map((_, i) => i).sort((a, b) => us[b] - us[a]);
  order.forEach((i, rank) => {
    const { signature } = data.selection[phase].selection[i];
    if (!ranks.has(phase + signature)) ranks.set(phase + signature, rank);
  });
}
const colorOf = (phase, signature) => {
  const rank = ranks.get(phase + signature);
  return rank < 7 ? `var(--c${rank})` : "var(--other)";
};
const decoded = new Map();
for (const each of data.measurements) if (each.what === "decode" && !("left_out" in each)) decoded.set(each.context, each);
const speeds = [...decoded.values()].sort((a, b) => a.context - b.context);
const measuredOn = data.measurements.length ? data.measurements[0].device : "";

// ---- Head ----

document.title = `${about.model} on ${about.target}: AgentCompile report`;
const types = about.dtype === about.own_dtype ? about.dtype : `${about.dtype} (the model has ${about.own_dtype})`;
page.append(
  element("p", { class: "eyebrow" }, "AgentCompile report"),
  element("h1", {}, about.model),
  element(
    "p",
    { class: "lead" },
    `Compiled for ${isHost ? "the CPU" : about.target}${device && !isHost ? ` (${device.name})` : ""} in ${types}, for up to ${tokens(about.max_context)}. ` +
      (about.measured ? "Kernels were chosen by timing them on the device." : "Kernels were chosen by the cost model: the package is unmeasured.") +
      (measuredOn ? ` Measured on ${measuredOn}.` : ` ${why}`),
  ),
);
const typical = speeds.find((of) => of.context >= 128) ?? speeds[speeds.length - 1];
const tiles = [
  typical
    ? [significant(typical.ms), "ms", `a token, after ${tokens(typical.context)}`, "ms"]
    : ["–", "", "a token: not measured here", "ms"],
  typical ? [number(100 * typical.share, 1), "%", "of the memory's speed", "share"] : ["–", "", "of the memory's speed: not measured here", "share"],
  [...bytes(about.weight_bytes).split(" "), "of weights", "weights"],
  [number(about.launches), "", `launches a token, of ${number(about.kernels)} kernels`, "launches"],
  [number(sum(phases.map((phase) => data.stats[phase].legal))), "", "legal plans, of all regions", "legal"],
  [number(sum(phases.map((phase) => data.stats[phase].tried))), "", "candidates tried", "tried"],
  [...time(about.seconds * 1e6).split(" "), "to compile", "seconds"],
  check.done
    ? [number(check.worst, 3), "", `of the error bound at most, in ${number(check.compared)} runs of the whole program`, "worst"]
    : ["–", "", "the whole program was not run when it was compiled", "worst"],
];
page.append(
  element(
    "div",
    { class: "tiles" },
    tiles.map(([value, unit, text, id]) =>
      element("div", { class: "tile", id: "tile-" + id }, element("b", {}, value, unit ? element("small", {}, unit) : ""), element("span", {}, text)),
    ),
  ),
  nav,
);

// ---- Regions ----

section("regions", "Where a step goes", (node) => {
  node.append(element("p", {}, "A step is cut into regions, and each becomes one kernel or a few. Equal regions of all layers share one line."));
  byPhase(node, (phase, place) => {
    const { us, end, unknown, from } = timesOf(phase);
    const total = sum(us) + end + unknown;
    const rows = data.selection[phase].selection.map((of, i) => ({ of, us: us[i], color: colorOf(phase, of.signature), name: labels.get(of.signature) }));
    if (end > 0) rows.push({ of: { uses: 1 }, us: end, color: "var(--other)", name: "the end of the step" });
    if (unknown > 0) rows.push({ of: {}, us: unknown, color: "var(--other)", name: "launches of no one region" });
    rows.sort((a, b) => b.us - a.us);
    const { tokens: count, context } = data.selection[phase];
    place.append(
      element(
        "div",
        { class: "stack", role: "img", "aria-label": "Share of each region" },
        rows.map((row) =>
          hover(
            element("i", { style: `background:${row.color};flex:${Math.max(row.us / total, 1e-4)} 0 0` }, row.us / total > 0.06 ? number((100 * row.us) / total) + " %" : ""),
            `${row.name}\n${time(row.us)}, ${percent(row.us / total)} of the step`,
          ),
        ),
      ),
      element("p", { class: "note" }, `Shares of ${time(total)}, ${from}. The plan is for a step of ${tokens(count)} after ${number(context)}.`),
      table(
        [
          { title: "Region", class: "wide", value: (row) => row.name, text: (row) => element("span", { class: "named" }, swatch(row.color), row.name) },
          {
            title: "Share", isNumber: true, value: (row) => row.us / total,
            text: (row) => element("span", {}, element("i", { class: "meter", style: `width:${((44 * row.us) / total).toFixed(1)}px;background:${row.color}` }), percent(row.us / total)),
          },
          { title: "Uses", isNumber: true, value: (row) => row.of.uses },
          { title: "Implementation", value: (row) => (row.of.signature ? implementation(row.of) : ""), text: (row) => (row.of.signature ? code(implementation(row.of)) : "") },
          { title: "In the step µs", isNumber: true, digits: 2, value: (row) => row.us },
          { title: "Measured µs", isNumber: true, isOptional: true, digits: 2, value: (row) => row.of.measured_us },
          { title: "Predicted µs", isNumber: true, digits: 2, value: (row) => (row.of.candidate ? row.of.predicted_us : undefined) },
          { title: "Fallback µs", isNumber: true, isOptional: true, digits: 2, value: (row) => row.of.fallback_us },
          { title: "FLOPs", isNumber: true, value: (row) => row.of.flops },
          { title: "Bytes", isNumber: true, value: (row) => row.of.bytes },
        ],
        rows,
        { label: "Regions of " + phase },
      ),
    );
  });
});

// ---- Timeline ----

section("timeline", "One token, launch by launch", (node) => {
  if (!step) return node.append(missing(why));
  const launches = step.launches;
  const end = Math.max(...launches.map((of) => of.start_us + of.us));
  const nameOf = (of) => (of.selection >= 0 ? labels.get(data.selection.decode.selection[of.selection].signature) : of.selection === -2 ? "the end of the step" : "other");
  const paint = (of) => (of.selection >= 0 ? colorOf("decode", data.selection.decode.selection[of.selection].signature) : "var(--other)");
  const lanes = [...new Set(launches.map(nameOf))];
  const whole = decoded.get(step.context);
  node.append(
    element(
      "p",
      {},
      `${number(launches.length)} launches after ${tokens(step.context)}, each timed by itself: none begins before the one before it has ended. ` +
        `Together they take ${time(end)}${whole ? `; the step as it runs, with what overlaps, takes ${time(whole.ms * 1e3)}` : ""}. Drag to look closer.`,
    ),
  );
  const card = element("div", { class: "card" });
  let range = [0, end];
  const set = (from, to) => ((range = [from, to]), render());
  const layers = new Map();
  for (const of of launches) {
    const layer = / at \S*?\.(\d+)(?:\.|$)/.exec(of.note);
    if (layer) layers.set(layer[1], [...(layers.get(layer[1]) ?? []), of]);
  }
  const middle = [...layers.values()][Math.floor(layers.size / 2)];
  const buttons = element(
    "div",
    { class: "choice", style: "margin:0 0 12px" },
    element("button", { type: "button" }, "Whole step"),
    middle ? element("button", { type: "button" }, "One layer") : "",
    element("button", { type: "button" }, "Save as a trace"),
  );
  buttons.firstChild.addEventListener("click", () => set(0, end));
  if (middle) buttons.children[1].addEventListener("click", () => set(middle[0].start_us, middle[middle.length - 1].start_us + middle[middle.length - 1].us));
  buttons.lastChild.addEventListener("click", () => {
    const link = element("a", { download: "step.trace.json", href: URL.createObjectURL(new Blob([JSON.stringify(data.trace)])) });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  card.append(buttons);
  const isNarrow = (width) => width < 640;
  const pitch = (width) => (isNarrow(width) ? 38 : 26);
  const render = chart(card, (width) => lanes.length * pitch(width) + 30, "The launches of a decode step over time", (svg, width, height) => {
    const left = isNarrow(width) ? 0 : 214, right = width - 8;
    const x = linear(range[0], range[1], left, right);
    const back = shape("rect", { x: left, y: 0, width: right - left, height: height - 22, fill: "transparent" });
    svg.append(back);
    for (const at of x.ticks(width < 500 ? 3 : 7)) {
      svg.append(line(x(at), 0, x(at), height - 22, "axis"));
      svg.append(words(Math.min(x(at), right - 14), height - 5, time(at, plain), { anchor: x(at) < left + 20 ? "start" : "middle" }));
    }
    lanes.forEach((lane, row) => {
      const y = row * pitch(width);
      if (isNarrow(width)) svg.append(words(0, y + 12, cut(lane, Math.floor(width / 6.6))));
      else svg.append(words(left - 12, y + 16, cut(lane, 32), { anchor: "end" }));
      const top = y + (isNarrow(width) ? 17 : 4);
      for (const of of launches) {
        if (nameOf(of) !== lane || of.start_us > range[1] || of.start_us + of.us < range[0]) continue;
        const from = x(Math.max(of.start_us, range[0])), to = x(Math.min(of.start_us + of.us, range[1]));
        const bar = shape("rect", { x: from, y: top, width: Math.max(1, to - from - (to - from > 3 ? 0.5 : 0)), height: 17, rx: to - from > 6 ? 2 : 0, fill: paint(of) });
        svg.append(hover(bar, `${of.note}\n${time(of.us)} from ${time(of.start_us)} on\n${bytes(of.bytes)}, ${number(of.bytes / of.us / 1e3, 1)} GB/s`));
      }
    });
    let from = null, mark = null;
    svg.onpointerdown = (event) => {
      from = event.clientX - svg.getBoundingClientRect().left;
      if (from < left) return void (from = null);
      mark = shape("rect", { y: 0, height: height - 22, fill: "var(--accent)", opacity: 0.16, "pointer-events": "none" });
      svg.append(mark);
    };
    svg.onpointermove = (event) => {
      if (from === null) return;
      const to = Math.min(right, Math.max(left, event.clientX - svg.getBoundingClientRect().left));
      mark.setAttribute("x", Math.min(from, to));
      mark.setAttribute("width", Math.abs(to - from));
    };
    svg.onpointerup = svg.onpointerleave = (event) => {
      if (from === null) return;
      const to = Math.min(right, Math.max(left, event.clientX - svg.getBoundingClientRect().left));
      const at = (place) => range[0] + ((place - left) / (right - left)) * (range[1] - range[0]);
      const wanted = [at(Math.min(from, to)), at(Math.max(from, to))], far = Math.abs(to - from) > 8;
      from = null;
      mark.remove();
      if (far) set(...wanted);
    };
  });
  node.append(
    card,
    element(
      "details",
      {},
      element("summary", {}, "All launches as a table"),
      table(
        [
          { title: "#", isNumber: true, value: (row) => row.index },
          { title: "Region", class: "wide", value: nameOf },
          { title: "Kernel", value: (row) => row.kernel, text: (row) => code(row.kernel) },
          { title: "Begins µs", isNumber: true, digits: 2, value: (row) => row.start_us },
          { title: "µs", isNumber: true, digits: 2, value: (row) => row.us },
          { title: "Bytes", isNumber: true, value: (row) => row.bytes },
          { title: "GB/s", isNumber: true, digits: 2, value: (row) => row.bytes / row.us / 1e3 },
          { title: "Implementation, and where", class: "text", value: (row) => row.note },
        ],
        launches.map((of, index) => ({ ...of, index })),
        { tall: true, label: "Launches" },
      ),
    ),
  );
  for (const of of launches.filter((launch) => launch.parts)) {
    const round = of.parts.reduce((sum, part) => sum + part.us, 0);
    node.append(
      element("h3", {}, `Inside ${of.note}`),
      element(
        "p",
        {},
        `It has ${number(of.parts[0].rounds)} rounds of ${time(round)}. Its blocks said when they came to each point; a time is from the point before to this one. ` +
          "The least is of the block that was there soonest: what is above it is waiting for other blocks.",
      ),
      table(
        [
          { title: "Until", class: "text", value: (row) => row.point },
          { title: "µs of a round", isNumber: true, digits: 3, value: (row) => row.us },
          { title: "Least µs", isNumber: true, digits: 3, value: (row) => row.least_us },
          { title: "Share", isNumber: true, value: (row) => row.us / round, text: (row) => percent(row.us / round) },
        ],
        of.parts,
        { label: "Parts of a launch" },
      ),
    );
  }
});
