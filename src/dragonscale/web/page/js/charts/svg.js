// What every chart shares: scales with nice ticks, the text of a tick, axes, the width it has, and a reader of its points.
//
// Charts are plain SVG at the pixel size they are shown at, so lines and text are crisp; colours and fonts come from the
// page's CSS variables, so both themes work and a saved picture can take the computed values.

import { html, useCallback, useLayoutEffect, useState } from "../html.js";

/** @type {Array<[number, string]>} */
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
/** @type {Array<[number, string]>} */
const SECONDS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];

/** @type {[number, string]} */
const ONE = [1, ""];

function trimmed(value) {
  return String(Number(value.toPrecision(3)));
}

function prefixed(value, unit) {
  const [size, prefix] = PREFIXES.find(([one]) => Math.abs(value) >= one * 0.9995) || ONE;
  return `${trimmed(value / size)}${prefix}${unit}`;
}

/** The text of a tick: `tickText(0.02, "s")` is "20ms", `tickText(8e10, "bytes")` "80GB". */
export function tickText(value, unit = "count") {
  if (value === 0) return unit === "share" ? "0%" : "0";
  if (unit === "s") {
    // 100s reads better than 1.67min
    /** @type {(unit: [number, string]) => boolean} */
    const round = ([one]) => one <= 1 || Number.isInteger(Number((value / one).toPrecision(3)));
    const [size, name] = SECONDS.find((one) => Math.abs(value) >= one[0] * 0.9995 && (round(one) || value > 1e5)) || SECONDS[SECONDS.length - 1];
    return `${trimmed(value / size)}${name}`;
  }
  if (unit === "share") return `${trimmed(value * 100)}%`;
  if (unit === "USD") return `$${prefixed(value, "")}`;
  if (unit === "bytes" || unit === "bytes/s") return prefixed(value, unit === "bytes" ? "B" : "B/s");
  if (unit === "count" || !unit) {
    if (Math.abs(value) >= 1e6 && value % 1048576 === 0) return `${(value / 1048576).toLocaleString("en-US")}Mi`;
    return Number.isInteger(value) && Math.abs(value) < 1e5 ? value.toLocaleString("en-US") : prefixed(value, "");
  }
  if (Math.abs(value) < 1) return `${trimmed(value)} ${unit}`;
  return unit.startsWith("FLOP/s") ? prefixed(value, unit) : `${prefixed(value, "")} ${unit}`;
}

/** @type {Array<[number, string]>} */
const BINARY = [[1073741824, "Gi"], [1048576, "Mi"], [1024, "Ki"]];

/** Counts in Ki and Mi: where one of an axis is, all are. */
export function binaryText(value) {
  const [size, name] = BINARY.find(([one]) => value >= one) || ONE;
  return `${trimmed(value / size)}${name}`;
}

/** What `tickText` says on an axis: those that reach a Mi by powers of two are counted so throughout. */
export const axisText = (axis, high) => (axis.binary && (!axis.unit || axis.unit === "count") && high >= 1048576 ? binaryText : (one) => tickText(one, axis.unit));

// an axis of seconds says all of them in one unit, and its ticks are round in that unit
function timeUnit(high) {
  return SECONDS.find(([one]) => Math.abs(high) >= one * 1.9995) || SECONDS[SECONDS.length - 1];
}

/** Round numbers from `low` to `high`, about `many` of them. */
export function linearTicks(low, high, many = 5) {
  const rough = (high - low) / Math.max(many, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** Powers of ten between `low` and `high`, thinned to `many`; with 2 and 5 between them, or powers of two, where there is room. */
export function logTicks(low, high, many = 6) {
  const decades = Math.log10(high / low);
  const every = (factors, step = 1) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      if (power % step === 0) for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(6)));
    }
    return found.filter((one) => one >= low * 0.9999 && one <= high * 1.0001);
  };
  if (decades < 0.5) return linearTicks(low, high, many);
  for (const factors of [[1, 2, 5], [1, 3], [1]]) if (every(factors).length <= many) return every(factors);
  return every([1], Math.ceil(decades / many));
}

/** Powers of two between `low` and `high`, at most `many`: for numbers of chips, sequences and tokens. */
export function binaryTicks(low, high, many = 6) {
  const from = Math.ceil(Math.log2(low) - 1e-9);
  const upto = Math.floor(Math.log2(high) + 1e-9);
  const step = Math.max(1, Math.ceil((upto - from + 1) / many));
  return Array.from({ length: Math.floor((upto - from) / step) + 1 }, (_, at) => 2 ** (from + at * step));
}

