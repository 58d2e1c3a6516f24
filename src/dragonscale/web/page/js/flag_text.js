// A sentence of the planner in which flags are buttons: one that has a value sets its field, another leads to it.

import { Catalogue } from "./catalogue.js";
import { flagParts } from "./flags.js";
import { html, useContext, useMemo } from "./html.js";
import { current, setFields } from "./state.js";

/** Go to a field of the form, wherever it is folded away. */
function goTo(name) {
  const field = document.querySelector(`.form [data-field="${name}"]`);
  if (!field) return;
  for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  /** @type {HTMLElement | null} */
  const input = field.querySelector("input, select");
  field.scrollIntoView({ block: "center" });
  input?.focus();
}

/** The sentence; `command` is the one whose fields stand in the form, the open tab's where it is left out. */
export function FlagText({ text, command = current().tab }) {
  const catalogue = useContext(Catalogue);
  const parts = useMemo(() => {
    const known = catalogue?.fields[command];
    return known ? flagParts(text, command, known, [...catalogue.stacks, ...catalogue.engines, ...catalogue.dtypes]) : [{ text }];
  }, [catalogue, command, text]);
  return html`${parts.map((part, at) => (part.text != null ? part.text
    : html`<button type="button" key=${at} class="flag-link" onClick=${() => (part.fields ? setFields(part.fields) : goTo(part.field))}>${part.label}</button>`))}`;
}
