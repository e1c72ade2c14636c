// How the compiler came to it: plans, candidates, advice, and what that took.

// ---- Funnel ----

section("funnel", "From all plans to one kernel", (node) => {
  node.append(element("p", {}, "How many plans are left after each step, of all regions together. The bars are logarithmic. Ranked plans are kept, by their predicted cost; those tried become kernels. Right are those that the gate admitted; what was slower than others was not judged. Fast are those that were chosen over the fallback."));
  const stages = (stats) => {
    const failed = (kind) => stats.failed[kind] ?? 0;
    return [
      ["enumerated", stats.enumerated],
      ["legal", stats.legal],
      ["ranked", stats.plans],
      ["tried", stats.tried],
      ["built", stats.tried - failed("not_compiled") - failed("unavailable")],
      ["right", stats.validated],
      ["fast", stats.selected],
    ];
  };
  const most = Math.max(2, ...phases.map((phase) => data.stats[phase].enumerated));
  node.append(
    element(
      "div",
      { class: "grid" },
      phases.map((phase) =>
        element(
          "div",
          { class: "card" },
          element("h3", {}, `${phase}, ${tokens(data.stats[phase].tokens)} after ${number(data.stats[phase].context)}`),
          element(
            "div",
            { class: "funnel", "data-phase": phase },
            stages(data.stats[phase]).map(([name, count]) => [
              element("span", { class: "dim" }, name),
              element("i", { style: `width:${(count > 0 ? Math.max(1.5, (100 * Math.log(count + 1)) / Math.log(most + 1)) : 0).toFixed(1)}%` }),
              element("span", { "data-stage": name, "data-value": count }, number(count)),
            ]),
          ),
        ),
      ),
    ),
  );
  const reasons = phases.flatMap((phase) =>
    [["illegal", "illegal"], ["rejected", "not admitted"]].flatMap(([key, kind]) =>
      Object.entries(data.stats[phase][key]).map(([reason, count]) => ({ phase, kind, reason, count })),
    ),
  );
  if (reasons.length)
    node.append(
      element(
        "details",
        {},
        element("summary", {}, "Why plans were left out"),
        table(
          [
            { title: "Phase", value: (row) => row.phase },
            { title: "Plans", isNumber: true, value: (row) => row.count },
            { title: "Verdict", value: (row) => row.kind },
            { title: "Reason", class: "text", value: (row) => row.reason },
          ],
          reasons.sort((a, b) => b.count - a.count),
          { tall: true, label: "Why plans were left out" },
        ),
      ),
    );
});

// ---- Predicted and measured ----

section("predicted", "Predicted against measured", (node) => {
  const intro = element("p");
  node.append(intro);
  byPhase(node, (phase, place) => {
    let points = data.verdicts[phase].verdicts
      .filter((of) => of.measured_us > 0 && of.predicted_us > 0)
      .map((of) => ({ x: of.predicted_us, y: of.measured_us, name: of.candidate, region: labels.get(of.signature) ?? "another cut of the step", color: ranks.has(phase + of.signature) ? colorOf(phase, of.signature) : "var(--other)" }));
    intro.textContent = "Each dot is a kernel: what the cost model predicted, and what timing it alone gave when the package was compiled.";
    if (!points.length && phase === "decode" && step) {
      intro.textContent = "No kernel was timed when the package was compiled. Each dot is a kernel that was chosen: what the cost model predicted, and what it takes in the step that was timed for this page.";
      points = data.selection.decode.selection.flatMap((of, i) => {
        const parts = step.parts.filter((part) => part.selection === i);
        if (!parts.length || !(of.predicted_us > 0)) return [];
        return [{ x: of.predicted_us, y: sum(parts.map((part) => part.us)) / parts.length, name: implementation(of), region: labels.get(of.signature), color: colorOf(phase, of.signature) }];
      });
    }
    if (!points.length) return place.append(missing("No kernel of this phase was timed when the package was compiled."));
    const ratios = points.map((point) => point.y / point.x).sort((a, b) => a - b);
    const card = element("div", { class: "card" });
    chart(card, (width) => Math.min(430, Math.max(300, width * 0.6)), "Predicted against measured microseconds", (svg, width, height) => {
      const area = areaOf(width, height, 70);
      const bounds = around([...points.map((point) => point.x), ...points.map((point) => point.y)], 1.5);
      const x = logarithmic(...bounds, area.left, area.right), y = logarithmic(...bounds, area.bottom, area.top);
      axes(svg, area, x, y, { xTitle: "predicted", yTitle: "measured, both axes logarithmic", xText: (at) => time(at, plain), yText: (at) => time(at, plain) });
      svg.append(line(x(bounds[0]), y(bounds[0]), x(bounds[1]), y(bounds[1]), "roof"));
      const slope = (area.bottom - area.top) / (area.right - area.left);
      svg.append(words(area.right, area.top + 16 + 76 * slope, "as predicted", { anchor: "end" }));
      for (const point of points)
        svg.append(
          hover(
            shape("circle", { cx: x(point.x), cy: y(point.y), r: 5, fill: point.color, "fill-opacity": 0.75 }),
            `${point.region}\n${point.name}\npredicted ${time(point.x)}, measured ${time(point.y)}`,
          ),
        );
    });
    card.append(legend(Object.entries(Object.fromEntries(points.map((point) => [point.region, point.color]))).map(([region, color]) => [color, region])));
    place.append(
      card,
      element("p", { class: "note" }, `${number(points.length)} kernels. Measured is ${significant(ratios[Math.floor(ratios.length / 2)])} times what was predicted in the median, and ${significant(ratios[0])} to ${significant(ratios[ratios.length - 1])} times over all.`),
    );
  });
});

