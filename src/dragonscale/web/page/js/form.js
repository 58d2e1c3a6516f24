// The parts of the form on the left.

import { html, useEffect, useRef, useState } from "./html.js";

/** A text field. Typing is told at once to `onInput` where it is given, to `onChange` when it is done (Enter, or the field is left). */
export function TextField({ label, value, onChange, about = "", list, placeholder = "", error = false }) {
  const [text, set] = useState(value || "");
  useEffect(() => set(value || ""), [value]);
  const id = useRef(`f${Math.random().toString(36).slice(2)}`).current;
  const done = () => { if (text !== (value || "")) onChange(text.trim()); };
  return html`<div class="field">
    <label for=${id} title=${about}>${label}</label>
    <input id=${id} type="text" value=${text} placeholder=${placeholder} aria-invalid=${error ? "true" : null} spellcheck="false"
      autocomplete="off" list=${list ? `${id}-list` : null} onInput=${(event) => set(event.target.value)} onBlur=${done}
      onKeyDown=${(event) => { if (event.key === "Enter") done(); }} />
    ${list && html`<datalist id=${`${id}-list`}>${list.map((one) => html`<option key=${one} value=${one} />`)}</datalist>`}
  </div>`;
}

/** A choice of a few. */
export function ChoiceField({ label, value, choices, onChange, about = "" }) {
  const id = useRef(`f${Math.random().toString(36).slice(2)}`).current;
  return html`<div class="field">
    <label for=${id} title=${about}>${label}</label>
    <select id=${id} value=${value || ""} onChange=${(event) => onChange(event.target.value)}>
      ${choices.map((one) => html`<option key=${one.value} value=${one.value} selected=${one.value === (value || "")}>${one.text}</option>`)}
    </select>
  </div>`;
}

/** A slider over the numbers of `stops`; `onDrag` hears every move, `onChange` the one it rests at. */
export function SliderField({ label, stops, value, text, onDrag, onChange }) {
  const id = useRef(`f${Math.random().toString(36).slice(2)}`).current;
  const place = stops.reduce((best, one, at) => (Math.abs(Math.log(one / value)) < Math.abs(Math.log(stops[best] / value)) ? at : best), 0);
  return html`<div class="field field-slider">
    <label for=${id}>${label}</label> <output for=${id}>${text}</output>
    <input id=${id} type="range" min="0" max=${stops.length - 1} step="1" value=${place} aria-valuetext=${text}
      onInput=${(event) => onDrag(stops[Number(event.target.value)])} onChange=${(event) => onChange(stops[Number(event.target.value)])} />
  </div>`;
}
