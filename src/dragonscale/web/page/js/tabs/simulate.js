import { html } from "../html.js";

/** The tab "simulate". */
export function SimulateTab() {
  return html`<p class="loading">Soon.</p>`;
}