/** A scale from values to pixels: {at, back, ticks, low, high}. `axis` is {log, binary, unit, from, upto}. */
export function scaleOf(values, axis, from, upto, many) {
  const finite = values.filter((one) => Number.isFinite(one) && (!axis.log || one > 0));
  let low = axis.from ?? Math.min(...finite);
  let high = axis.upto ?? Math.max(...finite);
  if (!finite.length && axis.from == null) [low, high] = [1, 10];
  if (axis.log) {
    if (high <= low * 1.0001) { low /= 2; high *= 2; }
    const ticks = (axis.binary ? binaryTicks : logTicks)(low, high, many);
    const [a, b] = [Math.log(low), Math.log(high)];
    return {
      low, high, ticks, text: axisText(axis, high), at: (one) => from + ((Math.log(Math.max(one, low / 1e6)) - a) / (b - a)) * (upto - from),
      back: (pixel) => Math.exp(a + ((pixel - from) / (upto - from)) * (b - a)),
    };
  }
  if (axis.from == null && (axis.zero ?? true) && low > 0) low = 0;
  if (high <= low) [low, high] = low > 0 ? [0.9 * low, 1.1 * low] : [low, low + 1];
  const [size, unit] = axis.unit === "s" ? timeUnit(high) : ONE;
  const ticks = linearTicks(low / size, high / size, many).map((one) => one * size);
  if (axis.upto == null && ticks.length > 1) {
    const step = ticks[1] - ticks[0];
    if (ticks[ticks.length - 1] < high) ticks.push(Number((ticks[ticks.length - 1] + step).toPrecision(12)));
    high = Math.max(high, ticks[ticks.length - 1]);
  }
  return {
    low, high, ticks, text: (one) => (axis.unit === "s" && one ? `${trimmed(one / size)}${unit}` : tickText(one, axis.unit)), at: (one) => from + ((one - low) / (high - low)) * (upto - from),
    back: (pixel) => low + ((pixel - from) / (upto - from)) * (high - low),
  };
}

