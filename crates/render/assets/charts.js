// Plots over time, curves, bars and flame graphs.
function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}

function timePlot(figure, chart) {
  const times = sharedTimes[chart.times_seconds], lines = chart.lines;
  if (!times.length) return;
  const sums = times.map((_, at) => lines.reduce((sum, line) => sum + (line.values[at] || 0), 0));
  let high = 0;
  if (chart.stacked) high = sums.reduce((a, b) => Math.max(a, b), 0);
  else for (const line of lines) for (const v of line.values) if (v !== null) high = Math.max(high, v);
  const low = lines.reduce((least, line) => line.values.reduce((a, v) => v === null ? a : Math.min(a, v), least), 0);
  legend(figure, lines.map((line) => line.name), chart.stacked);
  // Of the part from a late time on, only that part. One time is no part.
  const last = times[times.length - 1], isPart = times.length > 1 && times[0] > last / 3;
  const first = isPart ? times[0] : Math.min(0, times[0]);
  const x = { low: first, high: last, unit: "seconds", name: "time" };
  const view = frame(figure, 220, x, { low, high: high * 1.05 || 1, unit: chart.unit });
  const below = times.map(() => 0);
  lines.forEach((line, index) => {
    let path = "", open = false;
    if (chart.stacked && times.length === 1) {
      // An area of one time would have no width.
      const bottom = view.sy(below[0]);
      below[0] += line.values[0] || 0;
      el("rect", { class: "point", x: view.sx(last) - 12, width: 12, y: view.sy(below[0]), height: bottom - view.sy(below[0]),
        style: `fill:${color(index)}` }, view.svg);
      return;
    }
    if (chart.stacked) {
      const back = times.map((t, at) => `${view.sx(t).toFixed(1)},${view.sy(below[at]).toFixed(1)}`).reverse();
      line.values.forEach((v, at) => { below[at] += v || 0; });
      const top = times.map((t, at) => `${view.sx(t).toFixed(1)},${view.sy(below[at]).toFixed(1)}`);
      path = "M" + top.concat(back).join("L") + "Z";
      el("path", { d: path, style: `fill:${color(index)};stroke:none` }, view.svg);
      return;
    }
    line.values.forEach((v, at) => {
      if (v === null) { open = false; return; }
      path += `${open ? "L" : "M"}${view.sx(times[at]).toFixed(1)},${view.sy(v).toFixed(1)}`;
      // A value between two gaps has no line.
      if (!open && (line.values[at + 1] ?? null) === null) el("circle", { class: "point", cx: view.sx(times[at]),
        cy: view.sy(v), r: 3, style: `fill:${color(index)}` }, view.svg);
      open = true;
    });
    el("path", { d: path, "stroke-dasharray": dash(index), "stroke-linecap": "round",
      style: `fill:none;stroke:${color(index)};stroke-width:1.6` }, view.svg);
  });
  const marks = drawMarks(figure, view, chart.marks, x);
  const cursor = el("line", { class: "cursor", y1: view.box.top, y2: view.box.bottom, visibility: "hidden" }, view.svg);
  cursors.push((time) => {
    const isInside = time !== null && time >= x.low && time <= x.high;
    cursor.setAttribute("visibility", isInside ? "visible" : "hidden");
    if (isInside) { cursor.setAttribute("x1", view.sx(time)); cursor.setAttribute("x2", view.sx(time)); }
  });
  hover(figure, view.svg, view.box, (px) => {
    const at = nearest(times, view.toX(px));
    const rows = lines.map((line) => `${line.name}: ${show(line.values[at], chart.unit)}`);
    return { x: view.sx(times[at]), time: times[at], text: [`at ${digits(times[at])}s`].concat(rows, markNames(marks, px)).join("\n") };
  }, moveCursors);
  values(figure, ["time"].concat(lines.map((line) => line.name)),
    () => times.map((t, at) => [digits(t) + "s"].concat(lines.map((line) => show(line.values[at], chart.unit)))));
}

