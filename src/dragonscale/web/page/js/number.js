// A number that opens its derivation: a button that looks like text.

import { createContext, html, useContext } from "./html.js";

/** Gives `open(why, amount)` to the numbers inside; a tab provides it with its own question. */
export const Deriving = createContext(null);

/** An amount of the planner: {value, unit, text, why}. Without a derivation it is plain text. */
export function Num({ of, className = "" }) {
  const open = useContext(Deriving);
  if (!of) return null;
  if (!of.why || !open) return html`<span class=${`num ${className}`}>${of.text}</span>`;
  return html`<button type="button" class=${`num num-why ${className}`} title="Where does this number come from?"
    onClick=${(event) => { event.stopPropagation(); open(of.why, of); }}>${of.text}</button>`;
}
