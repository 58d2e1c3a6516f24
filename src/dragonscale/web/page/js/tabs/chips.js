import { html } from "../html.js";

/** The tab "chips". */
export function ChipsTab() {
  return html`<p class="loading">Soon.</p>`;
}
