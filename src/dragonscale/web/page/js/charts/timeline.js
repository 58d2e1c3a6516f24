// One predicted step over time: a track for compute (passes, sections, lines under each other) and one for each set of mesh axes.
// Zoomed with + and −, the wheel while it has the focus (or with Ctrl), moved with the arrow keys or by dragging.

import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { colourOf, colourOn } from "../theme.js";
import { linearTicks, textWidth, tickText, Tip, useWidth } from "./svg.js";

const ROW = 20;
const GAP = 12;
const HEAD = 18;
const DEEP = 3;
const FEWEST = 1e-4;

function laidOut(tracks) {
  let top = HEAD + 8;
  return tracks.map((track) => {
    const rows = Math.min(DEEP, 1 + Math.max(0, ...track.slices.map((slice) => slice[3])));
    const found = { ...track, top: top + 14, rows };
    top += 14 + rows * ROW + GAP;
    return found;
  });
}

/** Slices that can be seen; those narrower than half a pixel are joined with their neighbour. */
function seen(track, from, upto, width) {
  const scale = width / (upto - from);
  const found = [];
  const last = [];
  for (const slice of track.slices) {
    const [, start, length, depth] = slice;
    if (start + length < from || start > upto) continue;
    const left = Math.max(0, (start - from) * scale);
    const wide = Math.min(width, (start + length - from) * scale) - left;
    const before = last[depth];
    if (wide < 0.5 && before && left - (before.left + before.wide) < 0.5) { before.wide = Math.max(before.wide, left + wide - before.left); continue; }
    const one = { slice, left, wide: Math.max(wide, 0.5), depth };
    last[depth] = one;
    found.push(one);
  }
  return found;
}

function useZoom(total) {
  const [span, set] = useState([0, total]);
  useEffect(() => set([0, total]), [total]);
  const clamp = (from, upto) => {
    const long = Math.min(total, Math.max(total * FEWEST, upto - from));
    const start = Math.max(0, Math.min(total - long, from));
    return [start, start + long];
  };
  const zoom = (factor, centre = 0.5) => set(([from, upto]) => {
    const middle = from + (upto - from) * centre;
    return clamp(middle - (middle - from) * factor, middle + (upto - middle) * factor);
  });
  const move = (part) => set(([from, upto]) => clamp(from + part * (upto - from), upto + part * (upto - from)));
  return { span, zoom, move, whole: () => set([0, total]) };
}

