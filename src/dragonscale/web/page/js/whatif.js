// What if the chip were another: sliders that write the field `set` as the command line has it (hbm=1.5x,flops=2x).

import { html, useEffect, useRef, useState } from "./html.js";
import { useAnswer } from "./live.js";
import { Num } from "./number.js";
import { noteInput } from "./timings.js";

/** The entries of a field `set` by name; what is no NAME=VALUE is kept as it is. */
export function readSet(text) {
  const parts = (text || "").split(",").map((one) => one.trim()).filter(Boolean);
  return new Map(parts.map((one) => { const at = one.indexOf("="); return at < 0 ? [one, ""] : [one.slice(0, at), one.slice(at + 1)]; }));
}

/** The field `set` of entries. */
export function writeSet(entries) {
  return [...entries].map(([name, value]) => (value ? `${name}=${value}` : name)).join(",");
}

function Knob({ knob, onDrag, onRest }) {
  const own = knob.stops.findIndex((stop) => stop.value === "");
  const near = knob.stops.reduce((best, stop, at) => (
    Math.abs(Math.log(stop.factor / knob.factor)) < Math.abs(Math.log(knob.stops[best].factor / knob.factor)) ? at : best), own);
  const [held, hold] = useState(null);
  // while it is dragged, an answer to an earlier place must not pull the thumb back
  const dragging = useRef(false);
  useEffect(() => { if (!dragging.current) hold(null); }, [knob.value, knob.now.value]);
  const place = held ?? near;
  const stop = knob.stops[place];
  const exact = held == null;
  const id = `knob-${knob.name}`;
  const text = exact ? knob.now.text : stop.text;
  const factor = exact ? (knob.value || "as it is") : (stop.value || "as it is");
  const at = (event) => Number(event.target.value);
  return html`<div class=${`field field-slider ${place === own && exact && !knob.value ? "" : "changed"}`}>
    <label for=${id}>${knob.title}</label>
    <output for=${id}>${exact ? html`<${Num} of=${knob.now} />` : text} <span class="dim">${factor}</span></output>
    <input id=${id} type="range" min="0" max=${knob.stops.length - 1} step="1" value=${place} aria-valuetext=${`${text}, ${factor}`} style=${{ "--part": `${(100 * place) / Math.max(1, knob.stops.length - 1)}%` }}
      onInput=${(event) => { noteInput(); dragging.current = true; hold(at(event)); onDrag(knob.stops[at(event)].value); }}
      onChange=${(event) => { dragging.current = false; onRest(knob.stops[at(event)].value); }} />
  </div>`;
}

/** Sliders for the numbers of a chip (or of the first chip of a slice). `onDrag` hears the field `set` while one moves, `onChange` where it rests. */
export function WhatIf({ chip, set = "", onDrag, onChange, open = false }) {
  // nobody's question waits for sliders that are folded away
  const [unfolded, unfold] = useState(open || Boolean(set));
  const answer = useAnswer(chip && unfolded ? { view: "chips", fields: { name: chip }, set: set || "", panels: ["knobs"] } : null);
  const { knobs } = answer.panels;
  const changed = (knob, value) => {
    // by the planner's name: `ib=2x` that was typed is the slider `network`
    const entries = new Map(knobs.knobs.filter((one) => one.value).map((one) => [one.name, one.value]));
    for (const [name, kept] of readSet(knobs.kept.join(","))) entries.set(name, kept);
    if (value) entries.set(knob.name, value); else entries.delete(knob.name);
    return writeSet(entries);
  };
  return html`<details class="what-if" open=${open || Boolean(set)} onToggle=${(event) => { if (event.currentTarget.open) unfold(true); }}>
    <summary>What if the chip were another?</summary>
    ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
    ${knobs && html`<div class="knobs">
      ${knobs.knobs.map((knob) => html`<${Knob} key=${knobs.chip + knob.name} knob=${knob}
        onDrag=${(value) => onDrag && onDrag(changed(knob, value))} onRest=${(value) => onChange(changed(knob, value))} />`)}
      <button type="button" class="quiet" disabled=${!set} onClick=${() => onChange("")}>As it is</button>
    </div>`}
  </details>`;
}
