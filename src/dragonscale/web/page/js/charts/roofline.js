// The roofline: what a chip can do at most at each arithmetic intensity, and where the plan's own operations lie under it.

import { html, useContext, useMemo, useState } from "../html.js";
import { Deriving } from "../number.js";
import { colourOf } from "../theme.js";
import { along, inside, PointNames } from "./labels.js";
import { Legend } from "./lines.js";
import { Axes, boxOf, ChartTable, Reader, scaleOf, textWidth, tickText, Tip, useWidth } from "./svg.js";

const BOUNDS = { compute: "compute", hbm: "hbm", HBM: "hbm", memory: "hbm", network: "tensor", ICI: "tensor", ici: "tensor", links: "tensor" };
/** Dash patterns of the roofs after the first, so that two of one colour can be told apart. */
const DASHES = ["6 4", "2 3", "10 3 2 3", "1 4"];

/** How a roof is drawn: the first is the chip's own, in ink; the others are dashed, in the colour of their mesh axis. */
const strokeOf = (roof, index) => (index === 0 ? { stroke: "var(--ink)" }
  : { stroke: roof.role ? `color-mix(in srgb, ${colourOf(roof.role)} 75%, var(--ink))` : "var(--muted)", strokeDasharray: DASHES[(index - 1) % DASHES.length] });

/** The legend of the points: one entry for each colour, which names everything that is drawn in it. */
export function legendOf(points) {
  const names = new Map();
  for (const point of points) {
    const role = point.role || boundRole(point.bound);
    const name = point.group || (point.bound ? `bound by ${point.bound}` : point.name);
    names.set(role, (names.get(role) || new Set()).add(name));
  }
  return [...names].map(([role, texts]) => ({ role, name: [...texts].join(", ") }));
}

/** The role of the colour of what bounds an operation. */
export const boundRole = (bound) => BOUNDS[bound] || (bound ? "tensor" : "overhead");

function laidOut(roofs, points, x, y, width, height) {
  const ridges = roofs.map((roof) => roof.peak / roof.bandwidth);
  const intensities = [...points.map((one) => one.intensity), ...ridges].filter((one) => one > 0);
  // at least a decade and a half under the ridge, so that the slope is seen
  const low = 10 ** Math.floor(Math.log10(Math.min(Math.min(...intensities) / 1.5, Math.min(...ridges) / 20)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...intensities) * 2));
  const peak = Math.max(...roofs.map((roof) => roof.peak));
  const top = Math.max(peak, ...points.map((one) => one.rate || 0)) * 2;
  const floor = Math.min(peak / 60, ...points.map((one) => (one.rate > 0 ? one.rate / 2 : Infinity)));
  const yAxis = { ...y, log: true, from: floor, upto: top };
  const many = Math.max(3, Math.floor(height / 56));
  const box = boxOf(width, height, scaleOf([], yAxis, height - 42, 26, many), 20);
  const sy = scaleOf([], yAxis, box.bottom, box.top, many);
  const sx = scaleOf([], { ...x, log: true, from: low, upto: high }, box.left, box.right, Math.max(3, Math.floor((box.right - box.left) / 70)));
  return { box, sx, sy, low, high, floor };
}

/** The corners of a roof: where its slope begins, its ridge, and its end. */
function cornersOf(roof, { sx, sy, low, high, floor }) {
  const [start, ridge] = [Math.max(low, floor / roof.bandwidth), roof.peak / roof.bandwidth];
  return [[sx.at(start), sy.at(roof.bandwidth * start)], [sx.at(ridge), sy.at(roof.peak)], [sx.at(high), sy.at(roof.peak)]];
}

const sameAs = (roofs, at) => at > 0 && roofs[at].peak === roofs[0].peak;

function Roof({ roof, at, found, same }) {
  const { box } = found;
  const corners = cornersOf(roof, found);
  const [[start], [x, y]] = corners;
  const path = `M${corners.map((one) => one.join(" ")).join("L")}`;
  const text = ridgeText(roof);
  return html`<g class="roof">
    ${at === 0 && html`<path class="under" d=${`${path}L${box.right} ${box.bottom}L${start} ${box.bottom}Z`} /><line class="ridge" x1=${x} x2=${x} y1=${y} y2=${box.bottom} />
      <text class="note" x=${inside(x + 4, textWidth(text, 11), box.left, box.right)} y=${box.bottom - 6}>${text}</text>`}
    <path class=${at ? "roof-line roof-other" : "roof-line"} d=${path} style=${strokeOf(roof, at)} />
    ${!same && html`<text class="note" x=${box.right} y=${y - 6} text-anchor="end">${roofText(roof)}</text>`}
  </g>`;
}

const ridgeText = (roof) => `${trimmed(roof.peak / roof.bandwidth)} FLOP/B`;
const roofText = (roof) => `${roof.name} ${tickText(roof.peak, "FLOP/s")}`;
const trimmed = (value) => Number(value.toPrecision(3)).toLocaleString("en-US");

