// Up to four questions side by side. The first column is the tab's own question, live; the others say in what they differ from
// it, in the address: view.compare=on=h100:2048|on=b200:512&stack=torchtitan.

import { Catalogue } from "./catalogue.js";
import { useDerivation } from "./derivation.js";
import { Dialog } from "./dialog.js";
import { TextField } from "./form.js";
import { html, useContext, useEffect, useState } from "./html.js";
import { askOnce, useAnswer } from "./live.js";
import { Deriving, Num } from "./number.js";
import { keptCount } from "./slices.js";
import { current, setFields, setView } from "./state.js";
import { colourOf } from "./theme.js";
import { Card } from "./card.js";

const WORK = {
  train: ["model", "batch", "seq", "tokens", "documents", "price", "dtype", "skew", "capacity", "assume", "family"],
  serve: ["model", "prompt", "output", "ttft", "tpot", "itl", "e2e", "rate", "cached", "price", "assume", "family"],
};
const SOFTWARE = { train: "stack", serve: "engine" };
const MOST = 4;

/** The columns that an address holds, each as what it says beside the workload. */
export const readColumns = (text) => (text ? text.split("|").map((one) => Object.fromEntries(new URLSearchParams(one))) : []);

const writeColumns = (columns) => columns.map((one) => new URLSearchParams(Object.entries(one).filter(([, value]) => value)).toString()
  .replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/")).join("|");

/** The questions of a comparison: the tab's own, then each column on the same workload. */
export function questions(tab, fields, columns) {
  const work = Object.fromEntries((WORK[tab] || []).filter((name) => fields[name]).map((name) => [name, fields[name]]));
  return [fields, ...columns.map((one) => ({ ...work, ...(fields.on ? { on: fields.on } : {}), ...one }))]
    .map((one) => (tab === "train" && one.plan ? { ...one, alone: true } : one));
}

function save(columns) {
  setView({ compare: writeColumns(columns.slice(0, MOST - 1)) }, false);
}

/** Put a column beside the tab's question; without one, the question as it is now. */
export function addColumn(tab, fields, column = null) {
  const own = column || Object.fromEntries(Object.entries(fields)
    .filter(([name, value]) => !WORK[tab].includes(name) && name !== "alone" && typeof value !== "boolean" && value));
  save([...readColumns(current().view.compare), own]);
}

/** What can be put beside a question: itself, other chips of comparable slices. */
export function CompareWith({ tab, fields, dropped, onClose }) {
  const [found, set] = useState(null);
  useEffect(() => {
    const controller = new AbortController();
    askOnce({ view: "compare", of: tab, fields, dropped, panels: ["suggest"] }, controller.signal)
      .then(({ panels, error }) => { if (!controller.signal.aborted) set(error ? { error } : panels.suggest); });
    return () => controller.abort();
  }, []);
  const full = readColumns(current().view.compare).length >= MOST - 1;
  const take = (column) => { addColumn(tab, fields, column); onClose(); };
  return html`<${Dialog} title="Compare with" onClose=${onClose}>
    ${full ? html`<p>Four columns are shown already; take one out first.</p>` : html`
      <p><button type="button" class="button" onClick=${() => take(null)}>This question as it is now</button>
        <span class="muted"> Then change the form: the first column follows it.</span></p>
      <h3>The same work on other chips, with the best plan there</h3>
      ${!found && html`<p class="muted" role="status">Looking for comparable slices …</p>`}
      ${found && found.error && html`<p class="error">${found.error.text}</p>`}
      <ul class="suggested">${found && (found.slices || []).map((one) => html`<li key=${one.on}>
        <button type="button" class="button" onClick=${() => take({ on: one.on })}>${one.on}</button> <span class="muted">${one.chip}, ${one.why}</span></li>`)}</ul>`}
  </${Dialog}>`;
}

/** The comparison of a tab, where its address holds one. */
export function Compared({ state, tab = state.tab, fields = state.fields[tab] }) {
  const columns = readColumns(state.view.compare);
  if (!columns.length || !WORK[tab]) return null;
  return html`<${Columns} tab=${tab} fields=${fields} columns=${columns} dropped=${state.dropped} />`;
}

function Columns({ tab, fields, columns, dropped }) {
  const asked = questions(tab, fields, columns);
  const answer = useAnswer({ view: "compare", of: tab, columns: asked, dropped, panels: ["sides"] });
  const [open, drawer] = useDerivation("compare", {}, dropped, { kind: tab, columns: asked });
  const { sides } = answer.panels;
  const edit = (place) => (changes) => {
    if (place === 0) setFields(changes);
    else save(columns.map((one, at) => (at === place - 1 ? { ...one, ...changes } : one)));
  };
  const remove = (place) => () => save(columns.filter((_, at) => at !== place - 1));
  return html`<${Deriving.Provider} value=${open}>
    <${Card} title="Side by side" name="compare" data=${sides || (answer.error ? { error: answer.error.text } : null)} wide height=${400} about=${sides ? sides.workload : ""}
      aside=${html`<button type="button" class="quiet" onClick=${() => setView({ compare: "" }, false)}>Close the comparison</button>`}>
      ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
      ${sides && html`<div class=${answer.busy ? "compared busy" : "compared"} aria-busy=${answer.busy}>
        <${Figures} sides=${sides} tab=${tab} asked=${asked} edit=${edit} remove=${remove} />
        <ul class="said-differences">${sides.sentences.map((one) => html`<li key=${one}>${one}</li>`)}</ul>
        <${Bars} title=${`Time: ${sides.time.what}`} of=${sides.time} />
        <${Bars} title="Memory of the fullest chip" of=${sides.memory} />
        <${Settings} sides=${sides} />
        ${sides.notes.map((one) => html`<p class="muted" key=${one}>${one}</p>`)}</div>`}
    </${Card}>${drawer}</${Deriving.Provider}>`;
}

function Head({ side, place, tab, asked, edit, remove }) {
  const catalogue = useContext(Catalogue);
  const [editing, setEditing] = useState(false);
  const software = SOFTWARE[tab];
  return html`<th scope="col"><div class="column-head">
    <span class="column-key">${side.key}</span> <strong>${side.slice || asked.on}</strong>
    <span class="muted">${side.plan} · ${side.software}</span>
    ${!side.feasible && html`<span class="bad">cannot run</span>`}
    <span class="column-tools">
      <button type="button" class="quiet" aria-expanded=${String(editing)} onClick=${() => setEditing(!editing)}>Change</button>
      ${place > 0 && html`<button type="button" class="quiet" aria-label=${`Remove ${side.key}`} onClick=${remove(place)}>Remove</button>`}</span>
    ${editing && html`<div class="column-form">
      <${TextField} label="Chips" value=${asked.on || ""} list=${catalogue.slices} onChange=${(on) => edit(place)({ on: keptCount(catalogue.chips, tab, asked.on, on)?.on || on })} />
      <${TextField} label="Plan" value=${asked.plan || ""} placeholder="best" onChange=${(value) => edit(place)({ plan: value })} />
      <${TextField} label=${tab === "train" ? "Stack" : "Engine"} value=${asked[software] || ""} placeholder="auto"
        list=${tab === "train" ? catalogue.stacks : catalogue.engines} onChange=${(value) => edit(place)({ [software]: value })} /></div>`}
  </div></th>`;
}

const SIGNS = { better: "✓", worse: "✕", same: "=" };

function Figures({ sides, tab, asked, edit, remove }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Figures side by side"><table class="compare-table">
    <thead><tr><th scope="col"><span class="sr-only">figure</span></th>${sides.sides.map((side, place) => html`<${Head} key=${place} side=${side} place=${place} tab=${tab}
      asked=${asked[place] || {}} edit=${edit} remove=${remove} />`)}</tr></thead>
    <tbody>
      ${sides.rows.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th>${row.cells.map((cell, at) => html`<td key=${at}>
        <span class="compare-number"><${Num} of=${cell.number} /></span> ${cell.band && html`<span class="muted">${cell.band}</span>`}
        ${cell.text && html`<span class=${`mark mark-${cell.mark}`}><span aria-hidden="true">${SIGNS[cell.mark]}</span> ${cell.text}</span>`}</td>`)}</tr>`)}
      <tr><th scope="row">bound by</th>${sides.sides.map((side) => html`<td key=${side.key}>${side.bound_by}</td>`)}</tr>
      ${sides.sides.some((side) => side.problems.length) && html`<tr><th scope="row">${tab === "train" ? "cannot run" : "misses"}</th>
        ${sides.sides.map((side) => html`<td key=${side.key}>${side.problems.join("; ")}</td>`)}</tr>`}
    </tbody></table></div>`;
}

function Bars({ title, of }) {
  const names = [...new Map(of.bars.flatMap((bar) => bar.parts.map((part) => [part.name, part.role])))];
  if (!of.scale) return null;
  return html`<section class="compare-bars"><h3>${title}</h3>
    ${of.bars.map((bar) => html`<div class="compare-bar" key=${bar.key}>
      <span class="column-key">${bar.key}</span>
      <div class="compare-track" role="img" aria-label=${`${bar.key}: ${bar.parts.map((part) => `${part.name} ${part.shown.text}`).join(", ")}`}>
        ${bar.parts.map((part) => html`<span key=${part.name} title=${`${part.name} ${part.shown.text}`}
          style=${{ width: `${(100 * part.shown.value) / of.scale}%`, background: colourOf(part.role) }}></span>`)}
        ${bar.limit > 0 && html`<i class="compare-limit" style=${{ left: `${(100 * bar.limit) / of.scale}%` }} title="what the chip has"></i>`}
      </div><span class="compare-total">${bar.total.text}</span></div>`)}
    <ul class="compare-legend">${names.map(([name, role]) => html`<li key=${name}><span class="swatch" style=${{ background: colourOf(role) }} aria-hidden="true"></span>${name}</li>`)}</ul>
  </section>`;
}

function Settings({ sides }) {
  if (!sides.settings.length) return null;
  return html`<details><summary>Settings that differ (${sides.settings.length})</summary><div class="scroll" tabindex="0" role="group" aria-label="Settings that differ"><table class="compare-table">
    <thead><tr><th scope="col">setting</th>${sides.sides.map((side) => html`<th scope="col" key=${side.key}>${side.key}</th>`)}</tr></thead>
    <tbody>${sides.settings.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th>${row.cells.map((cell, at) => html`<td key=${at}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div></details>`;
}