// ---- Search ----

section("search", "The search: best so far", (node) => {
  node.append(element("p", {}, "For each region, the fastest kernel that was known after each attempt, over the fastest at the end, in the order in which the package has its attempts."));
  byPhase(node, (phase, place) => {
    const groups = new Map();
    for (const of of data.verdicts[phase].verdicts)
      if (of.measured_us > 0) groups.set(of.signature, [...(groups.get(of.signature) ?? []), of]);
    const runs = [...groups]
      .filter(([signature]) => ranks.has(phase + signature))
      .map(([signature, tried]) => {
        const final = Math.min(...tried.map((of) => of.measured_us));
        let best = Infinity;
        const taken = data.selection[phase].selection.find((of) => of.signature === signature);
        return { name: labels.get(signature), color: colorOf(phase, signature), taken, tried, final, curve: tried.map((of) => (best = Math.min(best, of.measured_us)) / final) };
      });
    const most = Math.max(0, ...runs.map((run) => run.curve.length));
    if (most < 2)
      return place.append(
        missing(most ? "No region had two kernels timed when the package was compiled: there was nothing to search." : "No kernel of this phase was timed when the package was compiled, so no search is recorded."),
      );
    const card = element("div", { class: "card" });
    if (runs.every((run) => run.curve[0] === 1)) card.append(missing("In every region the first kernel that was timed stayed the fastest."));
    else chart(card, 300, "Best time so far by attempt", (svg, width, height) => {
      const area = areaOf(width, height, 58);
      const x = linear(1, most, area.left, area.right);
      const y = linear(1, Math.max(1.1, ...runs.map((run) => run.curve[0])), area.bottom, area.top);
      const ticks = [...new Set(x.ticks(8).map(Math.round))].filter((at) => at >= 1);
      axes(svg, area, x, y, { xTitle: "kernels timed", yTitle: "times the final best", xText: number, yText: (at) => number(at, 2) + "×", xTicks: ticks });
      for (const run of runs) {
        const d = run.curve.map((at, i) => (i ? `H${x(i + 1)}V${y(at)}` : `M${x(1)},${y(at)}`)).join("") + `H${area.right}`;
        svg.append(shape("path", { d, fill: "none", stroke: run.color, "stroke-width": 2, "stroke-opacity": 0.9 }));
        run.curve.forEach((at, i) => {
          if (i && at === run.curve[i - 1]) return;
          svg.append(hover(shape("circle", { cx: x(i + 1), cy: y(at), r: 4, fill: run.color }), `${run.name}\nattempt ${i + 1}: ${run.tried[i].candidate}\n${time(run.tried[i].measured_us)}`));
        });
      }
    });
    card.append(
      legend(
        runs.map((run) => [
          run.color,
          `${run.name}: ${time(run.curve[0] * run.final)} → ${time(run.final)} in ${run.curve.length}` + (run.taken.candidate ? "" : `; the fallback was taken${run.taken.fallback_us > 0 ? ", " + time(run.taken.fallback_us) : ""}`),
        ]),
      ),
    );
    place.append(card);
  });
  const attempts = phases.flatMap((phase) => data.verdicts[phase].verdicts.map((of) => ({ phase, ...of })));
  const good = (of) => ({ admitted: "good", rejected: "bad", crashed: "bad", not_compiled: "bad" })[of.outcome.kind] ?? "dim";
  node.append(
    element(
      "details",
      {},
      element("summary", {}, `All ${number(attempts.length)} attempts`),
      table(
        [
          { title: "Phase", value: (row) => row.phase },
          { title: "Region", class: "wide", value: (row) => labels.get(row.signature) ?? "another cut of the step" },
          { title: "Candidate", value: (row) => row.candidate, text: (row) => code(row.candidate) },
          { title: "Verdict", value: (row) => row.outcome.kind, text: (row) => element("span", { class: good(row) }, row.outcome.kind) },
          { title: "Predicted µs", isNumber: true, digits: 2, value: (row) => row.predicted_us },
          { title: "Measured µs", isNumber: true, digits: 2, value: (row) => row.measured_us },
          { title: "Error / bound", isNumber: true, digits: 3, value: (row) => row.outcome.worst_error },
          { title: "Scenarios", isNumber: true, value: (row) => row.outcome.scenarios },
          { title: "Why", class: "text", value: (row) => [row.outcome.why, row.outcome.note].filter(Boolean).join("; ") },
        ],
        attempts,
        { tall: true, label: "Attempts" },
      ),
    ),
  );
});