function curvePlot(figure, chart) {
  let lowX = Infinity, highX = -Infinity, highY = chart.y_unit === "ratio" ? 1 : 0, lowY = 0;
  for (const curve of chart.curves) for (const [px, py] of curve.points) {
    lowX = Math.min(lowX, px); highX = Math.max(highX, px);
    lowY = Math.min(lowY, py); highY = Math.max(highY, py);
  }
  if (!isFinite(lowX)) return;
  if (lowX > 0 && lowX < highX / 3) lowX = 0;
  legend(figure, chart.curves.map((curve) => curve.name));
  const x = { low: lowX, high: highX > lowX ? highX : lowX + 1, unit: chart.x_unit, name: chart.x_name };
  const view = frame(figure, 270, x, { low: lowY, high: highY * 1.02, unit: chart.y_unit, name: chart.y_name });
  chart.curves.forEach((curve, index) => {
    let path = "", before = null;
    for (const [px, py] of curve.points) {
      if (before !== null && chart.steps) path += `H${view.sx(px).toFixed(1)}`;
      path += `${before === null ? "M" : "L"}${view.sx(px).toFixed(1)},${view.sy(py).toFixed(1)}`;
      before = py;
    }
    if (chart.steps) path += `H${view.sx(x.high).toFixed(1)}`;
    el("path", { d: path, "stroke-dasharray": dash(index),
      style: `fill:none;stroke:${color(index)};stroke-width:2` }, view.svg);
    if (!chart.steps) for (const [px, py] of curve.points)
      el("circle", { cx: view.sx(px), cy: view.sy(py), r: 2.5, style: `fill:${color(index)}` }, view.svg);
  });
  const value = (curve, at) => {
    let found = null;
    for (const [px, py] of curve.points) { if (px > at && found !== null) break; if (px <= at) found = py; }
    return found;
  };
  hover(figure, view.svg, view.box, (px) => {
    const at = Math.max(x.low, Math.min(x.high, view.toX(px)));
    const rows = chart.curves.map((curve) => {
      const found = value(curve, at);
      return `${curve.name}: ${found === null && chart.steps ? show(0, chart.y_unit) : show(found, chart.y_unit)}`;
    });
    return { x: view.sx(at), text: [`${chart.x_name}: ${show(at, chart.x_unit)}`].concat(rows).join("\n") };
  });
  values(figure, ["curve", chart.x_name, chart.y_name], () => chart.curves.flatMap((curve) =>
    curve.points.map(([px, py]) => [curve.name, show(px, chart.x_unit), show(py, chart.y_unit)])));
}

function scatterPlot(figure, chart) {
  const points = chart.groups.flatMap((group, index) => group.points.map((point) => [...point, index]));
  const most = (at) => points.reduce((high, point) => Math.max(high, point[at]), 1);
  const x = { low: 0, high: most(0), unit: chart.x_unit, name: chart.x_name };
  const y = { low: 0, high: most(1), unit: chart.y_unit, name: chart.y_name };
  legend(figure, chart.groups.map((group) => group.name));
  const view = frame(figure, 320, x, y), { left, right, top, bottom } = view.box;
  const bx = view.sx(chart.border), by = view.sy(chart.border);
  if (chart.border <= x.high) el("line", { class: "mark", x1: bx, x2: bx, y1: top, y2: bottom }, view.svg);
  if (chart.border <= y.high) el("line", { class: "mark", x1: left, x2: right, y1: by, y2: by }, view.svg);
  for (const [px, py, count, index] of points)
    el("circle", { cx: view.sx(px), cy: view.sy(py), r: 1.5 + 2 * Math.sqrt(Math.log1p(count)),
      style: `fill:${color(index)};fill-opacity:.5` }, view.svg);
  const row = ([px, py, count, index]) => [chart.groups[index].name, show(px, x.unit), show(py, y.unit), show(count, "count")];
  hover(figure, view.svg, view.box, (px, py) => {
    const near = points.filter((point) => Math.hypot(view.sx(point[0]) - px, view.sy(point[1]) - py) < 9);
    if (!near.length) return null;
    const text = near.map(row).map(([name, across, up, count]) => `${name}: ${count} ${chart.things} at ${across}, ${up}`);
    return { x: px, text: text.join("\n") };
  });
  values(figure, ["group", chart.x_name, chart.y_name, chart.things], () => points.map(row));
}

