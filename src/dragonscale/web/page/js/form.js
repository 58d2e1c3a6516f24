// The parts of the form on the left: groups that fold, fields as typed on the command line, and sliders that answer live.

import { FlagText } from "./flag_text.js";
import { createContext, html, useContext, useEffect, useId, useRef, useState } from "./html.js";
import { noteInput } from "./timings.js";

/** The planner's complaint ({kind, text} or null), for the field that it names. */
export const Complaint = createContext(null);

const WORDS = {
  model: ["model", "config.json"], on: ["chip", "slice", "topology", "pod"], batch: ["batch"], seq: ["sequence"], plan: ["plan"], stack: ["stack"],
  engine: ["engine"], prompt: ["prompt"], output: ["output"], rate: ["rate"], dtype: ["dtype"],
};

/** The planner's sentence where it is about this field: it names its flag, or begins with its word ("There is no model …"). */
export function complaintOf(error, name) {
  if (!error || error.kind !== "input" || !name) return "";
  const flags = error.text.match(/--[a-z-]+/g) || [];
  if (flags.length) return flags[0] === `--${name.replaceAll("_", "-")}` ? error.text : "";
  const opening = error.text.slice(0, 32).toLowerCase();
  return (WORDS[name] || []).some((word) => opening.includes(word)) ? error.text : "";
}

function useField(name, about, error) {
  const id = useId();
  const complaint = complaintOf(useContext(Complaint), name) || (typeof error === "string" ? error : "");
  const below = complaint ? html`<p class="field-error" id=${`${id}-error`}><${FlagText} text=${complaint} /></p>` : about ? html`<p class="hint" id=${`${id}-about`}>${about}</p>` : null;
  const describedBy = complaint ? `${id}-error` : about ? `${id}-about` : null;
  return { id, below, aria: { "aria-invalid": complaint || error === true ? "true" : null, "aria-describedby": describedBy } };
}

/** The form of a tab. On a phone it folds into one line, `summary`. */
export function Form({ label = "Question", summary = "", error = null, children }) {
  const narrow = useRef(matchMedia("(max-width: 860px)").matches).current;
  return html`<${Complaint.Provider} value=${error}><aside class="form" aria-label=${label}>
    <details class="form-fold" open=${!narrow}><summary><span>Question</span><span class="form-summary">${summary}</span></summary>
      <form onSubmit=${(event) => event.preventDefault()}>${children}</form></details>
  </aside></${Complaint.Provider}>`;
}

/** A group of fields that folds. */
export function Group({ title, open = true, children, aside }) {
  return html`<details class="group" open=${open}><summary>${title}${aside && html`<span class="group-aside">${aside}</span>`}</summary>
    <div class="group-body">${children}</div></details>`;
}

/** A text field. `onChange` hears what was typed when it is done (Enter, or the field is left). */
export function TextField({ label, name, value, onChange, about = "", list, placeholder = "", error = false, unit = "" }) {
  const [text, set] = useState(value || "");
  useEffect(() => set(value || ""), [value]);
  const { id, below, aria } = useField(name, about, error);
  const done = () => { if (text.trim() !== (value || "")) onChange(text.trim()); };
  return html`<div class="field" data-field=${name}>
    <label for=${id}>${label}</label>
    <div class="input"><input id=${id} type="text" value=${text} placeholder=${placeholder} ...${aria} spellcheck="false" autocomplete="off" autocapitalize="off"
      list=${list ? `${id}-list` : null} onInput=${(event) => set(event.currentTarget.value)} onBlur=${done}
      onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); done(); } }} />${unit && html`<span class="unit">${unit}</span>`}</div>
    ${list && html`<datalist id=${`${id}-list`}>${list.map((one) => html`<option key=${one} value=${one} />`)}</datalist>`}
    ${below}
  </div>`;
}

const optionOf = (one, value) => html`<option key=${one.value} value=${one.value} selected=${one.value === (value || "")}>${one.text}</option>`;

/** A choice from a list: {value, text, group}; those of a group stand together under its name. */
export function ChoiceField({ label, name, value, choices, onChange, about = "", error = false }) {
  const { id, below, aria } = useField(name, about, error);
  return html`<div class="field" data-field=${name}>
    <label for=${id}>${label}</label>
    <div class="input input-choice"><select id=${id} value=${value || ""} ...${aria} onChange=${(event) => onChange(event.currentTarget.value)}>
      ${choices.filter((one) => !one.group).map((one) => optionOf(one, value))}
      ${[...new Set(choices.map((one) => one.group).filter(Boolean))].map((group) => html`<optgroup key=${group} label=${group}>${choices.filter((one) => one.group === group).map((one) => optionOf(one, value))}</optgroup>`)}
    </select></div>${below}
  </div>`;
}

/** A choice of two to five, all in sight. */
export function Segmented({ label, name, value, choices, onChange, about = "" }) {
  const { id, below } = useField(name, about, false);
  return html`<fieldset class="field segmented" data-field=${name}><legend>${label}</legend>
    <div class="segments">${choices.map((one) => html`<label key=${one.value}><input type="radio" name=${id} value=${one.value} checked=${one.value === (value || "")}
      onChange=${() => onChange(one.value)} /><span>${one.text}</span></label>`)}</div>${below}
  </fieldset>`;
}

/** On or off. */
export function SwitchField({ label, name, value, onChange, about = "" }) {
  const { id, below } = useField(name, about, false);
  return html`<div class="field field-switch" data-field=${name}>
    <label for=${id}>${label}</label>
    <input id=${id} type="checkbox" role="switch" checked=${Boolean(value)} onChange=${(event) => onChange(event.currentTarget.checked)} />${below}
  </div>`;
}

const nearestStop = (stops, value) => stops.reduce((best, one, at) => (Math.abs(Math.log(one / value)) < Math.abs(Math.log(stops[best] / value)) ? at : best), 0);

/** A slider over the numbers of `stops`; `onDrag` hears every move, `onChange` the one it rests at. `text` is what the value reads;
 * with `onType` it is a field one can type into. */
export function SliderField({ label, name, stops, value, text, onDrag, onChange, onType, about = "" }) {
  const { id, below, aria } = useField(name, about, false);
  const [held, hold] = useState(null);
  const place = held ?? nearestStop(stops, value);
  const [typed, setTyped] = useState(null);
  const done = () => { if (typed != null && typed.trim() && typed.trim() !== text) onType(typed.trim()); setTyped(null); };
  // while it is dragged, an answer to an earlier place must not pull the thumb back
  const dragging = useRef(false);
  useEffect(() => { if (!dragging.current) hold(null); }, [value, stops.join()]);
  return html`<div class="field field-slider" data-field=${name}>
    <label for=${id}>${label}</label>
    ${onType
      ? html`<input class="typed" type="text" aria-label=${`${label}, typed`} value=${typed ?? text} spellcheck="false" autocomplete="off" onInput=${(event) => setTyped(event.currentTarget.value)}
          onBlur=${done} onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); done(); } }} />`
      : html`<output for=${id}>${text}</output>`}
    <input id=${id} type="range" min="0" max=${stops.length - 1} step="1" value=${place} aria-valuetext=${text} ...${aria}
      style=${{ "--part": `${(100 * place) / Math.max(1, stops.length - 1)}%` }}
      onInput=${(event) => { noteInput(); dragging.current = true; const at = Number(event.currentTarget.value); hold(at); if (onDrag) onDrag(stops[at]); }}
      onChange=${(event) => { dragging.current = false; onChange(stops[Number(event.currentTarget.value)]); }} />
    ${below}
  </div>`;
}
