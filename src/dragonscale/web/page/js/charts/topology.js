// A slice drawn: a torus as planes of chips with their links, a tree of switches as its tiers.

import { html } from "../html.js";
import { useWidth } from "./svg.js";

const PLANE = 12;

/** At most so many of an axis are drawn; the rest is told. */
const shown = (size, most) => Math.min(size, most);

function Plane({ across, down, wrapX, wrapY, x, y, side, more }) {
  const at = (place) => place * side + side / 2;
  const lines = [];
  for (let row = 0; row < down; row += 1) lines.push([at(0), at(row), at(across - 1), at(row)]);
  for (let col = 0; col < across; col += 1) lines.push([at(col), at(0), at(col), at(down - 1)]);
  const bow = side * 0.42;
  return html`<g transform=${`translate(${x} ${y})`}>
    ${lines.map(([x1, y1, x2, y2], place) => html`<line key=${place} class="wire" x1=${x1} y1=${y1} x2=${x2} y2=${y2} />`)}
    ${wrapX && across > 2 && Array.from({ length: down }, (_, row) => html`<path key=${`wx${row}`} class="wire wire-wrap" d=${`M${at(0)} ${at(row)}C${at(0) - bow} ${at(row) - bow} ${at(across - 1) + bow} ${at(row) - bow} ${at(across - 1)} ${at(row)}`} />`)}
    ${wrapY && down > 2 && Array.from({ length: across }, (_, col) => html`<path key=${`wy${col}`} class="wire wire-wrap" d=${`M${at(col)} ${at(0)}C${at(col) - bow} ${at(0) - bow} ${at(col) - bow} ${at(down - 1) + bow} ${at(col)} ${at(down - 1)}`} />`)}
    ${Array.from({ length: across * down }, (_, place) => html`<rect key=${`c${place}`} class="torus-chip" x=${(place % across) * side + side * 0.25} y=${Math.floor(place / across) * side + side * 0.25}
      width=${side * 0.5} height=${side * 0.5} rx="2" />`)}
    ${more && html`<text class="tick" x=${across * side + 2} y=${down * side}>…</text>`}</g>`;
}

function Torus({ axes, width }) {
  const [first, second, third] = axes;
  const across = shown(second ? second.size : first.size, PLANE);
  const down = second ? shown(first.size, PLANE) : 1;
  const fits = Math.max(1, Math.floor((width - 16) / (across * 14 + 20)));
  const planes = third ? Math.min(third.size, 4, fits) : 1;
  const side = Math.max(13, Math.min(30, ((width - 16) / planes - 20) / across));
  const height = down * side + (third ? 44 : 30);
  const said = axes.map((axis) => `${axis.axis} of ${axis.size} ${axis.wraps ? "as a ring" : "as a line"}`).join(", ");
  const cut = (second && second.size > PLANE) || first.size > PLANE;
  const place = (at) => 8 + at * (across * side + 20);
  return html`<svg data-chart width=${width} height=${height} role="img" aria-label=${`A torus: ${said}`}>
    ${Array.from({ length: planes }, (_, at) => html`<g key=${at}>
      <${Plane} across=${across} down=${down} wrapX=${(second || first).wraps && !cut} wrapY=${second ? first.wraps && !cut : false} x=${place(at)} y=${third ? 18 : 4} side=${side} more=${cut} />
      ${third && html`<text class="tick" x=${place(at) + (across * side) / 2} y="12" text-anchor="middle">${third.axis}=${at}</text>`}
      ${third && at > 0 && html`<line class="wire wire-wrap" x1=${place(at) - 20} x2=${place(at)} y1=${18 + (down * side) / 2} y2=${18 + (down * side) / 2} />`}</g>`)}
    <text class="tick" x="8" y=${height - 6}>${axes.map((axis) => `${axis.axis}=${axis.size}${axis.wraps ? " ring" : " line"}`).join(" · ")}${cut || (third && third.size > planes) ? " (a part of it)" : ""}</text></svg>`;
}

function Tree({ tiers, hostChips, width }) {
  const levels = [...tiers].reverse();
  const height = 56 * levels.length + 52;
  const row = (at) => 22 + at * 56;
  const leaves = Math.min(tiers[0] ? tiers[0].children : hostChips, 8);
  const nodes = [];
  const wires = [];
  let parents = [{ x: width / 2, at: 0 }];
  levels.forEach((tier, depth) => {
    const last = depth === levels.length - 1;
    const most = Math.min(tier.children, last ? leaves : depth === 0 ? 6 : 4);
    const next = [];
    const room = width / parents.length;
    parents.forEach((parent, place) => {
      nodes.push({ x: parent.x, y: row(depth), text: tier.tier, switches: true });
      for (let child = 0; child < most; child += 1) {
        const x = room * place + (room * (child + 0.5)) / most;
        wires.push([parent.x, row(depth) + 9, x, row(depth + 1) - (last ? 5 : 9)]);
        next.push({ x });
      }
    });
    parents = next.slice(0, 48);
    if (last) parents.forEach((one) => nodes.push({ x: one.x, y: row(depth + 1), switches: false }));
  });
  const said = levels.map((tier) => `${tier.tier}: ${tier.groups} groups of ${tier.children}`).join("; ");
  return html`<svg data-chart width=${width} height=${height} role="img" aria-label=${`A tree of switches, ${said}`}>
    ${wires.map(([x1, y1, x2, y2], at) => html`<line key=${at} class="wire" x1=${x1} y1=${y1} x2=${x2} y2=${y2} />`)}
    ${nodes.map((one, at) => (one.switches
    ? html`<g key=${at}><rect class="tree-switch" x=${one.x - 22} y=${one.y - 9} width="44" height="18" rx="4" /><text class="tick" x=${one.x} y=${one.y} dy="0.34em" text-anchor="middle">${one.text}</text></g>`
    : html`<rect key=${at} class="torus-chip" x=${one.x - 4} y=${one.y - 5} width="8" height="10" rx="1.5" />`))}
    <text class="tick" x="4" y=${height - 4}>${levels.map((tier) => `${tier.tier}: ${tier.groups} × ${tier.children}`).join(" · ")} (a part of it)</text></svg>`;
}

/** The slice of the planner's panel `slice`. */
export function TopologyChart({ slice }) {
  const [ref, width] = useWidth(520);
  return html`<figure class="chart topology" ref=${ref}>${slice.axes.length ? html`<${Torus} axes=${slice.axes} width=${width} />`
    : slice.tiers.length ? html`<${Tree} tiers=${slice.tiers} hostChips=${slice.host_chips} width=${width} />` : html`<p class="empty">One chip: nothing joins it to others.</p>`}</figure>`;
}
