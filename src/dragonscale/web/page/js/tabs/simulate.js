// Simulate: a fleet under traffic; whether it holds, the percentiles of what requests get, and the fleet over time.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Lines } from "../charts/lines.js";
import { droppedFor } from "../config.js";
import { useDerivation } from "../derivation.js";
import { html } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";
import { FleetOverTime } from "./fleet.js";
import { SimulateForm } from "./simulate_form.js";

const PANELS = ["answer", "over_time", "percentiles", "replicas"];

export function SimulateTab({ state }) {
  const fields = state.fields.simulate;
  const dropped = droppedFor(state, fields);
  const answer = useAnswer({ view: "simulate", fields, dropped, panels: PANELS });
  const { answer: said, over_time: over, percentiles, replicas } = answer.panels;
  const [open, drawer] = useDerivation("simulate", fields, dropped);
  const set = (changes) => setFields(changes);
  const find = said && !said.holds && !fields.max_rate && fields.rate;
  const advice = said && [said.advice, said.capacity && `By running: ${said.capacity}.`].filter(Boolean).join(" ");
  return html`<${Deriving.Provider} value=${open}>
    <${SimulateForm} fields=${fields} said=${said} error=${answer.error} dropped=${state.dropped} set=${set} />
    <${AnswerArea} answer=${answer} working=${`Simulating ${fields.model} on ${fields.on}`} toolbar=${html`<${Toolbar} tab="simulate" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said?.sentence} feasible=${!said || said.holds} advice=${advice} />
      <${Figures} figures=${said?.figures} expect=${8} />
      ${said && html`<p class="next">
        ${find && html`<button type="button" class="button" disabled=${answer.busy} onClick=${() => set({ max_rate: true })}>Find what would hold</button>`}
        ${said.next && Object.keys(said.next.fields).length > 0 && html`<button type="button" class="button" onClick=${() => setFields({ max_rate: "", ...said.next.fields })}>${said.next.text.replace(/:$/, "")}</button>`}
        <small class="dim">${said.requests}</small></p>
        <${Notes} notes=${said.notes} />`}
      <div class="cards">
        <${Card} title="The fleet over time" name="over_time" data=${over} height=${520} wide>
          ${over && over.moments.length > 0 && html`<${FleetOverTime} data=${over} view=${state.view} />`}</${Card}>
        <${Card} title="What requests get" name="percentiles" data=${percentiles} about="The share of requests that got it within a time." height=${360} wide>
          ${percentiles && percentiles.series.length > 0 && html`<${Lines} series=${percentiles.series} x=${percentiles.x} y=${percentiles.y} rules=${percentiles.rules} height=${280}
            label="Distribution of latencies" /><${Percentiles} of=${percentiles} />`}</${Card}>
        <${Card} title="Load of each replica" name="replicas" data=${replicas} height=${160} wide>
          ${replicas && html`<${Replicas} rows=${replicas.rows} />`}</${Card}>
      </div>
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}

function Percentiles({ of }) {
  return html`<div class="scroll lines" tabindex="0" role="region" aria-label="Percentiles"><table>
    <thead><tr>${of.columns.map((one, at) => html`<th key=${at} scope="col" class=${at ? "right" : ""}>${one}</th>`)}<th scope="col">95% interval</th></tr></thead>
    <tbody>${of.rows.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th>
      ${row.cells.map((cell, at) => html`<td key=${at} class="right"><${Num} of=${cell} /></td>`)}<td>${row.about}</td></tr>`)}</tbody></table></div>`;
}

function Replicas({ rows }) {
  const most = Math.max(1, ...rows.map((row) => row.tokens.value));
  return html`<div class="scroll lines" tabindex="0" role="region" aria-label="Load of each replica"><table>
    <thead><tr><th scope="col">replica</th><th scope="col" class="right">busy</th><th scope="col" class="right">mean batch</th><th scope="col" class="right">output tokens</th><th scope="col"></th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}${row.pool === "prefill" ? " (prefill)" : ""}</th>
      <td class="right"><${Num} of=${row.busy} /></td><td class="right"><${Num} of=${row.batch} /></td><td class="right"><${Num} of=${row.tokens} /></td>
      <td class="load" aria-hidden="true"><i style=${{ width: `${(100 * row.tokens.value) / most}%` }}></i></td></tr>`)}</tbody></table></div>`;
}
