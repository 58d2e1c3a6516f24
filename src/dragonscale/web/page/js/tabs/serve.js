// Serve: what is served, on what, for which requests; and how fast tokens come, what they cost and where that changes, live.

import { Advice, AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card, Skeleton } from "../card.js";
import { Lines } from "../charts/lines.js";
import { MeshChart } from "../charts/mesh.js";
import { RooflineChart } from "../charts/roofline.js";
import { ScatterChart } from "../charts/scatter.js";
import { StackBar } from "../charts/stack.js";
import { Timeline } from "../charts/timeline.js";
import { droppedFor } from "../config.js";
import { useDerivation } from "../derivation.js";
import { html, useMemo, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { change, setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";
import { Compared } from "../compare.js";
import { ServeForm } from "./serve_form.js";

const LIVE = ["answer", "time", "memory", "roofline", "mesh"];
const PANELS = [...LIVE, "batches", "frontier", "timeline"];

/** The request of the tab's fields. */
export function serveRequest(fields, dropped, panels, extra = {}) {
  return { view: /** @type {const} */ ("serve"), fields, dropped, panels, ...extra };
}

export function ServeTab({ state }) {
  const fields = state.fields.serve;
  const dropped = droppedFor(state, fields);
  const [moved, setMoved] = useState(null);
  const request = moved
    ? serveRequest(moved, dropped, LIVE, { brief: true })
    : serveRequest(fields, dropped, PANELS);
  const answer = useAnswer(request);
  const { answer: said, time, memory, roofline, mesh, timeline, frontier, batches } = answer.panels;
  const [open, drawer] = useDerivation("serve", fields, dropped);
  const rests = !moved && said && { ...said, sizes: { ...said.sizes, rests: true } };
  // while something moves, the plan that is shown stays
  const drag = (changes) => setMoved((old) => ({ ...fields, ...(old ? kept(old) : said?.settings || {}), ...changes }));
  const set = (changes) => { setMoved(null); setFields(changes); };
  const fits = Boolean(said && said.feasible);
  return html`<${Deriving.Provider} value=${open}>
    <${ServeForm} fields=${fields} said=${rests || said} error=${answer.error} dropped=${state.dropped} drag=${drag} set=${set} />
    <${AnswerArea} answer=${answer} working=${`Searching the configurations of ${fields.model} on ${fields.on}`} toolbar=${html`<${Toolbar} tab="serve" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said?.sentence} feasible=${!said || (said.feasible && said.meets)} chip=${said && { label: "Configuration", text: said.config, about: `${said.engine}, ${said.formats}` }} />
      ${(!said || fits) && html`<${Figures} figures=${said?.figures} expect=${6} />`}
      ${advised(said) && html`<${Advice} text=${advised(said)} />`}
      ${said && html`<${Notes} notes=${[dearerNote(said), ...said.notes].filter(Boolean)} />`}
      ${!said && html`<${Skeleton} height=${null} className="skeleton-advice" />`}
      ${fits && said.simulate && html`<p class="next"><button type="button" class="button" onClick=${() => simulate(said.simulate)}>Run it under traffic</button>
        <small class="dim">${said.error}</small></p>`}
      <${Compared} state=${state} />
      ${fits && said.replica && html`<section class="full-replica"><h2>${said.replica.title}</h2><p class="advice">${said.replica.about}</p>
        <${Figures} figures=${said.replica.figures} /></section>`}
      ${(!said || fits || moved) && html`<div class="cards">
        <${Card} title="Over the batch" name="batches" data=${batches} about=${batches?.about} height=${300} wide>
          ${batches && html`<${Batches} batches=${batches} said=${said} time=${time} onPick=${(batch) => set({ plan: said.settings.plan, batch: String(batch) })} />`}</${Card}>
        <${Card} title="Where the time goes" name="time" data=${time} about="Exposed seconds of one chip; a bar opens its kernels and moves." height=${320} wide>
          ${time && html`<div class="side-by-side">${time.bars.map((bar) => html`<div class="bar-block" key=${bar.name}><h3>${bar.title} <${Num} of=${bar.total} /></h3><p class="about">${bar.about}</p>
            <${StackBar} parts=${bar.parts} total=${bar.total} label=${bar.title} /></div>`)}</div>`}</${Card}>
        <${Card} title="Memory of a chip" name="memory" data=${memory} about=${memory && memory.used && `${memory.used.text} of ${memory.limit.text}`} height=${320}>
          ${memory && memory.parts.length > 0 && html`<${StackBar} parts=${memory.parts} total=${memory.used} limit=${memory.limit} label="Memory" /><${Fits} memory=${memory} />`}</${Card}>
        <${Card} title="Roofline" name="roofline" data=${roofline} about=${roofline?.chip && `Kernels of a decode step and of a prompt on ${roofline.chip}`} height=${320}>
          ${roofline && html`<${RooflineChart} roofs=${roofline.roofs} points=${roofline.points} />`}</${Card}>
        <${Card} title="Tokens/s per user against per chip" name="frontier" data=${frontier} about=${frontier?.about} height=${340} wide>
          ${frontier && frontier.points.length > 0 && html`<${Frontier} frontier=${frontier} said=${said} moving=${Boolean(moved)} onPick=${(point) => point.fields && set(point.fields)} />`}</${Card}>
        <${Card} title="Configurations" name="configs" data=${said && said.configs} about=${said && configsAbout(said)} height=${160} wide>
          ${said && html`<${Configs} configs=${said.configs} dearer=${said.dearer} onPick=${(one) => set(one.fields)} />`}</${Card}>
        <${Card} title="Mesh of a replica" name="mesh" data=${mesh} about=${mesh && mesh.copies > 1 ? `one of ${mesh.copies} replicas` : ""} height=${180} wide>
          ${mesh && mesh.slice && html`<${MeshChart} mesh=${mesh} />`}</${Card}>
        <${Card} title="A prompt and a decode step over time" name="timeline" data=${timeline} about=${timeline?.about} height=${220} wide>
          ${timeline && timeline.tracks.length > 0 && html`<${Timeline} timeline=${timeline} />`}</${Card}>
      </div>`}
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}

const kept = ({ on, plan, batch, engine }) => ({ on, plan, batch, ...(engine ? { engine } : {}) });

function advised(said) {
  if (!said || !said.feasible) return "";
  return [said.advice, said.better].filter(Boolean).join(" ");
}

/** Why the recommended configuration is not the cheapest of those listed. */
const dearerNote = (said) => said.dearer && `Others that are listed cost less: ${said.dearer}.`;

function simulate(fields) {
  change((old) => ({ ...old, tab: "simulate", view: {}, fields: { ...old.fields, simulate: { requests: "2000", ...fields } } }));
}

/** A decode step over its batch; while the slider moves, the mark moves along. */
function Batches({ batches, said, time, onPick }) {
  const step = time?.bars?.find((bar) => bar.name === "decode")?.total.value;
  const batch = said?.sizes?.batch;
  const marks = useMemo(() => (batch && step ? [{ x: batch, y: step, text: `batch ${batch.toLocaleString("en-US")}` }, ...batches.marks.slice(1)] : batches.marks), [batches, batch, step]);
  // what bounds the step at the batch that is shown, which a slider may be moving
  const here = batches.crossings.findLastIndex((one) => !one.formula && (batch ? one.number.value <= batch : one.here));
  if (!batches.series.length) return html`<p class="about">One output token has no decode step.</p>`;
  return html`<${Lines} series=${batches.series} x=${batches.x} y=${batches.y} rules=${batches.rules} marks=${marks} onPick=${(at) => onPick(Math.max(1, Math.round(at)))}
      height=${320} label="A decode step over its batch" />
    <ul class="crossings">${batches.crossings.map((one, at) => html`<li key=${at} class=${at === here ? "here" : ""} aria-current=${at === here ? "true" : null}>
      ${one.formula ? html`<${Num} of=${one.number} /> ${one.text} <code>${one.formula}</code>` : one.text}</li>`)}</ul>`;
}

function Frontier({ frontier, said, moving, onPick }) {
  const points = useMemo(() => {
    if (!moving || !said?.point || !said.point.x) return frontier.points;
    const others = frontier.points.map((one) => (one.chosen ? { ...one, chosen: false } : one));
    return [...others, { ...said.point, name: `batch ${said.sizes.batch}`, role: "ink", chosen: true, about: said.plan }];
  }, [frontier, said, moving]);
  return html`<${ScatterChart} points=${points} x=${frontier.x} y=${frontier.y} frontier=${frontier.frontier} rules=${frontier.rules} onPick=${onPick} height=${360} />`;
}

function Fits({ memory }) {
  return html`<dl class="facts">${memory.fits.map((one) => html`<div key=${one.label}><dt>${one.label}</dt><dd><${Num} of=${one.number} /> <small>${one.about}</small></dd></div>`)}
    ${memory.rest.map((one) => html`<div key=${one.name}><dt>${one.name}</dt><dd><${Num} of=${one.shown} /></dd></div>`)}</dl>`;
}

function configsAbout(said) {
  const judged = `The best of ${(said.searched || 0).toLocaleString("en-US")} judged; each opens.`;
  return said.replica ? `${judged} Batch, TTFT, TPOT and tokens/s are those of a replica at its full load; chips and $/h those of the fleet.` : judged;
}

function Configs({ configs, dearer, onPick }) {
  const met = configs.some((one) => !one.meets);
  const fleet = configs.some((one) => one.hour.value !== null);
  const numbers = [["batch", "batch"], ["TTFT", "ttft"], ["TPOT", "tpot"], ["tokens/s per chip", "tokens"], ["chips", "chips"], fleet ? ["$/h", "hour"] : ["$/Mtok", "cost"]];
  return html`<div class="scroll lines" tabindex="0" role="region" aria-label="Configurations"><table class="configs">
    <thead><tr><th scope="col" class="right">#</th><th scope="col">plan</th><th scope="col">slice</th><th scope="col">formats</th><th scope="col">engine</th>
      ${numbers.map(([title]) => html`<th key=${title} scope="col" class="right">${title}</th>`)}
      <th scope="col">bound by</th>${met && html`<th scope="col">SLO</th>`}</tr></thead>
    <tbody>${configs.map((one, at) => html`<tr key=${at} class=${at ? "" : "chosen-row"}>
      <td class="right">${at + 1}</td><th scope="row"><button type="button" class="link plan-link" onClick=${() => onPick(one)} aria-label=${`Show ${one.plan} on ${one.slice}, batch ${one.batch.text}`}>${one.plan}</button>${at === 0 && one.meets ? html` <small>recommended</small>` : ""}</th>
      <td>${one.slice}</td><td>${one.formats}</td><td>${one.engine}</td>
      ${numbers.map(([title, name]) => html`<td key=${title} class="right"><${Num} of=${one[name]} /></td>`)}
      <td>${one.bound_by}</td>${met && html`<td>${one.meets ? "met" : "missed"}</td>`}</tr>`)}</tbody></table></div>
    ${dearer && html`<p class="about">${dearer}.</p>`}`;
}
