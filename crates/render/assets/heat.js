// Heat by address and time, on a canvas, with the names of the mappings beside it.
const RAMPS = {
  light: [[226, 236, 247], [158, 202, 225], [66, 146, 198], [8, 81, 156], [3, 19, 51]],
  dark: [[30, 50, 74], [20, 93, 160], [50, 150, 220], [150, 210, 250], [245, 252, 255]],
};
function shade(share, ramp) {
  const at = Math.min(0.9999, Math.max(0, share)) * (ramp.length - 1), low = Math.floor(at);
  const mix = ramp[low].map((c, i) => Math.round(c + (ramp[low + 1][i] - c) * (at - low)));
  return `rgb(${mix[0]},${mix[1]},${mix[2]})`;
}

const samples = (count) => count === 1 ? "1 sample" : `${count} samples`;

function heatPlot(figure, chart) {
  const edges = chart.edges_seconds, rows = chart.rows, areas = chart.areas;
  const isPrint = matchMedia("print").matches;
  const ramp = RAMPS[!isPrint && matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"];
  const width = Math.max(260, figure.clientWidth - 20), isNarrow = width < 560;
  // Heights: rows, and a head for each mapping so that its name has room.
  const rowHeight = Math.max(4, Math.min(10, Math.floor(420 / rows.length))), head = 18;
  const tops = [], heads = [];
  let y = 22;
  rows.forEach((row, at) => {
    if (at === 0 || rows[at - 1].area !== row.area) { heads.push([y, row.area]); y += head; }
    tops.push(y);
    y += rowHeight;
  });
  const height = y + 34, left = 12, right = width - 12;
  const low = edges[0], high = edges[edges.length - 1];
  const sx = (t) => left + (t - low) / (high - low || 1) * (right - left);
  const most = chart.cells.reduce((a, cell) => Math.max(a, cell[2]), 1);
  const shadeOf = (count) => shade(Math.log(count + 1) / Math.log(most + 1), ramp);
  const key = html("ul", "legend", figure);
  const item = (draw, text) => {
    const li = html("li", "", key);
    const svg = el("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, li);
    draw(svg);
    li.appendChild(document.createTextNode(text));
  };
  // With few samples, the middle equals an end.
  const middle = Math.round(Math.sqrt(most + 1) - 1);
  for (const count of new Set([1, Math.max(1, middle), most]))
    item((svg) => el("rect", { width: 26, height: 10, style: `fill:${shadeOf(count)}` }, svg), samples(count));
  item((svg) => { el("rect", { width: 26, height: 10, style: `fill:${shadeOf(middle)}` }, svg);
    el("rect", { y: 7, width: 26, height: 3, style: "fill:#ff8c1a" }, svg); }, "on huge pages");
  if (chart.marks.length) item((svg) => el("line", { class: "mark", x1: 13, x2: 13, y1: 0, y2: 10 }, svg),
    "a phase begins, or a round changed pages");
  const stage = html("div", "", figure);
  stage.style.position = "relative";
  const canvas = html("canvas", "", stage);
  const factor = Math.min(2, Math.max(1, window.devicePixelRatio || 1)) * (isPrint ? 2 : 1);
  canvas.width = width * factor; canvas.height = height * factor;
  canvas.style.height = `${height}px`; canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Heat by address and time. Arrow keys move the cursor.");
  const c = canvas.getContext("2d");
  const css = getComputedStyle(document.documentElement);
  const ink = (name) => css.getPropertyValue(name).trim();
  c.scale(factor, factor);
  c.fillStyle = ink("--back");
  tops.forEach((top) => c.fillRect(left, top, right - left, rowHeight));
  const cells = new Map();
  for (const [column, row, heat, huge] of chart.cells) {
    cells.set(column * 65536 + row, [heat, huge]);
    const x0 = Math.round(sx(edges[column])), x1 = Math.round(sx(edges[column + 1]));
    c.fillStyle = shadeOf(heat);
    c.fillRect(x0, tops[row], Math.max(1, x1 - x0), rowHeight);
    if (huge * 2 > heat) {
      c.fillStyle = "#ff8c1a";
      c.fillRect(x0, tops[row] + rowHeight - 2, Math.max(1, x1 - x0), 2);
    }
  }
  c.font = "12px system-ui, sans-serif";
  for (const [top, area] of heads) {
    const { name, start, end } = areas[area];
    const size = show(end - start, "bytes");
    const label = isNarrow ? `${name} (${size})` : `${name}  at 0x${start.toString(16)}, ${size}`;
    const fits = Math.floor((right - left) / 6.8);
    c.fillStyle = ink("--text");
    c.fillText(label.length > fits ? label.slice(0, fits - 1) + "…" : label, left, top + 13);
  }
  c.fillStyle = ink("--soft");
  c.textAlign = "center";
  for (const t of ticks(low, high, isNarrow ? 4 : 9, "seconds")) c.fillText(digits(t) + "s", sx(t), height - 18);
  c.textAlign = "right";
  c.fillText("time", right, height - 3);
  c.textAlign = "left";
  const marks = placed(chart.marks, { low, high }, sx, left, right);
  c.fillStyle = ink("--mark");
  for (const { x, name, isLeft } of marks) {
    for (let at = 16; at < height - 34; at += 6) c.fillRect(x, at, 1, 3);
    c.textAlign = isLeft ? "right" : "left";
    if (name) c.fillText(name, x + (isLeft ? -3 : 3), 12);
  }
  markLegend(figure, marks);
  const line = html("div", "", stage);
  line.style.cssText = `position:absolute;top:16px;height:${height - 50}px;border-left:1px dashed var(--text);pointer-events:none`;
  line.hidden = true;
  cursors.push((time) => {
    line.hidden = time === null || time < low || time > high;
    if (!line.hidden) line.style.left = `${sx(time) * stage.clientWidth / width}px`;
  });
  hover(figure, canvas, { width, left, right, top: 22, bottom: height - 36 }, (px, py) => {
    const time = low + (px - left) / (right - left) * (high - low);
    const row = tops.findIndex((top) => py >= top && py < top + rowHeight);
    let column = edges.findIndex((edge) => edge > time) - 1;
    if (row < 0 || column < 0) return null;
    const near = markNames(marks, px).map((name) => `\n${name}`).join("");
    const found = cells.get(column * 65536 + row), area = areas[rows[row].area];
    const text = `${area.name}\n0x${rows[row].start.toString(16)} to 0x${rows[row].end.toString(16)}\n` +
      `${digits(edges[column])}s to ${digits(edges[column + 1])}s\n` +
      (found ? `${samples(found[0])}, ${show(found[1] / found[0], "ratio")} on huge pages` : "no samples") + near;
    return { x: px, time, text };
  }, moveCursors);
  values(figure, ["mapping", "address", "from", "samples", "on huge pages"], () => chart.cells.map((cell) => [
    areas[rows[cell[1]].area].name, "0x" + rows[cell[1]].start.toString(16), digits(edges[cell[0]]) + "s",
    String(cell[2]), String(cell[3])]));
}

const DRAW = { time: timePlot, curves: curvePlot, bars: barPlot, scatter: scatterPlot, flame: flamePlot, heat_map: heatPlot };
function draw() {
  cursors.length = 0;
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    while (figure.children.length > 1) figure.lastChild.remove();
    const chart = plots[Number(figure.dataset.plot)].chart;
    DRAW[chart.type](figure, chart);
  }
}
draw();
let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("beforeprint", draw);
addEventListener("afterprint", draw);
