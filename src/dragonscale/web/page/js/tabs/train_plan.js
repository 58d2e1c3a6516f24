// A plan edited: a stepper for each degree, a choice for each word; what comes out is the plan as one types it.

import { ChoiceField } from "../form.js";
import { html, useEffect, useId, useState } from "../html.js";

const AXES = [
  ["data", "data (copies)"], ["fsdp", "fsdp"], ["tensor", "tensor"], ["context", "context"], ["expert", "expert"], ["pipe", "pipe"],
];
const SIZES = [["microbatch", "microbatch"], ["virtual", "chunks a stage"]];
const WORDS = [["remat", "Recompute"], ["zero", "ZeRO"], ["schedule", "Schedule"], ["context_by", "Context by"], ["optimizer", "Optimizer"], ["offload", "Offload"]];
const SAID = ["zero", "remat"];

/** A plan as it is typed: what differs from the usual, and the two words that stacks would choose otherwise. */
export function planText(settings, usual) {
  const told = Object.entries(settings).filter(([name, value]) => SAID.includes(name) || String(value) !== String(usual[name]));
  return told.map(([name, value]) => `${name}=${value}`).join(",");
}

function Stepper({ label, name, value, onChange }) {
  const id = useId();
  const [text, setText] = useState(String(value));
  useEffect(() => setText(String(value)), [value]);
  const done = () => { const number = Math.round(Number(text)); if (number >= 1 && number !== value) onChange(number); else setText(String(value)); };
  const half = value % 2 === 0 ? value / 2 : Math.max(1, value - 1);
  return html`<div class="stepper"><label for=${id}>${label}</label>
    <button type="button" class="quiet" aria-label=${`Halve ${name}`} disabled=${value <= 1} onClick=${() => onChange(half)}>−</button>
    <input id=${id} type="text" inputmode="numeric" value=${text} onInput=${(event) => setText(event.currentTarget.value)} onBlur=${done}
      onKeyDown=${(event) => {
        if (event.key === "Enter") { event.preventDefault(); done(); }
        if (event.key === "ArrowUp") { event.preventDefault(); onChange(value * 2); }
        if (event.key === "ArrowDown" && value > 1) { event.preventDefault(); onChange(half); }
      }} />
    <button type="button" class="quiet" aria-label=${`Double ${name}`} onClick=${() => onChange(value * 2)}>+</button></div>`;
}

/** The editor of a plan's settings; `slice` is how many chips there are. */
export function PlanEditor({ settings, chips, slice, words, onChange }) {
  const put = (name, value) => onChange(planText({ ...settings, [name]: value }, words.usual));
  const piped = settings.pipe > 1;
  const shown = WORDS.filter(([name]) => !(name === "schedule" && !piped) && !(name === "context_by" && settings.context === 1));
  const agrees = !slice || slice === chips;
  return html`<div class="plan-editor" role="group" aria-label="Settings of the plan">
    ${AXES.map(([name, label]) => html`<${Stepper} key=${name} name=${name} label=${label} value=${settings[name]} onChange=${(value) => put(name, value)} />`)}
    <p class=${agrees ? "plan-chips" : "plan-chips plan-chips-not"} role="status">${chips.toLocaleString("en-US")} of ${(slice || chips).toLocaleString("en-US")} chips${agrees ? "" : ": the product must be all of them"}</p>
    ${SIZES.filter(([name]) => name !== "virtual" || piped).map(([name, label]) => html`<${Stepper} key=${name} name=${name} label=${label} value=${settings[name]} onChange=${(value) => put(name, value)} />`)}
    ${shown.map(([name, label]) => html`<${ChoiceField} key=${name} label=${label} value=${String(settings[name])}
      choices=${[...new Set([...words.choices[name].map(String), String(settings[name])])].map((one) => ({ value: one, text: one }))} onChange=${(value) => put(name, value)} />`)}
  </div>`;
}