/** A ref for an element and its width in pixels, kept up to date; `first` until it is known. */
export function useWidth(first = 560) {
  // state, not a ref: an element that comes later, once there is something to draw, is observed too
  const [element, ref] = useState(null);
  const [width, set] = useState(first);
  useLayoutEffect(() => {
    if (!element) return undefined;
    const seen = () => set(Math.max(220, Math.floor(element.clientWidth)) || first);
    seen();
    const observer = new ResizeObserver(seen);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [ref, width];
}

const estimated = (text) => [...text].reduce((sum, one) => sum + ("il.,:|1 ".includes(one) ? 0.36 : "mwMW%".includes(one) ? 0.88 : 0.58), 0);
const WIDTHS = new Map();
let pen = null;

/** Widths in ems, as the reader's own font has them: fonts of systems differ by a fifth. */
function measured(text, weight) {
  pen ||= document.createElement("canvas").getContext("2d");
  pen.font = `${weight} 100px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width / 100;
}

/** Pixels that a text takes; without a page, about. */
export function textWidth(text, size = 12, weight = 400) {
  const key = `${weight} ${text}`;
  if (WIDTHS.size > 2000) WIDTHS.clear();
  if (!WIDTHS.has(key)) WIDTHS.set(key, typeof document === "undefined" ? estimated(String(text)) : measured(String(text), weight));
  return WIDTHS.get(key) * size;
}

/** Grid lines and tick texts of both axes; the y axis's name stands above it, the x axis's under its end. */
export function Axes({ box, sx, sy, x, y }) {
  const { left, right, bottom } = box;
  return html`<g class="axes">
    ${sy.ticks.map((one) => html`<g key=${`y${one}`}>
      <line class="grid" x1=${left} x2=${right} y1=${Math.round(sy.at(one)) + 0.5} y2=${Math.round(sy.at(one)) + 0.5} />
      <text class="tick" x=${left - 8} y=${sy.at(one)} dy="0.32em" text-anchor="end">${sy.text(one)}</text></g>`)}
    ${sx.ticks.map((one) => html`<g key=${`x${one}`}>
      <line class="axis" x1=${Math.round(sx.at(one)) + 0.5} x2=${Math.round(sx.at(one)) + 0.5} y1=${bottom} y2=${bottom + 4} />
      <text class="tick" x=${sx.at(one)} y=${bottom + 17} text-anchor="middle">${sx.text(one)}</text></g>`)}
    <line class="axis" x1=${left} x2=${right} y1=${bottom + 0.5} y2=${bottom + 0.5} />
    ${y.label && html`<text class="name" x="0" y="12">${y.label}</text>`}
    ${x.label && html`<text class="name" x=${right} y=${bottom + 35} text-anchor="end">${x.label} →</text>`}
  </g>`;
}

/** The box inside the axes of a chart of this size, whose y scale is about `sy`; `right` is room for texts at the ends of lines. */
export function boxOf(width, height, sy, right = 16) {
  const left = Math.ceil(Math.max(24, ...sy.ticks.map((one) => textWidth(sy.text(one))))) + 12;
  return { left, right: width - right, top: 26, bottom: height - 42 };
}

/** Reads a chart: the pointer finds the nearest of `spots` ({x, y, text}), the arrow keys go through them, Enter picks.
 * Lies over the SVG; `byX` looks along x alone. */
export function Reader({ label, spots, active, onActive, onPick, byX = false, width, height }) {
  const found = useCallback((event) => {
    const area = event.currentTarget.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left, event.clientY - area.top];
    let best = null;
    let least = Infinity;
    spots.forEach((spot, at) => {
      const far = byX ? Math.abs(spot.x - px) : Math.hypot(spot.x - px, spot.y - py);
      if (far < least) [best, least] = [at, far];
    });
    return byX || least < 48 ? best : null;
  }, [spots, byX]);
  const moved = (event) => {
    const last = spots.length - 1;
    const now = active ?? -1;
    const to = { ArrowRight: Math.min(last, now + 1), ArrowUp: Math.min(last, now + 1), ArrowLeft: Math.max(0, now - 1),
      ArrowDown: Math.max(0, now - 1), Home: 0, End: last }[event.key];
    if (to != null) { event.preventDefault(); onActive(to); }
    if (event.key === "Escape") onActive(null);
    if ((event.key === "Enter" || event.key === " ") && onPick && active != null) { event.preventDefault(); onPick(active); }
  };
  const picked = (event) => { const at = found(event); if (at != null) { onActive(at); if (onPick) onPick(at); } };
  if (!spots.length) return null;
  return html`<div class=${`reader${onPick ? " reader-picks" : ""}`} style=${{ width: `${width}px`, height: `${height}px` }} role="slider" tabindex="0"
    aria-label=${`${label}: read its points with the arrow keys`} aria-orientation="horizontal" aria-valuemin="1" aria-valuemax=${spots.length}
    aria-valuenow=${(active ?? 0) + 1} aria-valuetext=${spots[active ?? 0]?.text || ""} onPointerMove=${(event) => onActive(found(event))}
    onPointerLeave=${() => onActive(null)} onFocus=${(event) => { if (event.currentTarget.matches(":focus-visible") && active == null) onActive(0); }}
    onBlur=${() => onActive(null)} onKeyDown=${moved} onClick=${picked}></div>`;
}

/** What is told at a point of a chart; it stays inside the chart. */
export function Tip({ x, y, width, children }) {
  const left = x > width * 0.55;
  const style = left ? { right: `${width - x + 12}px`, top: `${Math.max(0, y - 12)}px` } : { left: `${x + 12}px`, top: `${Math.max(0, y - 12)}px` };
  return html`<div class="tip" style=${style} aria-hidden="true">${children}</div>`;
}

/** The numbers of a chart as a table that opens: for those who cannot see it, and for those who want them. `rows` is a function that makes them. */
export function ChartTable({ columns, rows }) {
  const [open, set] = useState(false);
  return html`<details class="chart-table" onToggle=${(event) => set(event.currentTarget.open)}>
    <summary>Numbers</summary>
    ${open && html`<div class="scroll" tabindex="0" role="region" aria-label="Numbers of the chart"><table><thead><tr>${columns.map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
      <tbody>${rows().map((row, at) => html`<tr key=${at}>${row.map((one, place) => html`<td key=${place}>${one}</td>`)}</tr>`)}</tbody></table></div>`}
  </details>`;
}
