// Chips: all of them in a table, one with every fact and its source, some side by side, and a slice drawn.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Catalogue } from "../catalogue.js";
import { RooflineChart } from "../charts/roofline.js";
import { ScatterChart } from "../charts/scatter.js";
import { TopologyChart } from "../charts/topology.js";
import { Combobox } from "../combobox.js";
import { DataTable } from "../datatable.js";
import { useDerivation } from "../derivation.js";
import { Form, Group, Segmented, TextField } from "../form.js";
import { html, useContext, useMemo, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { AsSheet } from "../sheet.js";
import { setFields, setView } from "../state.js";
import { Toolbar } from "../toolbar.js";
import { WhatIf } from "../whatif.js";

const MOST = 4;
const LANDMARKS = ["v2", "v4", "v5e", "v5p", "v6e", "tpu7x", "a100", "h100", "b200", "mi300x", "rtx4090"];
const listed = (text) => (text || "").split(",").filter(Boolean);
const plainChip = (name) => (name || "").split(":")[0].split("+")[0].split("*")[0];

/** `h100:8` with changes after its chip, as the command line takes it. */
function withChanges(name, set) {
  if (!name || !set) return name;
  const at = name.search(/[:*]/);
  const [chip, rest] = at < 0 ? [name, ""] : [name.slice(0, at), name.slice(at)];
  return `${chip}${listed(set).map((one) => `+${one}`).join("")}${rest}`;
}

function Every({ table, scatter, beside, onOpen, onBeside }) {
  const [kind, setKind] = useState("");
  const [picture, setPicture] = useState(0);
  const columns = useMemo(() => table && [
    { name: "name", title: "chip", value: (row) => row.name, draw: (row) => html`<button type="button" class="link" onClick=${() => onOpen(row.name)}>${row.name}</button> <small class="muted">${row.title}</small>` },
    { name: "beside", title: "compare", value: (row) => (beside.includes(row.name) ? 0 : 1), draw: (row) => html`<input type="checkbox" aria-label=${`Compare ${row.name}`} checked=${beside.includes(row.name)}
      disabled=${!beside.includes(row.name) && beside.length >= MOST} onChange=${(event) => onBeside(row.name, event.currentTarget.checked)} />` },
    { name: "released", title: "released", wide: true, value: (row) => row.released, draw: (row) => row.released },
    ...table.columns,
  ], [table, beside.join()]);
  const rows = useMemo(() => table && table.rows.filter((row) => !kind || row.kind === kind), [table, kind]);
  const drawn = scatter && scatter.pictures[picture];
  const points = useMemo(() => drawn && drawn.points.map((one) => ({ ...one, chosen: (beside.length ? beside : LANDMARKS).includes(one.name) })), [drawn, beside.join()]);
  return html`<${Card} title="All chips" name="chips" data=${table} wide height=${600} about="At the datasheet's rates; a click on a heading sorts, on a number says where it comes from."
      aside=${html`<${Segmented} label="Kind" name="kind" value=${kind} onChange=${setKind} choices=${[{ value: "", text: "all" }, { value: "tpu", text: "TPU" }, { value: "gpu", text: "GPU" }]} />`}>
      ${() => html`<${DataTable} label="Table of all chips" columns=${columns} rows=${rows} chosen=${beside} />`}</${Card}>
    <${Card} title=${drawn ? drawn.title : "Chips against each other"} name="scatter" data=${scatter} wide height=${380} about=${drawn && drawn.about}
      aside=${scatter && html`<select class="inline-choice" aria-label="What is drawn" onChange=${(event) => setPicture(Number(event.currentTarget.value))}>
        ${scatter.pictures.map((one, at) => html`<option key=${one.title} value=${at} selected=${at === picture}>${one.title}</option>`)}</select>`}>
      ${() => html`<${ScatterChart} points=${points} x=${drawn.x} y=${drawn.y} height=${360} onPick=${(point) => onOpen(point.name)} />`}</${Card}>`;
}

function Facts({ chip }) {
  return html`<div class="fact-groups">${chip.groups.map((group) => html`<section key=${group.title}><h3>${group.title}</h3>
    <div class="scroll" tabindex="0" role="region" aria-label=${group.title}><table><thead><tr><th scope="col">what</th><th scope="col" class="right">value</th><th scope="col">source</th><th scope="col">other sources say</th></tr></thead>
    <tbody>${group.facts.map((fact) => html`<tr key=${fact.path}><th scope="row"><code>${fact.path}</code> ${fact.about && html`<small class="muted">${fact.about}</small>`}</th>
      <td class="right"><${Num} of=${fact.number} /></td><td><abbr title=${fact.source_text}>${fact.source}</abbr></td>
      <td>${fact.also.map((one, at) => html`<span key=${at} class="reading"><${Num} of=${one.number} /> <abbr title=${one.source_text}>${one.source}</abbr>${one.note && html` <small class="muted">${one.note}</small>`}</span>`)}</td></tr>`)}</tbody></table></div></section>`)}
    <section><h3>Sources</h3><dl class="sources">${chip.sources.map((one) => html`<div key=${one.name}><dt>${one.name}</dt><dd>${one.text}</dd></div>`)}</dl></section></div>`;
}

function Beside({ beside, onDrop }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of chips side by side"><table class="beside">
    <thead><tr><th scope="col"><span class="hush">what</span></th>${beside.chips.map((chip, at) => html`<th key=${chip.name} scope="col" class="right">${chip.name}
      <button type="button" class="quiet small" aria-label=${`Leave ${chip.name} out`} onClick=${() => onDrop(at)}>×</button></th>`)}</tr></thead>
    <tbody>${beside.rows.map((row) => html`<tr key=${row.title}><th scope="row">${row.title}</th>${row.cells.map((cell, at) => html`<td key=${at} class=${`right ${cell.differs ? "differs" : ""}`}>
      <${Num} of=${cell.number} />${cell.ratio && html` <small class="muted">${cell.ratio}</small>`}</td>`)}</tr>`)}</tbody></table></div>
    <${RooflineChart} roofs=${beside.roofs} points=${[]} height=${300} label="Roofs side by side" />`;
}

function Slice({ slice }) {
  return html`<p class="advice">${slice.sentence}</p><${TopologyChart} slice=${slice} /><${Figures} figures=${slice.figures} />
    ${slice.axes.length + slice.tiers.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Axes or tiers"><table>${slice.axes.length ? html`<thead><tr><th scope="col">axis</th>
      ${["chips", "", "out of a chip", "farthest hops", "bisection, one way"].map((one) => html`<th key=${one} scope="col" class="right">${one || html`<span class="hush">ring or line</span>`}</th>`)}</tr></thead>
      <tbody>${slice.axes.map((one) => html`<tr key=${one.axis}><th scope="row">${one.axis}</th><td class="right">${one.size}</td><td class="right">${one.wraps ? "ring" : "line"}</td><td class="right"><${Num} of=${one.out} /></td>
        <td class="right"><${Num} of=${one.hops} /></td><td class="right"><${Num} of=${one.bisection} /></td></tr>`)}</tbody>`
    : html`<thead><tr><th scope="col">tier</th>${["groups", "children", "out of a child", "of a chip", "bisection", "switches"].map((one) => html`<th key=${one} scope="col" class="right">${one}</th>`)}</tr></thead>
      <tbody>${slice.tiers.map((one) => html`<tr key=${one.tier}><th scope="row">${one.tier}</th><td class="right">${one.groups}</td><td class="right">${one.children}</td>
        ${["child", "chip", "bisection", "switches"].map((name) => html`<td key=${name} class="right"><${Num} of=${one[name]} /></td>`)}</tr>`)}</tbody>`}</table></div>`}<${Notes} notes=${slice.notes || []} />`;
}

export function ChipsTab({ state }) {
  const catalogue = useContext(Catalogue);
  const { name = "" } = state.fields.chips;
  const { set = "", beside: together = "" } = state.view;
  const beside = listed(together);
  const [drag, setDrag] = useState(null);
  const changes = drag ?? set;
  const chip = plainChip(name);
  const sliced = /[:*]/.test(name);
  const panels = [...(chip ? ["chip", "roof"] : ["table", "scatter"]), ...(sliced ? ["slice"] : []), ...(beside.length > 1 ? ["beside"] : [])];
  const answer = useAnswer({ view: "chips", fields: chip ? { name: chip } : {}, panels, ...(chip && changes ? { set: changes } : {}),
    ...(sliced ? { slice: name } : {}), ...(beside.length > 1 ? { beside: together } : {}), ...(drag != null ? { brief: true } : {}) });
  const { table, scatter, chip: one, roof, slice, beside: compared } = answer.panels;
  const asked = { name: withChanges(name, set) };
  const [open, drawer] = useDerivation("chips", name ? asked : {}, state.dropped);
  const opened = (next) => { setDrag(null); setView({ set: "" }); setFields({ name: next }); };
  const toggle = (which, on) => setView({ beside: (on ? [...beside, which] : beside.filter((other) => other !== which)).slice(0, MOST).join(",") });
  return html`<${Deriving.Provider} value=${open}>
    <${Form} summary=${name || "all chips"} error=${answer.error}>
      <${Group} title="Chip">
        <${Combobox} label="Chip or slice" name="on" value=${name} choices=${catalogue.chips.map((two) => ({ value: two.name, about: two.title }))} onChange=${opened} placeholder="all chips"
          about="A chip (h100) or a slice of it (h100:64, v5p:8x16x16)." />
        ${name && html`<button type="button" class="quiet" onClick=${() => opened("")}>All chips</button>`}
        ${chip && html`<${WhatIf} chip=${chip} set=${set} open=${true} onDrag=${setDrag} onChange=${(text) => { setDrag(null); setView({ set: text }); }} />`}</${Group}>
      <${Group} title="Side by side" aside=${beside.join(", ")}>
        <${TextField} label="Up to four chips" name="beside" value=${together} placeholder="h100,v5p,b200+hbm=2x" onChange=${(text) => setView({ beside: text.replace(/\s/g, "") })} />
        ${chip && !beside.includes(asked.name.split(":")[0]) && beside.length < MOST && html`<button type="button" class="quiet" onClick=${() => toggle(asked.name.split(":")[0], true)}>Add ${asked.name.split(":")[0]}</button>`}</${Group}>
    </${Form}>
    <${AnswerArea} answer=${answer} toolbar=${html`<${Toolbar} tab="chips" fields=${asked} dropped=${state.dropped} />`}>
      ${!chip && html`<${Sentence} text=${table && `${table.rows ? table.rows.length : 0} chips by name: what they compute, hold and send, and what they cost.`} advice="Open one for every number with its source, or tick up to four to see them side by side." />`}
      ${beside.length > 1 && html`<${Card} title="Side by side" name="beside" data=${compared} wide height=${400}>${() => html`<${Beside} beside=${compared} onDrop=${(at) => setView({ beside: beside.filter((_, place) => place !== at).join(",") })} />`}</${Card}>`}
      ${!chip ? html`<${Every} table=${table} scatter=${scatter} beside=${beside} onOpen=${opened} onBeside=${toggle} />` : html`
        <${Sentence} text=${one && one.sentence} advice=${one && `${one.network}; ${one.largest}.`} />
        <${Figures} figures=${one && one.figures} />
        ${sliced && html`<${Card} title=${`The slice ${name}`} name="slice" data=${slice} wide height=${300}>${() => html`<${Slice} slice=${slice} />`}</${Card}>`}
        <${Card} title="Roofs by format" name="roof" data=${roof} wide height=${340} about=${roof ? html`Compute binds above <${Num} of=${roof.ridge} /> FLOPs per byte in bf16.` : ""}>
          ${() => html`<${RooflineChart} roofs=${roof.roofs} points=${roof.points} height=${320} />`}</${Card}>
        <${Card} title="Every number and where it comes from" name="facts" data=${one} wide height=${600}>${() => html`<${Facts} chip=${one} />`}</${Card}>`}
      <${AsSheet} view="chips" fields=${name ? asked : {}} />
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}
