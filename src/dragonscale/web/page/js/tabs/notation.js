// An expression as it is typed, with what is wrong with it marked, and a slider for each of its letters.

import { ChoiceField, SliderField, TextField } from "../form.js";
import { html } from "../html.js";
import { readSet, writeSet } from "../whatif.js";

/** The field for an expression; `notation` is the planner's panel of that name. */
export function ExpressionField({ label, value, notation, onChange, examples }) {
  const wrong = notation && notation.wrong;
  const at = wrong && notation.at;
  return html`<${TextField} label=${label} name="expression" value=${value} onChange=${onChange} error=${wrong || false} />
    ${at && html`<p class="marked" aria-hidden="true"><code>${value.slice(0, at[0])}<mark>${value.slice(at[0], at[1])}</mark>${value.slice(at[1])}</code></p>`}
    <${ChoiceField} label="Examples" value="" onChange=${(chosen) => { const one = examples.find((example) => example.text === chosen); if (one) onChange(one.fields.expression, one.fields); }}
      choices=${[{ value: "", text: "choose one …" }, ...examples.map((one) => ({ value: one.text, text: one.text }))]} />`;
}

/** The field `sizes` with one letter changed; without a size the letter is left open. */
export function withSize(sizes, name, size) {
  const entries = readSet(sizes);
  if (size == null) entries.delete(name); else entries.set(name, String(size));
  return writeSet(entries);
}

/** A slider for each letter. */
export function Letters({ letters = [], sizes = "", onDrag, onChange }) {
  return letters.map((letter) => html`<div key=${letter.name} class="letter">
    <${SliderField} label=${letter.name} name=${`sizes-${letter.name}`} stops=${letter.stops.map((one) => one.size)} value=${letter.size || 1}
      text=${letter.text} onDrag=${(size) => onDrag(withSize(sizes, letter.name, size))} onChange=${(size) => onChange(withSize(sizes, letter.name, size))}
      onType=${(typed) => onChange(withSize(sizes, letter.name, typed.replaceAll(",", "")))} />
    ${letter.size != null && html`<button type="button" class="quiet small" onClick=${() => onChange(withSize(sizes, letter.name, null))}>leave ${letter.name} open</button>`}</div>`);
}
