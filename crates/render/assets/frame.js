// Axes, legends, values and cursors that all plots share. Texts are set by textContent only.
const { plots, times: sharedTimes } = JSON.parse(document.getElementById("plots").textContent);
const DASHES = ["", "7 3", "2 2", "9 3 2 3", "", "7 3", "2 2"];
// From the eighth line on, the colours repeat with other dashes.
const dash = (index) => DASHES[(index + 2 * Math.floor(index / 7)) % 7];
const color = (index) => `var(--c${index % 7})`;

function el(name, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}
function html(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function digits(value) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return String(Number(value.toFixed(Math.min(9, Math.max(0, 2 - size)))));
}
function scaled(value, step, names) {
  let at = 0;
  while (Math.abs(value) >= step && at + 1 < names.length) { value /= step; at += 1; }
  return digits(value) + names[at];
}
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function show(value, unit) {
  if (value === null || value === undefined || !isFinite(value)) return "not measured";
  switch (unit) {
    case "bytes": return scaled(value, 1024, BYTES);
    case "bytes_per_second": return scaled(value, 1024, BYTES) + "/s";
    case "per_second": return scaled(value, 1000, ["", "k", "M", "G"]) + "/s";
    case "count": return scaled(value, 1000, ["", "k", "M", "G"]);
    case "seconds": return value !== 0 && Math.abs(value) < 1 ? digits(value * 1000) + "ms" : digits(value) + "s";
    case "ratio": return digits(value * 100) + " %";
    case "log2": return scaled(Math.round(2 ** value), 1024, ["", "Ki", "Mi", "Gi", "Ti"]);
    default: return digits(value);
  }
}
function ticks(low, high, count, unit) {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step;
  if (unit === "bytes" || unit === "bytes_per_second") {
    step = Math.pow(2, Math.ceil(Math.log2(span / count)));
  } else if (unit === "log2") {
    step = Math.ceil(span / count);
  } else {
    const raw = span / count, base = Math.pow(10, Math.floor(Math.log10(raw)));
    step = [1, 2, 5, 10].map((f) => f * base).find((s) => s >= raw);
  }
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(v);
  return found;
}

