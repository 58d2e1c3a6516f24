// Chips: what is known of each, and from where.

import { TextField } from "../form.js";
import { html, useContext } from "../html.js";
import { Catalogue } from "../catalogue.js";
import { useAnswer } from "../live.js";
import { SheetView } from "../sheet.js";
import { setFields, setView } from "../state.js";
import { WhatIf } from "../whatif.js";

export function ChipsTab({ state }) {
  const catalogue = useContext(Catalogue);
  const fields = state.fields.chips;
  const answer = useAnswer({ view: "chips", fields, panels: ["sheet"] });
  const { sheet } = answer.panels;
  return html`<aside class="form" aria-label="Question">
      <${TextField} label="Chip or slice" value=${fields.name} list=${catalogue.slices} onChange=${(name) => setFields({ name })} />
      <${WhatIf} chip=${fields.name} set=${state.view.set} onDrag=${() => {}} onChange=${(set) => setView({ set })} /></aside>
    <section id="answer" tabindex="-1" class="answer" aria-busy=${answer.busy}>
      ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
      ${sheet && html`<${SheetView} blocks=${sheet.blocks} />`}</section>`;
}
