// The mesh of a plan: chips as squares in frames by axis, and beside it what goes over each axis. The planner says where each frame lies.

import { html, useMemo, useState } from "../html.js";
import { Num } from "../number.js";
import { colourOf } from "../theme.js";
import { useWidth } from "./svg.js";

const LARGEST = 2.4;
const TALLEST = 340;

function Frames({ frames, dots, roles, width, active, onActive, note }) {
  const right = Math.max(16, ...frames.map((one) => one[2]));
  const bottom = Math.max(16, ...frames.map((one) => one[3]));
  const by = Math.min(LARGEST, (width - 4) / right, TALLEST / bottom);
  const at = (value) => (value * by + 2).toFixed(1);
  const boxes = frames.filter((one) => one[4]);
  const chips = frames.filter((one) => !one[4]);
  const named = [...new Set(boxes.map((one) => one[4]))];
  const summary = `${note}. ${named.join(" around ")}`;
  return html`<svg class="mesh-picture" data-chart width=${width} height=${bottom * by + 4} viewBox=${`0 0 ${width} ${bottom * by + 4}`} role="img" aria-label=${summary}>
    ${boxes.map(([left, top, to, low, axis], number) => html`<rect key=${number} class=${`mesh-frame${active && active !== axis ? " mesh-dim" : ""}${active === axis ? " mesh-lit" : ""}`}
      x=${at(left)} y=${at(top)} width=${((to - left) * by).toFixed(1)} height=${((low - top) * by).toFixed(1)} rx=${Math.min(8, 4 * by)}
      style=${{ stroke: colourOf(roles[axis]), fill: active === axis ? colourOf(roles[axis]) : "transparent" }}
      onPointerEnter=${() => onActive(axis)} onPointerLeave=${() => onActive(null)} />`)}
    ${chips.map(([left, top, to, low], number) => html`<rect key=${`c${number}`} class="mesh-chip" x=${at(left)} y=${at(top)}
      width=${((to - left) * by).toFixed(1)} height=${((low - top) * by).toFixed(1)} rx=${2 * by} />`)}
    ${dots.flatMap(([x, y], number) => [-1, 0, 1].map((step) => html`<circle key=${`d${number}.${step}`} class="mesh-dot" cx=${at(x + 5 * step)} cy=${at(y)} r=${1.6 * by} />`))}
  </svg>`;
}

function Move({ move, most, role }) {
  const whole = move.seconds.value || 0;
  const exposed = Math.min(move.exposed.value || 0, whole);
  const part = (value) => `${most ? Math.max((100 * value) / most, value > 0 ? 0.6 : 0) : 0}%`;
  return html`<li class="move"><span class="move-name">${move.name}</span>
    <span class="move-bytes"><${Num} of=${move.bytes} /></span>
    <span class="move-time"><${Num} of=${move.seconds} /> <small>${move.hidden ? "all hidden" : html`<${Num} of=${move.exposed} /> exposed`}</small></span>
    <span class="move-bar" aria-hidden="true"><i style=${{ width: part(exposed), background: colourOf(role) }}></i><i class="move-hidden" style=${{ width: part(whole - exposed), background: colourOf(role) }}></i></span></li>`;
}

/** A mesh: {axes, frames, dots, wiring, chip}; an axis that is pointed at lights up in the picture. */
export function MeshChart({ mesh }) {
  const [ref, width] = useWidth(520);
  const [active, setActive] = useState(null);
  const roles = useMemo(() => Object.fromEntries(mesh.axes.map((axis) => [axis.name, axis.role])), [mesh]);
  const moves = mesh.axes.flatMap((axis) => axis.moves);
  const most = Math.max(0, ...moves.map((move) => move.seconds.value || 0));
  const note = `Each square is one ${mesh.chip || "chip"}${mesh.dots.length ? "; dots stand for the others" : ""}`;
  const order = mesh.axes.map((axis) => `${axis.name} ${axis.degree.toLocaleString("en-US")}`).join(" × ");
  return html`<div class="mesh chart">
    <figure class="mesh-left" ref=${ref}>
      <${Frames} frames=${mesh.frames} dots=${mesh.dots} roles=${roles} width=${width} active=${active} onActive=${setActive} note=${`${order || "One chip"} on ${mesh.wiring}`} />
      <figcaption>${note}. ${mesh.wiring && `${mesh.slice} is ${mesh.wiring}.`}</figcaption>
    </figure>
    <ul class="mesh-axes">
      ${!mesh.axes.length && html`<li>One chip: nothing is split, and nothing travels.</li>`}
      ${mesh.axes.map((axis) => html`<li key=${axis.name} class=${active === axis.name ? "mesh-axis mesh-axis-lit" : "mesh-axis"}
        data-legend=${`${axis.name} ${axis.degree}: ${axis.splits}`} onPointerEnter=${() => setActive(axis.name)} onPointerLeave=${() => setActive(null)}>
        <p class="mesh-head"><span class="swatch" style=${{ background: colourOf(axis.role) }}></span><strong>${axis.name} ${axis.degree.toLocaleString("en-US")}</strong>
          <span class="dim">splits ${axis.splits}</span></p>
        ${axis.lies && html`<p class="mesh-lies">${axis.lies}</p>`}
        ${axis.moves.length > 0 ? html`<ul class="moves">${axis.moves.map((move) => html`<${Move} key=${move.name} move=${move} most=${most} role=${axis.role} />`)}</ul>`
          : html`<p class="mesh-lies">nothing of its own travels over it</p>`}
      </li>`)}
    </ul>
  </div>`;
}
