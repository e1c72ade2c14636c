// How fast it is: the roofline, and the speed by context.

// ---- Roofline ----

section("roofline", "How close to the machine's limits", (node) => {
  if (!step) return node.append(missing(why));
  const near = [...speeds].sort((a, b) => Math.abs(a.context - step.context) - Math.abs(b.context - step.context))[0];
  const bandwidth = near ? near.limit_gb_s * 1e9 : isHost ? 0 : (device?.bandwidth ?? 0);
  const points = step.parts
    .filter((part) => part.selection >= 0 && part.flops > 0 && part.bytes > 0 && part.us > 0)
    .map((part) => {
      const of = data.selection.decode.selection[part.selection];
      return { ...part, name: labels.get(of.signature), color: colorOf("decode", of.signature), x: part.flops / part.bytes, y: (part.flops / part.us) * 1e6 };
    });
  if (!points.length)
    return node.append(missing(`The step was timed after ${tokens(step.context)}, and the package knows its work after ${tokens(about.planned_context)} only: time it there.`));
  const left = step.parts.length - points.length;
  const limits = [];
  if (!isHost && device) {
    if (about.dtype !== "float32") limits.push(["16-bit products", device.tensor_flops]);
    limits.push(["float32", device.flops]);
  }
  node.append(
    element(
      "p",
      {},
      "Each dot is what computes one region once: its work against the bytes that it must move at the least. The nearer to the line, the less is left to gain. " +
        (near
          ? `The slope is what this device streams, measured just before: ${number(near.limit_gb_s, 1)} GB/s. `
          : bandwidth
            ? `The slope is the cost model's figure for ${device.name}: ${bytes(bandwidth)}/s. `
            : "How fast this device streams was not measured, so there is no slope. ") +
        (isHost
          ? "The host device has no calibrated limit of arithmetic, so the slope has no roof."
          : device
            ? `The roof is the cost model's figure for ${device.name}.`
            : "The cost model knows no limit of this device's arithmetic.") +
        (left ? ` ${number(left)} of ${number(step.parts.length)} parts of the step are not shown: they compute nothing that counts.` : ""),
    ),
  );
  const card = element("div", { class: "card" });
  const shares = new Map();
  for (const point of points) shares.set(point.selection, (shares.get(point.selection) ?? 0) + point.us);
  const named = [...shares].sort((a, b) => b[1] - a[1]).slice(0, 7).map(([selection]) => selection);
  chart(card, (width) => (width < 500 ? 330 : 400), "Roofline: arithmetic against intensity", (svg, width, height) => {
    const area = areaOf(width, height, 78);
    const roof = Math.max(0, ...limits.map(([, flops]) => flops));
    const intensities = points.map((point) => point.x);
    const ridge = roof && bandwidth ? [roof / bandwidth] : [];
    const [xLow, xHigh] = around([...intensities, ...ridge], 4);
    const ceiling = roof ? [roof] : bandwidth ? intensities.map((x) => x * bandwidth) : [];
    const [yLow, yHigh] = around([...points.map((point) => point.y), ...ceiling], 2);
    const x = logarithmic(xLow, xHigh, area.left, area.right), y = logarithmic(yLow, yHigh, area.bottom, area.top);
    axes(svg, area, x, y, { xTitle: "FLOPs a byte", yTitle: "FLOP/s, both axes logarithmic", xText: plain, yText: (at) => rate(at, plain).replace("FLOP/s", "") });
    if (bandwidth) {
      const to = roof ? Math.min(xHigh, roof / bandwidth) : xHigh;
      const [from, until] = [Math.max(xLow, yLow / bandwidth), Math.min(to, yHigh / bandwidth)];
      svg.append(shape("path", { class: "roof", d: `M${x(from)},${y(from * bandwidth)}L${x(until)},${y(until * bandwidth)}` }));
      // Where the slope meets no roof, its end is where it leaves the figure.
      const at = roof ? Math.sqrt(from * until) : until;
      svg.append(words(x(at) - (roof ? 10 : 0), y(at * bandwidth) - 8, bytes(bandwidth) + "/s", { anchor: "end", kind: "strong" }));
    }
    for (const [name, flops] of limits)
      if (flops < yHigh && flops > yLow) {
        svg.append(line(x(Math.max(xLow, bandwidth ? flops / bandwidth : xLow)), y(flops), area.right, y(flops), "roof"));
        svg.append(words(area.right, y(flops) + (flops === roof ? -6 : 16), width < 500 ? name : `${name} ${rate(flops)}`, { anchor: "end", kind: "strong" }));
      }
    for (const point of points) {
      const dot = shape("circle", { cx: x(point.x), cy: y(point.y), r: 5.5, fill: point.color, "fill-opacity": 0.75 });
      svg.append(hover(dot, `${step.launches[point.from].note}\n${point.name}${point.launches > 1 ? `, ${point.launches} launches` : ""}\n${time(point.us)}, ${bytes(point.bytes)}, ${number(point.flops)} FLOPs\n${rate(point.y)}, ${number(point.bytes / point.us / 1e3, 2)} GB/s` + (bandwidth ? `, ${percent(point.y / (point.x * bandwidth))} of the slope` : "")));
    }
  });
  card.append(
    legend(
      named.map((selection) => {
        const point = points.find((each) => each.selection === selection);
        return [point.color, point.name];
      }),
    ),
  );
  node.append(card);
});

