// Train: what is trained, on what, with which plan; and the answer, live.

import { Catalogue } from "../catalogue.js";
import { ChoiceField, SliderField, TextField } from "../form.js";
import { html, useContext, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Compared } from "../compare.js";
import { useDerivation } from "../derivation.js";
import { Deriving, Num } from "../number.js";
import { setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";

/** The request of the tab's fields: a plan that is given is judged alone. */
export function trainRequest(fields, panels, extra = {}) {
  return { view: "train", fields: { ...fields, ...(fields.plan ? { alone: true } : {}) }, panels, ...extra };
}

export function TrainTab({ state }) {
  const catalogue = useContext(Catalogue);
  const fields = state.fields.train;
  const [drag, setDrag] = useState(null);
  const answer = useAnswer(drag || trainRequest(fields, ["answer", "time", "memory", "mesh"]));
  const { answer: said, time, memory } = answer.panels;
  const asked = trainRequest(fields, []).fields;
  const [open, drawer] = useDerivation("train", asked, state.dropped);
  const set = (name) => (value) => { setDrag(null); setFields({ [name]: value }); };
  const batches = Array.from({ length: 37 }, (_, at) => Math.round(2 ** (3 + at / 3)));
  const dragged = (sequences) => setDrag(trainRequest(
    { ...fields, batch: `${sequences}seq`, plan: fields.plan || (said && said.plan) }, ["answer", "time", "memory", "mesh"], { brief: true }));
  return html`<${Deriving.Provider} value=${open}><aside class="form" aria-label="Question">
      <${TextField} label="Model" value=${fields.model} list=${catalogue.models} onChange=${set("model")} />
      <${TextField} label="Chips" value=${fields.on} list=${catalogue.slices} onChange=${set("on")} />
      <${TextField} label="Batch" value=${fields.batch} onChange=${set("batch")} />
      ${said && html`<${SliderField} label="Batch" stops=${batches} value=${said.batch.sequences} text=${`${said.batch.sequences} sequences`}
        onDrag=${dragged} onChange=${(many) => { setDrag(null); setFields({ batch: `${many}seq` }); }} />`}
      <${TextField} label="Sequence length" value=${fields.seq} onChange=${set("seq")} />
      <${ChoiceField} label="Stack" value=${fields.stack || "auto"} onChange=${set("stack")}
        choices=${["auto", ...catalogue.stacks.filter((one) => one !== "auto")].map((one) => ({ value: one, text: one }))} />
      <${TextField} label="Plan" value=${fields.plan} placeholder="best" onChange=${set("plan")} />
    </aside>
    <section id="answer" tabindex="-1" class="answer" aria-busy=${answer.busy} aria-live="polite">
      ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
      ${said && html`<p class="sentence">${said.sentence}</p>
        <dl class="figures">${(said.figures || []).map((one) => html`<div key=${one.label}><dt>${one.label}</dt><dd><${Num} of=${one.number} /></dd></div>`)}</dl>`}
      ${time && html`<ul>${time.parts.map((one) => html`<li key=${one.name}>${one.name} <${Num} of=${one.shown} /></li>`)}</ul>`}
      ${memory && html`<ul>${memory.parts.map((one) => html`<li key=${one.name}>${one.name} <${Num} of=${one.shown} /></li>`)}</ul>`}
      <${Compared} state=${state} />
      <${Toolbar} tab="train" fields=${asked} dropped=${state.dropped} />
    </section>${drawer}</${Deriving.Provider}>`;
}
