// The question of the Simulate tab: a fleet, its traffic, what requests must get; every other flag under "More".

import { Catalogue } from "../catalogue.js";
import { ChipField } from "../chip_field.js";
import { ModelField } from "../config.js";
import { MoreFields, UseCase } from "../fields.js";
import { ChoiceField, Form, Group, Segmented, TextField } from "../form.js";
import { html, useContext, useRef, useState } from "../html.js";
import { change } from "../state.js";
import { WhatIf } from "../whatif.js";
import { LiveSlider } from "./serve_form.js";

const PLACED = [
  "model", "on", "replicas", "plan", "use_case", "users", "rate", "clients", "requests", "prompt", "output", "lengths", "cv", "arrivals", "burst", "swing", "period",
  "ttft", "tpot", "itl", "e2e", "percentile", "router", "prefixes", "autoscale", "fail", "engine", "set", "max_rate", "price", "seed", "prefill_on",
  "prefill_plan", "prefill_replicas", "trace", "speed",
];
const REPLICAS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64];
const RATES = Array.from({ length: 49 }, (_, at) => Number((0.25 * 2 ** (at / 4)).toPrecision(2)));
const LENGTHS = Array.from({ length: 22 }, (_, at) => Math.round(2 ** (5 + at / 2) / 8) * 8);
const REQUESTS = [200, 500, 1000, 2000, 3000, 5000, 10000, 20000, 50000];
const choices = (words, first) => words.map((one) => ({ value: one, text: one || first }));
const rateOf = (text) => { const [found] = /[\d.]+/.exec(String(text || "")) || [""]; return Number(found) / (/\/\s*(min|m)\b/.test(text || "") ? 60 : /\/\s*h/.test(text || "") ? 3600 : 1); };

const LARGEST = 900000;

/** A trace from a file of the reader: it travels as text under the file's name. */
function TraceField({ fields, set }) {
  const file = useRef(null);
  const [wrong, setWrong] = useState("");
  const take = async (one) => {
    if (one.size > LARGEST) { setWrong(`${one.name} has ${one.size.toLocaleString("en-US")} bytes; the page takes up to ${LARGEST.toLocaleString("en-US")}.`); return; }
    const name = one.name.replace(/\.[A-Za-z0-9.]+$/, "").replace(/[^\w-]+/g, "-") || "trace";
    const text = await one.text();
    setWrong("");
    change((old) => ({ ...old, dropped: { ...old.dropped, [name]: text } }), true);
    set({ trace: name, rate: "", clients: "", prompt: "", output: "", lengths: "", arrivals: "", prefixes: "", requests: "" });
  };
  return html`<div class="field" data-field="trace"><p class="field-row">
      <button type="button" class="quiet small" onClick=${() => file.current.click()}>${fields.trace ? "Another trace" : "Replay a trace"}</button>
      ${fields.trace && html` ${fields.trace} <button type="button" class="quiet small" onClick=${() => set({ trace: "", speed: "", rate: "4/s", prompt: "2048", output: "256", requests: "2000" })}>Without</button>`}</p>
    <input ref=${file} type="file" accept=".csv,.jsonl,.json,.txt" hidden aria-label="Trace" onChange=${(event) => { const [one] = event.target.files; event.target.value = ""; if (one) take(one); }} />
    <p class=${wrong ? "field-error" : "hint"}>${wrong || "CSV of Azure, BurstGPT or arrival_s,input_tokens,output_tokens; JSON lines of Mooncake."}</p>
    ${fields.trace && html`<${TextField} label="Speed" name="speed" value=${fields.speed} placeholder="1" onChange=${(speed) => set({ speed })} />`}</div>`;
}

