// The question of the Train tab: model, chips, batch, plan; sliders that answer while they move; every other flag under "More".

import { Catalogue } from "../catalogue.js";
import { ChipField } from "../chip_field.js";
import { ModelField } from "../config.js";
import { AnyField, MoreFields } from "../fields.js";
import { ChoiceField, Form, Group, SliderField, TextField } from "../form.js";
import { html, useContext, useMemo, useState } from "../html.js";
import { chipOf, countOf, sliceStops } from "../slices.js";
import { WhatIf } from "../whatif.js";
import { PlanEditor } from "./train_plan.js";

const TUNED = ["lora_rank", "frozen", "teacher"];
const PLACED = ["model", "on", "batch", "seq", "tokens", "method", ...TUNED, "stack", "numerics", "dtype", "plan", "fix", "remat", "price", "set"];
const ELSEWHERE = ["alone", "profile", "scaling"];
const DTYPES = ["", "bf16", "fp8", "fp16", "fp32", "mxfp8", "nvfp4", "mxfp4", "int8"];
const textAt = (stops, value) => (stops.find((one) => one.value === value) || {}).text;

/** A slider over the planner's stops, each with its text; `typed` is what the field holds as written. */
function StopSlider({ label, name, stops, at, typed, field, onDrag, onChange, onType }) {
  const [held, hold] = useState(null);
  const own = stops.find((one) => one.value === at);
  // let go of, it stays where the hand left it until the answer is about what the field says
  const moving = held && (held.dragged || (written(held.stop) === field && !(own && written(own) === field))) ? held.stop.value : null;
  const values = useMemo(() => stops.map((one) => one.value), [stops]);
  const now = moving ?? at;
  return html`<${SliderField} label=${label} name=${name} stops=${values} value=${now} text=${moving == null ? typed : String(shortText(stops, moving))}
    about=${textAt(stops, now) || ""} onType=${onType}
    onDrag=${(value) => { const stop = stops.find((one) => one.value === value); hold({ stop, dragged: true }); onDrag(stop); }}
    onChange=${(value) => { const stop = stops.find((one) => one.value === value); hold({ stop, dragged: false }); onChange(stop); }} />`;
}

/** What a stop writes into its field. */
const written = (stop) => stop.on || stop.typed || String(stop.value);

const shortText = (stops, value) => { const stop = stops.find((one) => one.value === value) || {}; return stop.typed || stop.on || value; };

