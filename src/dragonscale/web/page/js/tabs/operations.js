import { html } from "../html.js";

/** The tab "operations". */
export function OperationsTab() {
  return html`<p class="loading">Soon.</p>`;
}
