import { html } from "../html.js";

/** The tab "serve". */
export function ServeTab() {
  return html`<p class="loading">Soon.</p>`;
}