/** The form; a simulation runs when something rests. */
export function SimulateForm({ fields, said, error, dropped, set }) {
  const catalogue = useContext(Catalogue);
  const put = (name) => (value) => set({ [name]: value });
  const chip = String(fields.on || "").split(/[:,]/)[0];
  const closed = Boolean(fields.clients) && !fields.rate;
  const offered = (name) => (catalogue.fields.simulate.find((field) => field.name === name) || {}).examples || [];
  const summary = [fields.model, `${fields.replicas || 1} x ${fields.on}`, closed ? `${fields.clients} clients` : fields.rate].filter(Boolean).join(" · ");
  const slider = (label, name, stops, usual) => html`<${LiveSlider} label=${label} name=${name} stops=${stops} value=${Number(fields[name]) || usual}
    onChange=${(many) => set({ [name]: String(many) })} onType=${(text) => set({ [name]: text.replaceAll(",", "") })} />`;
  return html`<${Form} summary=${summary} error=${error}>
    <${Group} title="Fleet">
      <${ModelField} value=${fields.model} dropped=${dropped} onChange=${put("model")} />
      <${ChipField} label="Chips of a replica" command="serve" value=${fields.on} placeholder="h100:8" fewest=${false} onChange=${put("on")} />
      ${slider("Replicas", "replicas", REPLICAS, 1)}
      <${TextField} label="Plan" name="plan" value=${fields.plan} placeholder="tensor over the whole slice" onChange=${put("plan")} />
      <${ChoiceField} label="Router" name="router" value=${fields.router || ""} onChange=${put("router")}
        choices=${choices(["", ...offered("router").filter((one) => one !== "least_loaded")], "least_loaded")} />
      <${ChoiceField} label="Engine" name="engine" value=${fields.engine || "auto"} onChange=${(value) => set({ engine: value === "auto" ? "" : value })}
        choices=${choices([...new Set(["auto", ...catalogue.engines])], "auto")} />
      <${TextField} label="Grow and shrink" name="autoscale" value=${fields.autoscale} placeholder="2..16,target=24,startup=90s" onChange=${put("autoscale")} />
      <${TextField} label="Replicas that die" name="fail" value=${fields.fail} placeholder="0@100s+60s" onChange=${put("fail")} />
    </${Group}>
    <${Group} title="Traffic">
      <${TraceField} fields=${fields} set=${set} />
      ${!fields.trace && html`
      <${UseCase} command="simulate" fields=${fields} onChange=${set}
        without=${["rate", "clients", "arrivals", "prompt", "output", "lengths", "prefixes", "ttft", "tpot", "itl", "e2e", "percentile", "requests", "max_rate"]} />
      ${!fields.use_case && html`<${Segmented} label="Requests come" name="kind" value=${closed ? "clients" : "rate"} choices=${[{ value: "rate", text: "at a rate" }, { value: "clients", text: "from clients" }]}
        onChange=${(kind) => set(kind === "clients" ? { clients: "64", rate: "", arrivals: "", max_rate: "" } : { rate: "4/s", clients: "" })} />
      ${closed ? slider("Clients", "clients", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 64)
        : html`<${LiveSlider} label="Requests a second" name="rate" stops=${RATES} value=${rateOf(fields.rate) || 4} read=${(one) => Number(one.toPrecision(3)).toLocaleString("en-US")}
            onChange=${(many) => set({ rate: `${many}/s` })} onType=${(text) => set({ rate: /^[\d.,]+$/.test(text) ? `${text.replaceAll(",", "")}/s` : text })} />
          <${ChoiceField} label="Arrivals" name="arrivals" value=${fields.arrivals || ""} onChange=${put("arrivals")}
            choices=${choices(["", ...offered("arrivals").filter((one) => one !== "poisson")], "poisson")} />
          ${fields.arrivals === "gamma" && html`<${TextField} label="Burstiness" name="burst" value=${fields.burst} placeholder="2" onChange=${put("burst")} />`}
          ${fields.arrivals === "diurnal" && html`<${TextField} label="Swing" name="swing" value=${fields.swing} placeholder="0.5" onChange=${put("swing")} />
            <${TextField} label="Period" name="period" value=${fields.period} placeholder="24h" onChange=${put("period")} />`}`}`}
      ${slider("Requests in all", "requests", REQUESTS, 10000)}
      ${!fields.use_case && html`${slider("Prompt tokens", "prompt", LENGTHS, 2048)}
      ${slider("Output tokens", "output", LENGTHS, 256)}
      <${ChoiceField} label="Lengths" name="lengths" value=${fields.lengths || ""} onChange=${put("lengths")} choices=${choices(["", ...offered("lengths")], "as usual")} />
      ${fields.lengths === "lognormal" && html`<${TextField} label="Variation of lengths" name="cv" value=${fields.cv} placeholder="1" onChange=${put("cv")} />`}`}
      <${TextField} label="Prompts that begin alike" name="prefixes" value=${fields.prefixes} placeholder="100x1024,share=0.8" onChange=${put("prefixes")} />`}
      <${TextField} label="Seed" name="seed" value=${fields.seed} placeholder="0" onChange=${put("seed")} />
    </${Group}>
    <${Group} title="What they must get" aside=${said && said.meets != null ? (said.meets ? "met" : "missed") : ""}>
      <${TextField} label="Time to first token" name="ttft" value=${fields.ttft} placeholder="500ms" onChange=${put("ttft")} />
      <${TextField} label="Time per output token" name="tpot" value=${fields.tpot} placeholder="40ms" onChange=${put("tpot")} />
      <${TextField} label="Between tokens" name="itl" value=${fields.itl} placeholder="p99:100ms" onChange=${put("itl")} />
      <${TextField} label="Whole request" name="e2e" value=${fields.e2e} placeholder="p95:30s" onChange=${put("e2e")} />
      <${ChoiceField} label="Plain times are" name="percentile" value=${fields.percentile ? String(fields.percentile) : ""} onChange=${put("percentile")} choices=${choices(["", "50", "90", "95", "99"], "means")} />
    </${Group}>
    <${Group} title="Prefill apart and price" open=${Boolean(fields.prefill_on || fields.price)}>
      <${TextField} label="Prefill on" name="prefill_on" value=${fields.prefill_on} placeholder="h100:8" onChange=${put("prefill_on")} />
      ${fields.prefill_on && html`<${TextField} label="Plan of prefill" name="prefill_plan" value=${fields.prefill_plan} placeholder="tp8" onChange=${put("prefill_plan")} />
        ${slider("Prefill replicas", "prefill_replicas", REPLICAS, 1)}`}
      <${TextField} label="Price of a chip" name="price" value=${fields.price} placeholder="2.5/h" onChange=${put("price")} />
    </${Group}>
    <div class="group group-what-if"><${WhatIf} chip=${chip} set=${fields.set || ""} onChange=${put("set")} /></div>
    <${MoreFields} command="simulate" placed=${PLACED} fields=${fields} onChange=${set} />
  </${Form}>`;
}
