// Lines over x, with bands, rules, marks, and their names at their ends.

import { html, useMemo, useState } from "../html.js";
import { colourOf } from "../theme.js";
import { along, apart, inside, placed } from "./labels.js";
import { Axes, boxOf, ChartTable, Reader, scaleOf, textWidth, tickText, Tip, useWidth } from "./svg.js";

const LABEL = 12;

function pathOf(points, sx, sy, top) {
  let pen = "M";
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) { pen = "M"; return ""; }
    const step = `${pen}${sx.at(x).toFixed(1)} ${Math.max(top, sy.at(y)).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function bandOf(band, sx, sy, top) {
  const there = band.map(([x, , high]) => `${sx.at(x).toFixed(1)} ${Math.max(top, sy.at(high)).toFixed(1)}`);
  const back = [...band].reverse().map(([x, low]) => `${sx.at(x).toFixed(1)} ${Math.max(top, sy.at(low)).toFixed(1)}`);
  return `M${[...there, ...back].join("L")}Z`;
}

function laidOut(series, rules, marks, x, y, width, height) {
  const named = series.length > 1 && width >= 440;
  const room = named ? Math.min(160, Math.max(...series.map((one) => textWidth(one.name, LABEL))) + 18) : 20;
  const ys = series.flatMap((one) => [...one.points.map((point) => point[1]), ...(one.band || []).flatMap(([, low, high]) => [low, high])])
    .concat(marks.map((mark) => mark.y), rules.filter((rule) => rule.along === "y").map((rule) => rule.at));
  const xs = series.flatMap((one) => one.points.map((point) => point[0])).concat(marks.map((mark) => mark.x));
  const many = Math.max(3, Math.floor(height / 48));
  const rough = scaleOf(ys, y, height - 42, 26, many);
  const box = boxOf(width, height, rough, room);
  return {
    box, named, sy: scaleOf(ys, y, box.bottom, box.top, many),
    sx: scaleOf(xs, { zero: false, ...x }, box.left, box.right, Math.max(3, Math.floor((box.right - box.left) / 64))),
  };
}

const ROWS = [0, 1, 2, 3, 4, 5, 6, 7];

/** Points along a rule. */
const ruled = ({ rule, place }, box) => along(rule.along === "y" ? [[box.left, place], [box.right, place]] : [[place, box.top], [place, box.bottom]]);

/** Rules with the places of their texts, which cover neither each other nor, where there is room, a line. */
function placedRules(rules, box, sx, sy, right, lines) {
  const inSight = rules.map((rule) => ({ rule, place: rule.along === "y" ? sy.at(rule.at) : sx.at(rule.at) }))
    .filter(({ rule, place }) => (rule.along === "y" ? place >= box.top - 1 && place <= box.bottom + 1 : place >= box.left - 1 && place <= box.right + 1));
  const spots = placed(inSight.map(({ rule, place }) => {
    const text = rule.text || "";
    const wide = textWidth(text, 11);
    const rows = ROWS.map((row) => box.top + 6 + 14 * row);
    return { text, spots: rule.along === "y"
      ? [[box.right - 2, place - 5, "end"], [box.left + 6, place - 5, "start"], [(box.left + box.right) / 2, place - 5, "middle"], [box.right - 2, place + 13, "end"], [box.left + 6, place + 13, "start"]]
      : rows.flatMap((row) => [[place + 5, row, "start"], [place - 5, row, "end"], [inside(place + 5, wide, box.left + 2, right), row, "start"], [box.left + 6, row, "start"]]) };
  }), { left: 0, right, top: 0, bottom: box.bottom }, [], lines, inSight.flatMap((one) => ruled(one, box)));
  return inSight.map((one, at) => ({ ...one, spot: spots[at] }));
}

function Rules({ placements, box }) {
  return placements.map(({ rule, place, spot }, at) => {
    const colour = rule.role ? colourOf(rule.role) : "var(--muted)";
    const [left, , end, low] = spot.area;
    // a text with no room on either side stands on top of its rule
    const top = left < place && end > place && low < box.top + 20 ? low + 2 : box.top - 4;
    const ends = rule.along === "y" ? { x1: box.left, x2: box.right, y1: place, y2: place } : { x1: place, x2: place, y1: top, y2: box.bottom };
    return html`<g key=${at} class="rule"><line ...${ends} style=${{ stroke: colour }} /><text class="note" x=${spot.x} y=${spot.y} text-anchor=${spot.anchor}>${rule.text || ""}</text></g>`;
  });
}

function Marks({ marks, box, sx, sy, right, taken, lines, rules }) {
  const at = marks.map((mark) => [sx.at(mark.x), sy.at(mark.y)]);
  const around = ([x, y]) => [x - 5, y - 5, x + 5, y + 5];
  const spots = placed(marks.map((mark, place) => {
    const [x, y] = at[place];
    const text = mark.text || "";
    const between = inside(x + 8, textWidth(text, 12, 600), box.left + 2, right);
    return { text, size: 12, weight: 600, spots: [12, 26, 40].flatMap((far) => [[x - 8, y - far, "end"], [x + 8, y - far, "start"], [x + 8, y + far + 6, "start"], [x - 8, y + far + 6, "end"], [between, y - far, "start"]]) };
  }), { left: box.left, right, top: 0, bottom: box.bottom }, [...taken, ...at.map(around)], lines, rules);
  return marks.map((mark, place) => html`<g key=${place} class="mark"><circle cx=${at[place][0]} cy=${at[place][1]} r="5" style=${mark.role ? { fill: colourOf(mark.role) } : null} />
    ${mark.text && html`<text class="mark-text" x=${spots[place].x} y=${spots[place].y} text-anchor=${spots[place].anchor}>${mark.text}</text>`}</g>`);
}

function Names({ series, box, sy }) {
  const ends = series.map((one) => sy.at((one.points.filter((point) => Number.isFinite(point[1])).at(-1) || [0, sy.low])[1]));
  const places = apart(ends, 15, box.top, box.bottom);
  return series.map((one, at) => html`<text key=${one.name} class="end" x=${box.right + 8} y=${places[at]} dy="0.32em"
    style=${{ "--own": colourOf(one.role) }}>${one.name}</text>`);
}

function spotsOf(series, sx, sy, x, y) {
  const every = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  return every.map((value) => {
    const values = series.map((one) => ({ one, point: one.points.find((point) => point[0] === value) })).filter(({ point }) => point && Number.isFinite(point[1]));
    const text = () => `${x.label || "x"} ${sx.text(value)}: ${values.map(({ one, point }) => `${one.name} ${tickText(point[1], y.unit)}`).join(", ")}`;
    return { value, values, get text() { return text(); }, x: sx.at(value), y: Math.min(...values.map(({ point }) => sy.at(point[1]))) };
  }).filter((spot) => spot.values.length);
}

function extentOf(series) {
  const points = series.flatMap((one) => one.points).filter((point) => Number.isFinite(point[1]));
  const [xs, ys] = [points.map((point) => point[0]), points.map((point) => point[1])];
  return { left: Math.min(...xs), right: Math.max(...xs), low: Math.min(...ys), high: Math.max(...ys) };
}

const within = ({ x, y }, { left, right, low, high }) => x >= left && x <= right && y >= low && y <= high;

/** Lines over x. `x` and `y` are {label, unit, log, binary, from, upto, zero}; `rules` stand at an x (`along: "y"`: lie at a y);
 * `onPick` hears the x that is chosen.
 * @param {Record<string, any>} given */
export function Lines(given) {
  const { series = [], x = {}, y = {}, rules = [], marks = [], onPick, height = 260, label } = given;
  const [ref, width] = useWidth();
  const [active, setActive] = useState(null);
  // a mark that moves inside of the axes does not move them
  const extent = useMemo(() => extentOf(series), [series]);
  const reach = JSON.stringify(marks.filter((mark) => !within(mark, extent)));
  const { box, named, sx, sy } = useMemo(() => laidOut(series, rules, JSON.parse(reach), x, y, width, height), [series, rules, reach, width, height, x.log, y.log, x.unit, y.unit]);
  const spots = useMemo(() => spotsOf(series, sx, sy, x, y), [series, sx, sy]);
  const right = named ? box.right : width - 2;
  const lines = useMemo(() => series.flatMap((one) => (one.line === false ? [] : along(one.points.filter((point) => Number.isFinite(point[1])).map(([px, py]) => [sx.at(px), Math.max(box.top, sy.at(py))])))), [series, sx, sy]);
  const placements = useMemo(() => placedRules(rules, box, sx, sy, right, lines), [rules, box, sx, sy, right, lines]);
  const taken = useMemo(() => placements.map((one) => one.spot.area), [placements]);
  const ruledAt = useMemo(() => placements.flatMap((one) => ruled(one, box)), [placements, box]);
  const drawn = useMemo(() => html`<${Axes} box=${box} sx=${sx} sy=${sy} x=${x} y=${y} />
    ${series.map((one) => one.band && one.band.length > 1 && html`<path key=${`${one.name} band`} class="band" d=${bandOf(one.band, sx, sy, box.top)} style=${{ fill: colourOf(one.role) }} />`)}
    <${Rules} placements=${placements} box=${box} />
    ${series.map((one) => html`<path key=${one.name} class=${one.dashed ? "line line-dashed" : "line"} d=${pathOf(one.points, sx, sy, box.top)} style=${{ "--own": colourOf(one.role) }} />`)}
    ${series.map((one) => one.dots && one.points.filter((point) => Number.isFinite(point[1])).map(([px, py]) => html`<circle key=${`${one.name} ${px}`} class="dot" cx=${sx.at(px)} cy=${sy.at(py)} r="3"
      style=${{ fill: colourOf(one.role) }} />`))}
    ${named && html`<${Names} series=${series} box=${box} sy=${sy} />`}`, [series, placements, box, sx, sy, named, width]);
  const spot = active == null ? null : spots[active];
  const title = label || `${y.label || "Values"} over ${x.label || "x"}`;
  const summary = `${title}. ${series.map((one) => `${one.name}: ${range(one, y)}`).join("; ")}.`;
  return html`<figure class="chart" aria-label=${title}>
    ${!named && series.length > 1 && html`<${Legend} series=${series} />`}
    <div class="plot" ref=${ref} style=${{ height: `${height}px` }}>
      <svg data-chart width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${summary}>${drawn}
        <${Marks} marks=${marks} box=${box} sx=${sx} sy=${sy} right=${right} taken=${taken} lines=${lines} rules=${ruledAt} />
        ${spot && html`<g class="crosshair"><line x1=${spot.x} x2=${spot.x} y1=${box.top} y2=${box.bottom} />
          ${spot.values.map(({ one, point }) => html`<circle key=${one.name} cx=${spot.x} cy=${sy.at(point[1])} r="4" style=${{ fill: colourOf(one.role) }} />`)}</g>`}
      </svg>
      <${Reader} label=${title} spots=${spots} active=${active} onActive=${setActive} onPick=${onPick && ((at) => onPick(spots[at].value))}
        byX=${true} width=${width} height=${height} />
      ${spot && html`<${Tip} x=${spot.x} y=${spot.y} width=${width}><strong>${sx.text(spot.value)} ${x.label || ""}</strong>
        ${spot.values.map(({ one, point }) => html`<span key=${one.name}><i class="swatch" style=${{ background: colourOf(one.role) }}></i>${one.name} <b>${tickText(point[1], y.unit)}</b></span>`)}</${Tip}>`}
    </div>
    <${ChartTable} columns=${[x.label || "x", ...series.map((one) => one.name)]}
      rows=${() => spots.map((one) => [sx.text(one.value), ...series.map((line) => { const found = line.points.find((point) => point[0] === one.value); return found && Number.isFinite(found[1]) ? tickText(found[1], y.unit) : "–"; })])} />
  </figure>`;
}

function range(one, y) {
  const values = one.points.map((point) => point[1]).filter(Number.isFinite);
  return values.length ? `from ${tickText(values[0], y.unit)} to ${tickText(values.at(-1), y.unit)}` : "nothing";
}

/** Names of series as a line of swatches, where there is no room at the ends. */
export function Legend({ series }) {
  return html`<ul class="legend">${series.map((one) => html`<li key=${one.name} data-legend=${one.name}>
    <span class="swatch" style=${{ background: colourOf(one.role) }}></span>${one.name}</li>`)}</ul>`;
}