// ---- Advice ----

section("advice", "Advice, item by item", (node) => {
  const { advisor, regions } = data.advice;
  if (!regions.length) return node.append(missing(advisor === "none" ? "No advisor was asked." : `The advisor ${advisor} was asked about no region.`));
  const items = regions.flatMap((of) => of.audit.map((item) => ({ of, item })));
  const accepted = items.filter(({ item }) => item.accepted).length;
  node.append(
    element(
      "p",
      {},
      `Advisor ${advisor}: ${number(regions.length)} ${regions.length === 1 ? "question" : "questions"}, ${number(accepted)} of ${number(items.length)} items accepted. Advice changes the order in which kernels are tried, and never what they compute or whether they are admitted.`,
    ),
    table(
      [
        { title: "Phase", value: (row) => row.phase },
        { title: "Region", class: "wide", value: (row) => row.ops, text: (row) => opsOf(row.ops.split("+")) },
        { title: "Asked for", value: (row) => (row.diagnosis ? "a diagnosis" : row.why) },
        { title: "Model", value: (row) => row.model },
        { title: "Tokens in", isNumber: true, value: (row) => row.input_tokens },
        { title: "Tokens out", isNumber: true, value: (row) => row.output_tokens },
        { title: "Seconds", isNumber: true, digits: 2, value: (row) => row.seconds },
        { title: "Accepted", isNumber: true, value: (row) => row.audit.filter((item) => item.accepted).length },
        { title: "Rejected", isNumber: true, value: (row) => row.audit.filter((item) => !item.accepted).length },
        { title: "Failure", class: "text", value: (row) => row.failure },
      ],
      regions,
      { label: "Questions" },
    ),
  );
  if (items.length)
    node.append(
      table(
        [
          { title: "Region", class: "wide", value: (row) => `${row.of.phase}: ${opsOf(row.of.ops.split("+"))}` },
          { title: "Item", value: (row) => row.item.item },
          { title: "Verdict", value: (row) => (row.item.accepted ? "accepted" : "rejected"), text: (row) => element("span", { class: row.item.accepted ? "good" : "bad" }, row.item.accepted ? "accepted" : "rejected") },
          { title: "Said", class: "text", value: (row) => row.item.said },
          { title: "Reason", class: "text", value: (row) => row.item.reason },
        ],
        items,
        { tall: true, label: "Audit of the advice" },
      ),
    );
});

// ---- Compilation ----

section("compilation", "The compilation", (node) => {
  node.append(
    element(
      "p",
      {},
      check.done
        ? `The whole program was compared with plain kernels${check.with_truth ? " and with double precision" : ""}: ${number(check.compared)} times, up to ${tokens(check.most_tokens)} in a step and position ${number(check.last_position)}, with ${check.weights === "own" ? "its own" : "random"} weights. It was at most ${number(check.worst, 3)} of the bound away.`
        : `The whole program was not run: ${check.why_not}`,
    ),
  );
  const kernels = Object.entries(data.kernels).map(([entry, of]) => ({ entry, ...of }));
  node.append(
    table(
      [
        { title: "Stage", class: "wide", value: (row) => row.stage },
        { title: "Seconds", isNumber: true, digits: 3, value: (row) => row.seconds },
        { title: "Share", isNumber: true, value: (row) => row.seconds / about.seconds, text: (row) => percent(row.seconds / about.seconds) },
      ],
      data.stats.stages,
      { label: "Stages" },
    ),
    element(
      "details",
      {},
      element("summary", {}, `All ${number(kernels.length)} kernels`),
      table(
        [
          { title: "Kernel", value: (row) => row.entry, text: (row) => code(row.entry) },
          { title: "Registers", isNumber: true, value: (row) => row.registers },
          { title: "Spilled bytes", isNumber: true, value: (row) => row.spill_bytes },
        ],
        kernels,
        { tall: true, label: "Kernels" },
      ),
    ),
  );
});

page.append(
  element(
    "footer",
    {},
    `Package ${about.name}: vocabulary ${number(about.vocab)}, ${number(about.caches)} caches of ${bytes(about.cache_bytes_per_token)} a token together, prompts in steps of ${tokens(about.chunk)}.` +
      (data.measurements.length ? ` Measured on ${measuredOn}, with driver ${data.measurements[0].driver || "none"}.` : ""),
  ),
);