/** The form. `drag` hears changes while something moves, `set` what it rests at. */
export function TrainForm({ fields, said, sliders, error, dropped, drag, set }) {
  const catalogue = useContext(Catalogue);
  const [editing, setEditing] = useState(false);
  const put = (name) => (value) => set({ [name]: value });
  const chip = String(fields.on || "").split(/[:,]/)[0];
  // the slices are those of the chip in the field, whatever an answer is still about; only where the field leaves their number open an answer says it
  const known = String(fields.on || "").includes(",") ? null : chipOf(catalogue.chips, fields.on);
  const slices = useMemo(() => (known ? sliceStops(known, "train", fields.on) : []), [known, fields.on]);
  const many = countOf(fields.on) || (said && known && chipOf(catalogue.chips, said.on) === known ? said.chips : null);
  const flag = (name) => catalogue.fields.train.find((field) => field.name === name);
  const methods = (flag("method")?.examples || []).filter((one) => one !== "full");
  const tuned = TUNED.filter((one) => one !== "teacher" || fields.method === "distill").map(flag).filter(Boolean);
  const summary = [fields.model, fields.on, fields.batch, fields.plan || "best plan"].filter(Boolean).join(" · ");
  return html`<${Form} summary=${summary} error=${error}>
    <${Group} title="Job">
      <${ModelField} value=${fields.model} dropped=${dropped} onChange=${put("model")} />
      <${ChoiceField} label="What is trained" name="method" value=${fields.method || ""} onChange=${(method) => set({ ...Object.fromEntries(TUNED.map((one) => [one, ""])), method })}
        choices=${["", ...methods].map((one) => ({ value: one, text: one || "every weight" }))} />
      ${fields.method && tuned.map((field) => html`<${AnyField} key=${field.name} field=${field} value=${fields[field.name]} onChange=${put(field.name)} />`)}
      <${ChipField} label="Chips" command="train" value=${fields.on} placeholder="v5p:8x16x16" onChange=${put("on")} />
      ${slices.length > 1 && html`<${StopSlider} label="Number of chips" name="chips" stops=${slices} at=${many || slices[0].value}
        typed=${many ? many.toLocaleString("en-US") : "the fewest that fit"} field=${fields.on} onDrag=${(stop) => drag({ on: stop.on })} onChange=${(stop) => set({ on: stop.on })} />`}
      ${sliders ? html`<${StopSlider} label="Batch" name="batch" stops=${sliders.batch} at=${sliders.at.batch} typed=${fields.batch} field=${fields.batch}
          onDrag=${(stop) => drag({ batch: `${stop.value}seq` })} onChange=${(stop) => set({ batch: written(stop) })} onType=${put("batch")} />
        <${StopSlider} label="Sequence length" name="seq" stops=${sliders.seq} at=${sliders.at.seq} typed=${fields.seq} field=${fields.seq}
          onDrag=${(stop) => drag({ seq: String(stop.value) })} onChange=${(stop) => set({ seq: String(stop.value) })} onType=${put("seq")} />`
        : html`<${TextField} label="Batch" name="batch" value=${fields.batch} placeholder="4Mi or 512seq" onChange=${put("batch")} />
          <${TextField} label="Sequence length" name="seq" value=${fields.seq} onChange=${put("seq")} />`}
      <${TextField} label="Training tokens" name="tokens" value=${fields.tokens} placeholder="15T, or chinchilla" onChange=${put("tokens")} />
    </${Group}>
    <${Group} title="Plan" aside=${fields.plan ? "given" : "best"}>
      <${TextField} label="Plan" name="plan" value=${fields.plan} placeholder="best" onChange=${put("plan")}
        about=${fields.plan ? "Judged as it is; the card at the end holds it against the best." : said && said.plan ? `Best: ${said.plan}` : ""} />
      <div class="plan-buttons">
        ${said && said.settings && html`<button type="button" class="button" aria-expanded=${String(editing)} onClick=${() => {
          if (!fields.plan) set({ plan: said.plan });
          setEditing(!editing);
        }}>${editing ? "Close editor" : "Edit"}</button>`}
        ${fields.plan && html`<button type="button" class="button" onClick=${() => { setEditing(false); set({ plan: "" }); }}>Find the best</button>`}
      </div>
      ${editing && said && said.settings && sliders && html`<${PlanEditor} settings=${said.settings} chips=${said.chips} slice=${sliders.at.chips} words=${sliders.plan}
        onChange=${(plan) => set({ plan })} />`}
      ${!fields.plan && html`<${TextField} label="Fixed settings" name="fix" value=${fields.fix} placeholder="tp8,zero=1|3" onChange=${put("fix")} />
        <${TextField} label="Recompute policies" name="remat" value=${fields.remat} placeholder="any" onChange=${put("remat")} about="none, selective, matmuls, block, offload …" />`}
    </${Group}>
    <${Group} title="Software and price" open=${Boolean(fields.stack || fields.numerics || fields.dtype || fields.price)}>
      <${ChoiceField} label="Stack" name="stack" value=${fields.stack || "auto"} onChange=${(value) => set({ stack: value === "auto" ? "" : value })}
        about=${(catalogue.stack_words[fields.stack || (said && said.stack)] || {}).about}
        choices=${["auto", ...catalogue.stacks.filter((one) => one !== "auto")].map((one) => ({ value: one, text: one === "auto" && said ? `auto: ${said.stack}` : one, group: (catalogue.stack_words[one] || {}).group }))} />
      <${ChoiceField} label="Gradients" name="numerics" value=${fields.numerics || ""} onChange=${put("numerics")}
        choices=${[{ value: "", text: "as in production (the software's default)" }, { value: "benchmark", text: "as in published benchmarks" }]} />
      <${ChoiceField} label="Format of matmuls" name="dtype" value=${fields.dtype || ""} onChange=${put("dtype")}
        choices=${[...new Set([...DTYPES, fields.dtype || ""])].map((one) => ({ value: one, text: one || "bf16, as usual" }))} />
      <${TextField} label="Price of a chip" name="price" value=${fields.price} placeholder="2.5/h" onChange=${put("price")} />
    </${Group}>
    <${WhatIf} chip=${chip} set=${fields.set || ""} onDrag=${(value) => drag({ set: value })} onChange=${put("set")} />
    <${MoreFields} command="train" placed=${[...PLACED, ...ELSEWHERE]} fields=${fields} onChange=${set} />
  </${Form}>`;
}
