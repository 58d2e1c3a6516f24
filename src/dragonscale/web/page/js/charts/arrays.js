// Arrays cut by mesh axes: which chip holds which block, before and after a collective.

import { html } from "../html.js";
import { colourOf } from "../theme.js";

const SIDE = 116;
const ROOM = { left: 30, top: 34, right: 4, bottom: 8 };
const TINTS = ["", ":1", ":2", ":3"];

/** The colour of a block: that of the axis that cuts it, lighter from block to block; grey where nothing does. */
function blockColour(array, row, col) {
  const side = array.rows.role ? array.rows : array.cols.role ? array.cols : null;
  if (!side) return "var(--sunken)";
  return colourOf(`${side.role}${TINTS[(side === array.rows ? row : col) % TINTS.length]}`);
}

const cutText = (side) => (side.axes.length ? `${side.dim} over ${side.axes.join(", ")}` : side.dim);

function Side({ side, x, y, upright }) {
  if (!side.dim) return null;
  const text = side.axes.length ? `${side.dim} / ${side.axes.join("")}` : side.dim;
  const place = upright ? { x, y, transform: `rotate(-90 ${x} ${y})` } : { x, y };
  return html`<g><text class="name" text-anchor="middle" ...${place} style=${side.role ? { fill: `color-mix(in srgb, ${colourOf(side.role)} 55%, var(--ink))` } : null}>${text}</text></g>`;
}

/** One array as a grid. `chip` is the place of a chip in the mesh whose block is framed. */
export function ArrayGrid({ array, chip }) {
  const [down, across] = [array.rows.drawn, array.cols.drawn];
  const flat = !array.rows.dim;
  const height = flat ? 36 : SIDE;
  const [w, h] = [SIDE / across, height / down];
  const copies = Math.min(array.copies, 4) - 1;
  const mine = array.held.length ? array.held[chip % array.held.length] : -1;
  const [myRow, myCol] = [Math.floor(mine / array.cols.cuts), mine % array.cols.cuts];
  const inside = mine >= 0 && myRow < down && myCol < across;
  const whole = [ROOM.left + SIDE + ROOM.right + 3 * 4, ROOM.top + height + ROOM.bottom + 3 * 4];
  const told = [cutText(array.rows), cutText(array.cols)].filter(Boolean).join(" by ");
  const said = `${array.text}: ${told}${array.copies > 1 ? `, ${array.copies} copies over ${array.copied.join(", ")}` : ""}${array.summands > 1 ? `, ${array.summands} partial sums over ${array.partial.join(", ")}` : ""}`;
  const cells = [];
  for (let row = 0; row < down; row += 1) for (let col = 0; col < across; col += 1) cells.push([row, col]);
  return html`<figure class="array chart"><figcaption><code>${array.text}</code></figcaption>
    <svg data-chart width=${whole[0]} height=${whole[1]} viewBox=${`0 0 ${whole[0]} ${whole[1]}`} role="img" aria-label=${said}>
      ${Array.from({ length: Math.max(0, copies) }, (_, at) => html`<rect key=${`copy ${at}`} class="array-copy" x=${ROOM.left + 4 * (copies - at)} y=${ROOM.top + 4 * (copies - at)}
        width=${SIDE} height=${height} />`)}
      ${cells.map(([row, col]) => html`<rect key=${`${row} ${col}`} class="array-block" x=${ROOM.left + col * w} y=${ROOM.top + row * h} width=${w} height=${h}
        style=${{ fill: blockColour(array, row, col) }} />`)}
      ${array.rows.role && array.cols.role && Array.from({ length: across }, (_, col) => html`<rect key=${`col ${col}`} x=${ROOM.left + col * w + 1} y=${ROOM.top - 7} width=${Math.max(1, w - 2)} height="4"
        style=${{ fill: colourOf(`${array.cols.role}${TINTS[col % TINTS.length]}`) }} />`)}
      ${array.summands > 1 && Array.from({ length: 9 }, (_, at) => { const from = ((at + 1) * (SIDE + height)) / 10; return html`<line key=${`sum ${at}`} class="array-partial"
        x1=${ROOM.left + Math.max(0, from - height)} y1=${ROOM.top + Math.min(height, from)} x2=${ROOM.left + Math.min(SIDE, from)} y2=${ROOM.top + Math.max(0, from - SIDE)} />`; })}
      ${inside && html`<rect class="array-mine" x=${ROOM.left + myCol * w + 1} y=${ROOM.top + myRow * h + 1} width=${Math.max(2, w - 2)} height=${Math.max(2, h - 2)} />`}
      <${Side} side=${array.rows} x=${ROOM.left - 12} y=${ROOM.top + height / 2} upright=${true} />
      <${Side} side=${array.cols} x=${ROOM.left + SIDE / 2} y=${ROOM.top - 14} />
      ${array.rows.cuts > down && html`<text class="tick" x=${ROOM.left - 4} y=${ROOM.top + height} text-anchor="end">…</text>`}
    </svg>
    <ul class="array-said">
      ${array.shape && html`<li>each chip: ${array.shape}${array.bytes.value ? `, ${array.bytes.text}` : ""}</li>`}
      ${array.others.length > 0 && html`<li>and ${array.others.join(", ")}, not drawn</li>`}
      ${array.copies > 1 && html`<li>${array.copies} copies over ${array.copied.join(", ")}</li>`}
      ${array.summands > 1 && html`<li>${array.summands} partial sums over ${array.partial.join(", ")}</li>`}
    </ul></figure>`;
}

