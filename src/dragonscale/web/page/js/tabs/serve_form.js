// The question of the Serve tab: model, chips, requests, targets, software; sliders that answer while they move; the rest under "More".

import { Catalogue } from "../catalogue.js";
import { ChipField } from "../chip_field.js";
import { ModelField } from "../config.js";
import { MoreFields, UseCase } from "../fields.js";
import { ChoiceField, Form, Group, SliderField, SwitchField, TextField } from "../form.js";
import { html, useContext, useMemo, useRef, useState } from "../html.js";
import { chipOf, countOf, sliceStops } from "../slices.js";
import { WhatIf } from "../whatif.js";

const PLACED = [
  "model", "on", "use_case", "users", "prompt", "output", "ttft", "tpot", "itl", "e2e", "rate", "plan", "batch", "engine", "quantize", "dtype", "kv_dtype", "price", "set",
  "cached", "accept", "drafts", "draft", "disaggregate", "better",
];
const LENGTHS = Array.from({ length: 25 }, (_, at) => Math.round(2 ** (5 + at / 2) / 8) * 8);
const number = (value) => Number(value).toLocaleString("en-US");

/** Whole batches from one to beyond what fits, about a fifth apart. */
export function batchStops(most) {
  const upto = Math.max(most || 256, 8);
  const found = [];
  for (let one = 1; one < upto; one = Math.max(one + 1, Math.round(one * 1.19))) found.push(one);
  return [...found, upto, Math.round(upto * 1.15), Math.round(upto * 1.4)];
}

/** A slider whose text follows the thumb. `onDrag` may be missing: then it only answers where it rests. */
export function LiveSlider({ label, name, stops, value, read = number, about, onDrag, onChange, onType }) {
  const [moving, setMoving] = useState(null);
  return html`<${SliderField} label=${label} name=${name} stops=${stops} value=${value} text=${read(moving ?? value)} about=${about} onType=${onType}
    onDrag=${(at) => { setMoving(at); if (onDrag) onDrag(at); }} onChange=${(at) => { setMoving(null); onChange(at); }} />`;
}

function BatchSlider({ fields, sizes, drag, set }) {
  const most = useRef(null);
  // the largest batch of a dragged answer must not move the stops under the thumb
  if (sizes && sizes.rests && sizes.max_batch) most.current = sizes.max_batch;
  const stops = useMemo(() => batchStops(most.current), [most.current]);
  const known = sizes?.batch || Number(fields.batch);
  return html`<${LiveSlider} label="Sequences at once" name="batch" stops=${stops} value=${known || 1} read=${known ? number : () => "–"} onDrag=${(many) => drag({ batch: String(many) })}
      onChange=${(many) => set({ batch: String(many) })} onType=${(text) => set({ batch: text.replaceAll(",", "") })}
      about=${fields.batch ? "" : "The best batch; drag to try others."} />
    ${fields.batch && html`<p class="field-row"><button type="button" class="quiet small" onClick=${() => set({ batch: "" })}>Best batch</button></p>`}`;
}