/** A step: {total, tracks: [{name, slices: [[name, start, seconds, depth, role, term]]}]}. */
export function Timeline({ timeline, height }) {
  const [ref, width] = useWidth(900);
  const area = useRef(null);
  const [tip, setTip] = useState(null);
  const total = timeline.total.value || 1;
  const { span: [from, upto], zoom, move, whole } = useZoom(total);
  const tracks = useMemo(() => laidOut(timeline.tracks), [timeline]);
  const tall = height || (tracks.length ? tracks.at(-1).top + tracks.at(-1).rows * ROW + 4 : 60);
  const drawn = useMemo(() => tracks.map((track) => ({ track, found: seen(track, from, upto, width) })), [tracks, from, upto, width]);
  const held = useRef(null);
  useEffect(() => {
    const one = area.current;
    const wheel = (event) => {
      if (!(event.ctrlKey || event.metaKey || document.activeElement === one)) return;
      event.preventDefault();
      const box = one.getBoundingClientRect();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / box.width);
      else zoom(Math.exp(event.deltaY * 0.002), (event.clientX - box.left) / box.width);
    };
    one.addEventListener("wheel", wheel, { passive: false });
    return () => one.removeEventListener("wheel", wheel);
  }, [total]);
  const keyed = (event) => {
    const does = {
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
      ArrowUp: () => zoom(0.6), ArrowDown: () => zoom(1 / 0.6), Home: whole, 0: whole, Escape: whole,
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  };
  const pointed = (event) => {
    const box = area.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (held.current != null) { move((held.current - x) / box.width); held.current = x; setTip(null); return; }
    for (const { track, found } of drawn) {
      const depth = Math.floor((y - track.top) / ROW);
      const hit = depth >= 0 && depth < track.rows && found.find((one) => one.depth === depth && x >= one.left - 1 && x <= one.left + one.wide + 1);
      if (hit) { setTip({ x, y, slice: hit.slice, track: track.name }); return; }
    }
    setTip(null);
  };
  const ticks = linearTicks(from, upto, Math.max(3, Math.floor(width / 110))).filter((one) => one >= from && one <= upto);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : total;
  const label = `One predicted step of ${timeline.total.text}, from ${tickText(from, "s")} to ${tickText(upto, "s")}`;
  return html`<figure class="chart timeline">
    <div class="timeline-tools" role="group" aria-label="Zoom of the timeline">
      <button type="button" class="quiet" aria-label="Zoom in" onClick=${() => zoom(0.6)}>+</button>
      <button type="button" class="quiet" aria-label="Zoom out" onClick=${() => zoom(1 / 0.6)}>−</button>
      <button type="button" class="quiet" onClick=${whole} disabled=${upto - from > total * 0.999}>Whole step</button>
      <small class="dim with-mouse">click, then turn the wheel to zoom; drag to move</small>
    </div>
    <div class="plot" ref=${ref}><div ref=${area} class="timeline-area" tabindex="0" role="group" aria-label=${`${label}. Plus and minus zoom, arrows move.`}
      onKeyDown=${keyed} onPointerMove=${pointed} onPointerLeave=${() => { held.current = null; setTip(null); }}
      onPointerDown=${(event) => { area.current.focus(); held.current = event.clientX - area.current.getBoundingClientRect().left; }} onPointerUp=${() => { held.current = null; }}>
      <svg data-chart width=${width} height=${tall} viewBox=${`0 0 ${width} ${tall}`} role="img" aria-label=${label}>
        ${ticks.map((one) => html`<g key=${one}><line class="grid" x1=${((one - from) / (upto - from)) * width} x2=${((one - from) / (upto - from)) * width} y1=${HEAD} y2=${tall} />
          <text class="tick" x=${Math.min(width - 2, ((one - from) / (upto - from)) * width + 4)} y="12">${one === 0 ? "0" : stepText(one, step)}</text></g>`)}
        ${drawn.map(({ track, found }) => html`<g key=${track.name}>
          <text class="name" x="0" y=${track.top - 4}>${track.name}</text>
          ${found.map(({ slice, left, wide, depth }, at) => html`<${Slice} key=${at} slice=${slice} left=${left} wide=${wide} top=${track.top + depth * ROW} depth=${depth} own=${track.name !== "compute"} />`)}
        </g>`)}
      </svg></div>
      ${tip && html`<${Tip} x=${tip.x} y=${tip.y} width=${width}><strong>${tip.slice[0]}</strong>
        <span>${tip.track === "compute" ? "takes" : "travels for"} <b>${tickText(tip.slice[2], "s")}</b></span><span>begins at <b>${tickText(tip.slice[1], "s")}</b></span>
        ${tip.slice[5] && html`<span>counted under ${tip.slice[5]}</span>`}</${Tip}>`}
    </div>
  </figure>`;
}

/** @type {Array<[number, string]>} */
const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "us"]];

/** The text of a tick with as many digits as the step between ticks needs. */
function stepText(value, step) {
  const [size, unit] = UNITS.find(([one]) => value >= one) || [1e-9, "ns"];
  const digits = Math.max(0, Math.min(4, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(value / size).toFixed(digits)}${unit}`;
}

function Slice({ slice, left, wide, top, depth, own }) {
  const [name, , , , role] = slice;
  const fits = wide > 26 && textWidth(name, 11) + 8 < wide;
  const cut = !fits && wide > 60 ? `${name.slice(0, Math.max(3, Math.floor((wide - 14) / 6.4)))}…` : "";
  const plain = !own && depth < 2;
  return html`<g><rect class=${plain ? "slice slice-plain" : "slice"} x=${left.toFixed(1)} y=${top} width=${Math.max(wide - (wide > 2 ? 0.6 : 0), 0.4).toFixed(1)} height=${ROW - 2}
      rx=${wide > 6 ? 2 : 0} style=${plain ? null : { fill: colourOf(role) }} />
    ${(fits || cut) && html`<text class="slice-name" style=${plain ? null : { fill: colourOn(role) }} x=${(left + 5).toFixed(1)} y=${top + 13}>${fits ? name : cut}</text>`}</g>`;
}