function barPlot(figure, chart) {
  const width = Math.max(260, figure.clientWidth - 20), row = 34;
  const height = chart.bars.length * row + 8;
  const most = chart.bars.reduce((a, bar) => Math.max(a, bar.value || 0, bar.range ? bar.range[1] : 0), 0) || 1;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0" }, figure);
  el("title", {}, svg, chart.name);
  const sx = (v) => Math.max(0, v) / most * (width - 110);
  chart.bars.forEach((bar, at) => {
    const y = at * row;
    // Begin and end of a name say more than its middle.
    const room = Math.floor(width / 6.8), half = Math.floor((room - 1) / 2);
    el("text", { x: 0, y: y + 12 }, svg,
      bar.name.length > room ? `${bar.name.slice(0, half)}…${bar.name.slice(-half)}` : bar.name);
    if (bar.value !== null) el("rect", { x: 0, y: y + 16, width: sx(bar.value), height: 12, style: "fill:var(--c0)" }, svg);
    if (bar.range) el("line", { x1: sx(bar.range[0]), x2: sx(bar.range[1]), y1: y + 22, y2: y + 22, "stroke-width": 2,
      style: "stroke:var(--c1)" }, svg);
    const end = bar.range ? Math.max(sx(bar.range[1]), sx(bar.value || 0)) : sx(bar.value || 0);
    el("text", { class: "soft", x: end + 6, y: y + 27 }, svg, show(bar.value, chart.unit));
  });
  hover(figure, svg, { width, left: 0, right: width, top: 0, bottom: height }, (px, py) => {
    const bar = chart.bars[Math.floor(py / row)];
    if (!bar) return null;
    const range = bar.range ? `\n${show(bar.range[0], chart.unit)} to ${show(bar.range[1], chart.unit)}` : "";
    return { x: px, text: `${bar.name}\n${chart.name}: ${show(bar.value, chart.unit)}${range}` };
  });
}

function flamePlot(figure, chart) {
  const width = Math.max(260, figure.clientWidth - 20), row = 19, nodes = chart.nodes;
  const depth = [], start = [], used = [];
  const total = nodes.reduce((sum, node) => node.parent === null ? sum + node.samples : sum, 0) || 1;
  let roots = 0, deepest = 0;
  nodes.forEach((node, at) => {
    const parent = node.parent;
    depth[at] = parent === null ? 0 : depth[parent] + 1;
    start[at] = parent === null ? roots : start[parent] + (used[parent] || 0);
    if (parent === null) roots += node.samples; else used[parent] = (used[parent] || 0) + node.samples;
    if (node.samples / total * width >= 1) deepest = Math.max(deepest, depth[at]);
  });
  const height = (deepest + 1) * row + 4;
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0" }, figure);
  el("title", {}, svg, "Flame graph of stalls");
  const rects = [];
  nodes.forEach((node, at) => {
    const x = start[at] / total * width, w = node.samples / total * width, y = depth[at] * row;
    if (w < 1) return;
    el("rect", { x, y, width: Math.max(0.5, w - 1), height: row - 1, rx: 2,
      style: `fill:${color(depth[at] % 2 ? 5 : 0)};fill-opacity:.3;stroke:var(--line)` }, svg);
    const fits = Math.floor((w - 8) / 6.6);
    if (fits > 3) el("text", { x: x + 4, y: y + 13 }, svg,
      node.name.length > fits ? node.name.slice(0, fits - 1) + "…" : node.name);
    rects.push({ x, w, y, node });
  });
  hover(figure, svg, { width, left: 0, right: width, top: 0, bottom: height }, (px, py) => {
    const found = rects.find((r) => px >= r.x && px < r.x + r.w && py >= r.y && py < r.y + row);
    if (!found) return null;
    return { x: px, text: `${found.node.name}\n${found.node.samples} samples, ${show(found.node.samples / total, "ratio")}` };
  });
}
