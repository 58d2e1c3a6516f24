// Points by two measures, with the frontier of those that nothing beats in both.

import { html, useMemo, useState } from "../html.js";
import { colourOf } from "../theme.js";
import { PointNames } from "./labels.js";
import { Legend } from "./lines.js";
import { Axes, boxOf, ChartTable, Reader, scaleOf, tickText, Tip, useWidth } from "./svg.js";

// points have their names beside them where that is little to read; else they are told one at a time
const NAMED = 400;

/** Points {x, y, name, role, chosen, group, about}; `frontier` is a list of [x, y] or of places in `points`; `onPick` hears the point.
 * @param {Record<string, any>} given */
export function ScatterChart(given) {
  const { points = [], x = {}, y = {}, frontier = [], rules = [], onPick, height = 300, label } = given;
  const [ref, width] = useWidth();
  const [active, setActive] = useState(null);
  const found = useMemo(() => {
    const line = frontier.map((one) => (Array.isArray(one) ? one : [points[one].x, points[one].y])).sort((a, b) => a[0] - b[0]);
    const [xs, ys] = [points.map((one) => one.x), points.map((one) => one.y)];
    const many = Math.max(3, Math.floor(height / 48));
    const [wx, wy] = [widened(x, xs), widened(y, ys)];
    const box = boxOf(width, height, scaleOf(ys, wy, height - 42, 26, many), 20);
    const sy = scaleOf(ys, wy, box.bottom, box.top, many);
    const sx = scaleOf(xs, wx, box.left, box.right, Math.max(3, Math.floor((box.right - box.left) / 64)));
    const spots = points.map((one) => ({ x: sx.at(one.x), y: sy.at(one.y),
      text: `${one.name}: ${x.label || "x"} ${tickText(one.x, x.unit)}, ${y.label || "y"} ${tickText(one.y, y.unit)}` }));
    return { line, box, sx, sy, spots };
  }, [points, frontier, width, height, x.log, y.log, x.unit, y.unit]);
  const { line, box, sx, sy, spots } = found;
  const groups = [...new Map(points.filter((one) => one.group).map((one) => [one.group, { name: one.group, role: one.role }])).values()];
  const few = points.reduce((all, one) => all + one.name.length, 0) <= NAMED;
  const drawn = useMemo(() => html`<${Axes} box=${box} sx=${sx} sy=${sy} x=${x} y=${y} />
    ${rules.map((rule, at) => { const place = rule.along === "y" ? sy.at(rule.at) : sx.at(rule.at);
    return rule.along === "y"
      ? html`<g key=${at} class="rule"><line x1=${box.left} x2=${box.right} y1=${place} y2=${place} /><text class="note" x=${box.right} y=${place - 5} text-anchor="end">${rule.text}</text></g>`
      : html`<g key=${at} class="rule"><line x1=${place} x2=${place} y1=${box.top} y2=${box.bottom} /><text class="note" x=${place + 5} y=${box.top + 5}>${rule.text}</text></g>`; })}
    ${line.length > 1 && html`<path class="line frontier" d=${`M${line.map(([px, py]) => `${sx.at(px).toFixed(1)} ${sy.at(py).toFixed(1)}`).join("L")}`} />`}
    ${points.map((one, at) => !one.chosen && html`<circle key=${at} class="point" cx=${spots[at].x} cy=${spots[at].y} r="4" style=${{ fill: colourOf(one.role || "compute") }} />`)}
    ${points.map((one, at) => one.chosen && html`<g key=${at} class="chosen"><circle cx=${spots[at].x} cy=${spots[at].y} r="6.5" style=${{ fill: colourOf(one.role || "compute") }} /></g>`)}
    <${PointNames} names=${points.map((one) => (few || one.chosen ? one.name : ""))} first=${points.flatMap((one, at) => (one.chosen ? [at] : []))} spots=${spots} box=${box} near=${points.length > 20} />`, [found, points, rules]);
  const title = label || `${y.label || "y"} against ${x.label || "x"}`;
  const one = active == null ? null : points[active];
  const chosen = points.filter((point) => point.chosen);
  return html`<figure class="chart" aria-label=${title}>
    ${groups.length > 1 && html`<${Legend} series=${groups} />`}
    <div class="plot" ref=${ref} style=${{ height: `${height}px` }}>
      <svg data-chart width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img"
        aria-label=${`${title}: ${points.length} points${chosen.length ? `; chosen ${chosen.map((point) => point.name).join(", ")}` : ""}.`}>${drawn}
        ${one && html`<circle class="ring" cx=${spots[active].x} cy=${spots[active].y} r="8" />`}</svg>
      <${Reader} label=${title} spots=${spots} active=${active} onActive=${setActive} onPick=${onPick && ((at) => onPick(points[at]))} width=${width} height=${height} />
      ${one && html`<${Tip} x=${spots[active].x} y=${spots[active].y} width=${width}><strong>${one.name}</strong>
        <span>${x.label} <b>${tickText(one.x, x.unit)}</b></span><span>${y.label} <b>${tickText(one.y, y.unit)}</b></span>
        ${one.about && html`<span>${one.about}</span>`}</${Tip}>`}
    </div>
    <${ChartTable} columns=${["", x.label || "x", y.label || "y"]} rows=${() => points.map((point) => [point.name, tickText(point.x, x.unit), tickText(point.y, y.unit)])} />
  </figure>`;
}

/** A logarithmic axis with some room around its points. */
function widened(axis, values) {
  const found = values.filter((one) => one > 0);
  if (!axis.log || !found.length) return axis;
  const [low, high] = [Math.min(...found), Math.max(...found)];
  const more = Math.max((high / low) ** 0.06, 1.1);
  return { from: low / more, upto: high * more, ...axis };
}