/** The form. `drag` hears changes while something moves, `set` what it rests at. */
export function ServeForm({ fields, said, error, dropped, drag, set }) {
  const catalogue = useContext(Catalogue);
  const put = (name) => (value) => set({ [name]: value });
  const sizes = said?.sizes;
  // the slices are those of the chip in the field, whatever an answer is still about
  const known = String(fields.on || "").includes(",") ? null : chipOf(catalogue.chips, fields.on);
  const slices = useMemo(() => new Map((known ? sliceStops(known, "serve", fields.on) : []).map((stop) => [stop.value, stop.on])), [known, fields.on]);
  const many = countOf(fields.on) || (known && sizes?.chip && chipOf(catalogue.chips, sizes.chip) === known ? sizes.chips : null);
  const chip = String(fields.on || "").split(/[:,]/)[0];
  const summary = [fields.model, fields.on, fields.plan || "best plan", fields.tpot && `TPOT ${fields.tpot}`].filter(Boolean).join(" · ");
  const formats = [...new Set(["", ...(said?.sizes?.caches || []), fields.kv_dtype || ""])];
  const choice = (words, empty) => words.map((one) => ({ value: one, text: one || empty }));
  const moved = (name, value) => html`<${LiveSlider} label=${name === "prompt" ? "Prompt tokens" : "Output tokens"} name=${name} stops=${LENGTHS}
    value=${value} onDrag=${(many) => drag({ [name]: String(many) })} onChange=${(many) => set({ [name]: String(many) })}
    onType=${(text) => set({ [name]: text.replaceAll(",", "") })} />`;
  return html`<${Form} summary=${summary} error=${error}>
    <${Group} title="Serve">
      <${ModelField} value=${fields.model} dropped=${dropped} onChange=${put("model")} />
      <${ChipField} label="Chips" command="serve" value=${fields.on} placeholder="h100:8, v5e:4x4, or h100,v6e" onChange=${put("on")} />
      ${many && slices.size > 1 && html`<${LiveSlider} label="Number of chips" name="chips" stops=${[...slices.keys()]} value=${many}
        onChange=${(many) => set({ on: slices.get(many) })} />`}
      <${BatchSlider} fields=${fields} sizes=${sizes} drag=${drag} set=${set} />
    </${Group}>
    <${Group} title="Requests">
      <${UseCase} command="serve" fields=${fields} without=${["prompt", "output", "ttft", "tpot", "itl", "e2e", "rate", "cached"]} onChange=${set} />
      ${moved("prompt", sizes?.prompt || Number(fields.prompt) || 2048)}
      ${moved("output", sizes?.output || Number(fields.output) || 512)}
      <${TextField} label="Part of each prompt that is cached" name="cached" value=${fields.cached} placeholder="0" onChange=${put("cached")} />
    </${Group}>
    <${Group} title="What they must get" aside=${said && (fields.ttft || fields.tpot || fields.itl || fields.e2e) ? (said.meets ? "met" : "missed") : ""}>
      <${TextField} label="Time to first token" name="ttft" value=${fields.ttft} placeholder="500ms" onChange=${put("ttft")} />
      <${TextField} label="Time per output token" name="tpot" value=${fields.tpot} placeholder="30ms" onChange=${put("tpot")} />
      <${TextField} label="Between tokens" name="itl" value=${fields.itl} placeholder="p99:100ms" onChange=${put("itl")} />
      <${TextField} label="Whole request" name="e2e" value=${fields.e2e} placeholder="p95:30s" onChange=${put("e2e")} />
      <${TextField} label="Requests to serve" name="rate" value=${fields.rate} placeholder="20/s" onChange=${put("rate")} />
    </${Group}>
    <${Group} title="Plan and software" aside=${fields.plan ? "plan given" : "best plan"}>
      <${TextField} label="Plan" name="plan" value=${fields.plan} placeholder="best" onChange=${put("plan")}
        about=${fields.plan ? "" : said && said.settings ? `Best: ${said.settings.plan}` : "tp8, tensor=8,expert=8, or 'vllm serve …'"} />
      <p class="field-row">${fields.plan
        ? html`<button type="button" class="quiet small" onClick=${() => set({ plan: "", batch: "", better: "" })}>Find the best</button>`
        : said && said.settings && html`<button type="button" class="quiet small" onClick=${() => set({ plan: said.settings.plan })}>Keep this plan</button>`}</p>
      ${fields.plan && html`<${SwitchField} label="Say what would be better" name="better" value=${fields.better} onChange=${(on) => set({ better: on || "" })} />`}
      <${ChoiceField} label="Engine" name="engine" value=${fields.engine || "auto"} onChange=${(value) => set({ engine: value === "auto" ? "" : value })}
        choices=${[...new Set(["auto", ...catalogue.engines, fields.engine || "auto"])].map((one) => ({ value: one, text: one === "auto" && said?.engine ? `auto: ${said.engine}` : one }))}
        about=${!fields.engine && said?.engine_why ? `${said.engine}: ${said.engine_why}` : ""} />
      <${ChoiceField} label="Quantise to" name="quantize" value=${fields.quantize || ""} onChange=${put("quantize")}
        choices=${choice([...new Set(["", "fp8", "int8", "int4", "nvfp4", "mxfp4", "any", fields.quantize || ""])], "as the checkpoint is")} />
      <${ChoiceField} label="Format of the KV cache" name="kv_dtype" value=${fields.kv_dtype || ""} onChange=${put("kv_dtype")} choices=${choice(formats, "as usual")} />
      <${TextField} label="Price of a chip" name="price" value=${fields.price} placeholder="2.5/h" onChange=${put("price")} />
    </${Group}>
    <${Group} title="Speculation and disaggregation" open=${Boolean(fields.accept || fields.disaggregate)}>
      <${TextField} label="Drafts accepted" name="accept" value=${fields.accept} placeholder="0.7" onChange=${put("accept")} about="The probability that a drafted token is accepted." />
      ${fields.accept && html`<${TextField} label="Tokens drafted at a time" name="drafts" value=${fields.drafts} placeholder="the best number" onChange=${put("drafts")} />
        <${TextField} label="Drafting model" name="draft" value=${fields.draft} placeholder="an EAGLE or MTP head" onChange=${put("draft")} />`}
      <${SwitchField} label="Prefill on replicas of its own" name="disaggregate" value=${fields.disaggregate} onChange=${(on) => set({ disaggregate: on || "" })} />
    </${Group}>
    <div class="group group-what-if"><${WhatIf} chip=${chip} set=${fields.set || ""} onDrag=${(value) => drag({ set: value })} onChange=${put("set")} /></div>
    <${MoreFields} command="serve" placed=${PLACED} fields=${fields} onChange=${set} />
  </${Form}>`;
}