// ---- Speed ----

section("speed", "Speed against context", (node) => {
  if (!speeds.length) return node.append(missing(data.not_measured || "No speed was measured: time some with --context."));
  node.append(
    element("p", {}, "Milliseconds a token, by how many tokens are cached. The lower line is what reading the weights and the cache once would take, at the speed at which the device streams."),
  );
  const floor = (of) => ((of.weight_bytes + of.cache_bytes) / (of.limit_gb_s * 1e9)) * 1e3;
  const card = element("div", { class: "card" });
  chart(card, 300, "Milliseconds a token by context", (svg, width, height) => {
    const area = areaOf(width, height, 58, 92);
    const contexts = speeds.map((of) => Math.max(1, of.context));
    const [low, high] = speeds.length > 1 ? [Math.min(...contexts), Math.max(...contexts)] : around(contexts);
    const x = logarithmic(low, high, area.left + 6, area.right - 6);
    const y = linear(0, Math.max(...speeds.map((of) => Math.max(of.ms, floor(of)))) * 1.12, area.bottom, area.top);
    const ends = contexts.filter((at, i) => i === contexts.length - 1 || x(contexts[contexts.length - 1]) - x(at) > 46);
    const shown = ends.filter((at, i) => i === 0 || x(at) - x(ends[i - 1]) > 40);
    axes(svg, area, x, y, { xTitle: "tokens cached", yTitle: "ms a token", xText: number, yText: plain, xTicks: shown });
    const path = (value) => speeds.map((of, i) => `${i ? "L" : "M"}${x(contexts[i])},${y(value(of))}`).join("");
    svg.append(shape("path", { d: path(floor), fill: "none", stroke: "var(--faint)", "stroke-width": 1.5, "stroke-dasharray": "4 4" }));
    svg.append(shape("path", { d: path((of) => of.ms), fill: "none", stroke: "var(--accent)", "stroke-width": 2.25 }));
    for (const [i, of] of speeds.entries())
      svg.append(
        hover(
          shape("circle", { cx: x(contexts[i]), cy: y(of.ms), r: 4.5, fill: "var(--accent)" }),
          `${tokens(of.context)} cached\n${number(of.ms, 4)} ms a token (median ${number(of.ms_median, 4)}, p99 ${number(of.ms_p99, 4)})\n${percent(of.share)} of ${number(of.limit_gb_s, 1)} GB/s`,
        ),
      );
    const last = speeds[speeds.length - 1];
    const gap = Math.abs(y(last.ms) - y(floor(last))) < 16 ? 9 : 0;
    svg.append(words(area.right + 6, y(last.ms) + 4 - gap, significant(last.ms) + " ms", { kind: "strong" }));
    svg.append(words(area.right + 6, y(floor(last)) + 4 + gap, "bytes alone"));
  });
  node.append(
    card,
    table(
      [
        { title: "Tokens cached", isNumber: true, value: (row) => row.context },
        { title: "ms a token", isNumber: true, digits: 4, value: (row) => row.ms },
        { title: "Median ms", isNumber: true, digits: 4, value: (row) => row.ms_median },
        { title: "p99 ms", isNumber: true, digits: 4, value: (row) => row.ms_p99 },
        { title: "Weight bytes", isNumber: true, value: (row) => row.weight_bytes },
        { title: "Cache bytes", isNumber: true, value: (row) => row.cache_bytes },
        { title: "Streams GB/s", isNumber: true, digits: 2, value: (row) => row.limit_gb_s },
        { title: "Share", isNumber: true, value: (row) => row.share, text: (row) => percent(row.share) },
      ],
      speeds,
      { label: "Speeds" },
    ),
  );
});
