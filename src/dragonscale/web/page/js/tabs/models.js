// Models: what a model weighs and asks for.

import { droppedFor, ModelField } from "../config.js";
import { html } from "../html.js";
import { useAnswer } from "../live.js";
import { SheetView } from "../sheet.js";
import { setFields } from "../state.js";

export function ModelsTab({ state }) {
  const fields = state.fields.models;
  const answer = useAnswer({ view: "models", fields, dropped: droppedFor(state, fields), panels: ["sheet"] });
  const { sheet } = answer.panels;
  return html`<aside class="form" aria-label="Question">
      <${ModelField} value=${fields.model} dropped=${state.dropped} onChange=${(model) => setFields({ model })} /></aside>
    <section id="answer" tabindex="-1" class="answer" aria-busy=${answer.busy}>
      ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
      ${sheet && html`<${SheetView} blocks=${sheet.blocks} />`}</section>`;
}