/** The mesh as chips in rows and columns; one is chosen, by a click or the arrow keys. */
export function MeshPicker({ mesh, chip, onPick }) {
  if (!mesh.places.length) return html`<p class="muted">${mesh.chips.toLocaleString("en-US")} chips: too many to draw each.</p>`;
  const across = mesh.places.length / mesh.rows;
  const keys = (event) => {
    const to = { ArrowRight: chip + 1, ArrowLeft: chip - 1, ArrowDown: chip + across, ArrowUp: chip - across }[event.key];
    if (to != null && to >= 0 && to < mesh.places.length) { event.preventDefault(); onPick(to); }
  };
  const side = Math.max(8, Math.min(26, Math.floor(420 / Math.max(across, mesh.rows))));
  const pick = (event) => {
    const area = event.currentTarget.getBoundingClientRect();
    const [col, row] = [Math.floor((event.clientX - area.left) / side), Math.floor((event.clientY - area.top) / side)];
    if (col >= 0 && col < across && row >= 0 && row < mesh.rows) onPick(row * across + col);
  };
  return html`<div class="mesh-picker">
    <p>${mesh.axes.map((axis, at) => html`<span key=${axis.name} class="axis-name"><i class="swatch" style=${{ background: colourOf(axis.role) }}></i>${axis.name}=${axis.size}${at === 0 ? " (down)" : " (across)"} </span>`)}</p>
    <svg class="pick-chips" width=${across * side} height=${mesh.rows * side} role="slider" tabindex="0" aria-label="A chip of the mesh; the arrow keys move it"
      aria-valuemin="1" aria-valuemax=${mesh.places.length} aria-valuenow=${chip + 1} aria-valuetext=${mesh.places[chip]} onKeyDown=${keys}
      onPointerDown=${pick} onPointerMove=${(event) => { if (event.buttons) pick(event); }}>
      ${mesh.places.map((place, at) => html`<rect key=${place} class=${at === chip ? "pick-chip pick-now" : "pick-chip"} x=${(at % across) * side + 1} y=${Math.floor(at / across) * side + 1}
        width=${side - 2} height=${side - 2} rx="2" />`)}
    </svg>
    <p class="muted">The chip ${mesh.places[chip]}: its blocks are framed.</p></div>`;
}

/** The steps of one way to compute an einsum: collectives and the local matmul, each with its arrays. */
export function Stages({ stages, chip }) {
  if (!stages.length) return html`<p class="muted">Each chip keeps its part of what it has.</p>`;
  return html`<ol class="stages">${stages.map((stage, at) => html`<li key=${at} class=${`stage stage-${stage.kind}`}>
    <p class="stage-title"><i class="swatch" style=${{ background: colourOf(stage.role) }}></i>${at + 1}. ${stage.title}</p>
    <div class="stage-arrays">${stage.arrays.map((array, place) => html`${place > 0 && html`<span class="stage-sign" aria-hidden="true">${
  stage.kind === "move" || place === stage.arrays.length - 1 ? "→" : "·"}</span>`}<${ArrayGrid} key=${`${array.text} ${place}`} array=${array} chip=${chip} />`)}</div></li>`)}</ol>`;
}