// The frame of a plot: an SVG as wide as its figure, with axes; returns scales.
function frame(figure, height, x, y) {
  const width = Math.max(260, figure.clientWidth - 20);
  const box = { left: 66, right: width - 12, top: 22, bottom: height - 34, width, height };
  const svg = el("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: "0" }, figure);
  const title = figure.querySelector("b");
  el("title", {}, svg, title ? title.textContent : "");
  const sx = (v) => box.left + (v - x.low) / (x.high - x.low || 1) * (box.right - box.left);
  const sy = (v) => box.bottom - (v - y.low) / (y.high - y.low || 1) * (box.bottom - box.top);
  for (const v of ticks(y.low, y.high, 5, y.unit)) {
    el("line", { class: "axis", x1: box.left, x2: box.right, y1: sy(v), y2: sy(v) }, svg);
    el("text", { class: "soft", x: box.left - 6, y: sy(v) + 4, "text-anchor": "end" }, svg, show(v, y.unit));
  }
  for (const v of ticks(x.low, x.high, width < 500 ? 4 : 9, x.unit)) {
    el("line", { class: "axis", x1: sx(v), x2: sx(v), y1: box.bottom, y2: box.bottom + 4 }, svg);
    // A long value at the right end would be cut.
    const text = x.unit === "seconds" ? digits(v) + "s" : show(v, x.unit), isEnd = sx(v) + 4 * text.length > width;
    el("text", { class: "soft", x: isEnd ? width : sx(v), y: box.bottom + 17,
      "text-anchor": isEnd ? "end" : "middle" }, svg, text);
  }
  if (x.name) el("text", { class: "soft", x: box.right, y: height - 4, "text-anchor": "end" }, svg, x.name);
  if (y.name) el("text", { class: "soft", x: 4, y: 12 }, svg, y.name);
  return { svg, box, sx, sy, toX: (px) => x.low + (px - box.left) / (box.right - box.left) * (x.high - x.low) };
}

// A single line with the name of the plot needs none.
function legend(figure, names, isFilled) {
  if (names.length === 1 && names[0] === figure.querySelector("figcaption b").textContent) return;
  const list = html("ul", "legend", figure);
  names.forEach((name, index) => {
    const item = html("li", "", list);
    const key = el("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, item);
    if (isFilled) el("rect", { width: 26, height: 10, style: `fill:${color(index)}` }, key);
    else el("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": dash(index),
      style: `stroke:${color(index)}` }, key);
    item.appendChild(document.createTextNode(name));
  });
}

// Events inside a plot, each with its name beside its line, on the side where it has room; without room, no name.
function placed(marks, x, sx, left, right) {
  let free = left;
  // The first phase can begin shortly before the first slice.
  const slack = (x.high - x.low) / 100;
  return marks.filter((mark) => mark.time_seconds >= x.low - slack && mark.time_seconds <= x.high).map((mark) => {
    const at = Math.max(left, sx(mark.time_seconds)), name = mark.name.length > 18 ? mark.name.slice(0, 17) + "…" : mark.name;
    const size = 3 + 7 * name.length, isRight = at >= free && at + size <= right, isLeft = !isRight && at - size >= free;
    if (isRight || isLeft) free = at + (isRight ? size + 7 : 4);
    return { mark, x: at, name: isRight || isLeft ? name : "", isLeft };
  });
}
function drawMarks(figure, view, marks, x) {
  const all = placed(marks, x, view.sx, view.box.left, view.box.right);
  for (const { x, name, isLeft } of all) {
    el("line", { class: "mark", x1: x, x2: x, y1: view.box.top, y2: view.box.bottom }, view.svg);
    if (name) el("text", { class: "markname", x: x + (isLeft ? -3 : 3), y: view.box.top - 4,
      "text-anchor": isLeft ? "end" : "start" }, view.svg, name);
  }
  markLegend(figure, all);
  return all;
}
// The events without room for their names.
function markLegend(figure, all) {
  const most = 8, rest = all.filter(({ name }) => !name).map(({ mark }) => `${digits(mark.time_seconds)}s ${mark.name}`);
  if (!rest.length) return;
  const item = html("li", "", html("ul", "legend marks", figure));
  const key = el("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, item);
  el("line", { class: "mark", x1: 13, x2: 13, y1: 0, y2: 10 }, key);
  const more = rest.length > most ? `; ${rest.length - most} more` : "";
  item.appendChild(document.createTextNode(rest.slice(0, most).join("; ") + more));
}
// Lines of a tip for the events near a place.
function markNames(all, px) {
  return all.filter(({ x }) => Math.abs(x - px) <= 4).map(({ mark }) => `${digits(mark.time_seconds)}s: ${mark.name}`);
}

// Values under the cursor. `values(px, py)` returns a text and a position, or null.
function hover(figure, target, scale, values, onMove) {
  const tip = html("div", "tip", figure);
  tip.hidden = true;
  tip.setAttribute("role", "status");
  const place = (found) => {
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = found.text;
    const factor = target.getBoundingClientRect().width / scale.width;
    const left = target.offsetLeft !== undefined ? target.offsetLeft : 10;
    const right = found.x * factor > target.getBoundingClientRect().width / 2;
    const x = (left || 10) + found.x * factor;
    tip.style.left = right ? "" : `${x + 12}px`;
    tip.style.right = right ? `${figure.clientWidth - x + 12}px` : "";
    tip.style.top = `${target.getBoundingClientRect().top - figure.getBoundingClientRect().top + 26}px`;
  };
  const at = (event) => {
    const rect = target.getBoundingClientRect();
    const factor = scale.width / rect.width;
    return [(event.clientX - rect.left) * factor, (event.clientY - rect.top) * factor];
  };
  let last = null;
  const move = (x, y) => {
    last = [x, y];
    const found = values(x, y);
    place(found);
    if (onMove) onMove(found ? found.time : null);
  };
  for (const name of ["pointerdown", "pointermove"]) target.addEventListener(name, (event) => move(...at(event)));
  // A finger leaves when it is lifted; its values stay until something else is touched.
  target.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return;
    place(null);
    if (onMove) onMove(null);
  });
  target.addEventListener("blur", () => { place(null); if (onMove) onMove(null); });
  target.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape") { place(null); if (onMove) onMove(null); return; }
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const size = event.shiftKey ? 10 : 1;
    const [x, y] = last || [(scale.left + scale.right) / 2, (scale.top + scale.bottom) / 2];
    move(Math.max(scale.left, Math.min(scale.right, x + step[0] * size * 3)),
      Math.max(scale.top, Math.min(scale.bottom, y + step[1] * size * 3)));
  });
}

// One cursor for all plots over time.
const cursors = [];
function moveCursors(time) {
  for (const cursor of cursors) cursor(time);
}

// The values of a plot as a table, made when it is opened.
function values(figure, head, rows) {
  const details = html("details", "", figure);
  html("summary", "", details, "Values");
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const table = html("table", "", html("div", "table", details));
    const first = html("tr", "", html("thead", "", table));
    for (const name of head) html("th", "", first, name);
    const body = html("tbody", "", table);
    const all = rows();
    for (const row of all.slice(0, 1000)) {
      const line = html("tr", "", body);
      row.forEach((cell, at) => html("td", at ? "number" : "", line, cell));
    }
    if (all.length > 1000) html("p", "", details, `The first 1000 of ${all.length} rows.`);
  });
}
