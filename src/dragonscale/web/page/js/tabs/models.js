import { html } from "../html.js";

/** The tab "models". */
export function ModelsTab() {
  return html`<p class="loading">Soon.</p>`;
}