/** Roofs {name, peak, bandwidth} and operations {name, intensity, rate, bound, role, why, text}; a picked operation opens its derivation. */
export function RooflineChart({ roofs = [], points = [], onPick, height = 320, label = "Roofline", x: xs = {}, y: ys = {} }) {
  const open = useContext(Deriving);
  const [ref, width] = useWidth();
  const [active, setActive] = useState(null);
  const x = { label: "arithmetic intensity, FLOP per byte", unit: "count", ...xs };
  const y = { label: "FLOP/s", unit: "FLOP/s", ...ys };
  const seen = points.filter((one) => one.intensity > 0 && one.rate > 0);
  const found = useMemo(() => (roofs.length ? laidOut(roofs, seen, x, y, width, height) : null), [roofs, points, width, height]);
  if (!found) return null;
  const { box, sx, sy } = found;
  const spots = seen.map((one) => ({ x: sx.at(one.intensity), y: sy.at(one.rate),
    text: `${one.name}: ${trimmed(one.intensity)} FLOP per byte, ${tickText(one.rate, "FLOP/s")}${one.bound ? `, bound by ${one.bound}` : ""}` }));
  const taken = roofs.filter((_, at) => !sameAs(roofs, at)).map((roof) => [box.right - textWidth(roofText(roof), 11), sy.at(roof.peak) - 18, box.right, sy.at(roof.peak) + 1]);
  const [, [ridge]] = cornersOf(roofs[0], found);
  const wide = textWidth(ridgeText(roofs[0]), 11);
  taken.push([inside(ridge + 4, wide, box.left, box.right), box.bottom - 17, inside(ridge + 4, wide, box.left, box.right) + wide, box.bottom]);
  // names keep off the lines where they can
  const lines = roofs.flatMap((roof, at) => { const [start, ridge, end] = cornersOf(roof, found); return [...along([start, ridge, end], 4), ...(at ? [] : along([ridge, [ridge[0], box.bottom]]))]; })
    .filter(([, py]) => py < box.bottom).map(([px, py]) => [px - 1, py - 1, px + 1, py + 1]);
  const kinds = legendOf(seen);
  const one = active == null ? null : seen[active];
  const pick = onPick || (open && seen.some((point) => point.why) ? (at) => seen[at].why && open(seen[at].why, seen[at]) : null);
  return html`<figure class="chart roofline" aria-label=${label}>
    ${kinds.length > 1 && html`<${Legend} series=${kinds} />`}
    <div class="plot" ref=${ref} style=${{ height: `${height}px` }}>
      <svg data-chart width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img"
        aria-label=${`${label}: ${roofs.map((roof) => `${roof.name} up to ${tickText(roof.peak, "FLOP/s")}`).join(", ")}; ${spots.map((spot) => spot.text).join("; ")}.`}>
        <${Axes} box=${box} sx=${sx} sy=${sy} x=${x} y=${y} />
        ${roofs.map((roof, at) => html`<${Roof} key=${roof.name} roof=${roof} at=${at} found=${found} same=${sameAs(roofs, at)} />`)}
        ${seen.map((point, at) => html`<circle key=${`${point.name}${at}`} class="point" cx=${spots[at].x} cy=${spots[at].y} r=${active === at ? 7 : 5}
          style=${{ fill: colourOf(point.role || boundRole(point.bound)) }} />`)}
        <${PointNames} names=${seen.map((point) => point.name)} spots=${spots} box=${box} taken=${taken} lines=${lines} />
      </svg>
      <${Reader} label=${label} spots=${spots} active=${active} onActive=${setActive} onPick=${pick} width=${width} height=${height} />
      ${one && html`<${Tip} x=${spots[active].x} y=${spots[active].y} width=${width}><strong>${one.name}</strong>
        <span>intensity <b>${trimmed(one.intensity)} FLOP/B</b></span><span>rate <b>${tickText(one.rate, "FLOP/s")}</b></span>
        ${one.bound && html`<span>bound by <b>${one.bound}</b></span>`}${one.text && html`<span>${one.text}</span>`}</${Tip}>`}
    </div>
    ${roofs.length > 1 && html`<ul class="legend">${roofs.slice(1).map((roof, at) => html`<li key=${roof.name} data-legend=${roof.name}><svg width="26" height="8" aria-hidden="true">
      <line class="roof-other" x1="0" x2="26" y1="4" y2="4" style=${strokeOf(roof, at + 1)} /></svg>${roof.name}: from ${ridgeText(roof)}</li>`)}</ul>`}
    <${ChartTable} columns=${["operation", "FLOP per byte", "FLOP/s", "bound by"]}
      rows=${() => seen.map((point) => [point.name, trimmed(point.intensity), tickText(point.rate, "FLOP/s"), point.bound || ""])} />
  </figure>`;
}
