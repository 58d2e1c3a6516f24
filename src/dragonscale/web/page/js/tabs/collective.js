// One collective over mesh axes of a slice: whether bytes or hops decide, and its time over sizes.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Lines } from "../charts/lines.js";
import { Combobox } from "../combobox.js";
import { useDerivation } from "../derivation.js";
import { ChoiceField, Form, Group, SliderField, SwitchField, TextField } from "../form.js";
import { html, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { AsSheet } from "../sheet.js";
import { Toolbar } from "../toolbar.js";
import { WhatIf } from "../whatif.js";

const KINDS = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "send", "gather"];
const STOPS = Array.from({ length: 43 }, (_, at) => ({ bytes: 10 ** (3 + Math.floor(at / 6)) * [1, 1.5, 2, 3, 5, 7.5][at % 6] }));
/** @type {Array<[number, string]>} */
const UNITS = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const typed = (bytes) => { const [size, unit] = UNITS.find(([one]) => bytes >= one); return `${Number((bytes / size).toPrecision(3))}${unit}`; };

function Tiers({ tiers }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Tiers of switches"><table>
    <thead><tr><th scope="col">tier</th>${["children", "link of each", "time", "into its switches", "out of them"].map((one) => html`<th key=${one} scope="col" class="right">${one}</th>`)}</tr></thead>
    <tbody>${tiers.map((one) => html`<tr key=${one.tier}><th scope="row">${one.tier}</th>${["children", "link", "seconds", "into", "out"].map((name) => html`<td key=${name} class="right"><${Num} of=${one[name]} /></td>`)}</tr>`)}</tbody></table></div>`;
}

/** The question, on the left, and its answer. */
export function CollectiveQuestion({ fields, set, catalogue, chooser, dropped }) {
  const [drag, setDrag] = useState(null);
  const answer = useAnswer({ view: "collective", fields: { ...fields, ...drag }, panels: ["answer", "curve"], ...(drag ? { brief: true } : {}) });
  const { answer: said, curve } = answer.panels;
  const [open, drawer] = useDerivation("collective", fields, dropped);
  const put = (changes) => { setDrag(null); set(changes); };
  const message = fields.kind === "send" || fields.kind === "gather";
  return html`<${Deriving.Provider} value=${open}>
    <${Form} summary=${`${fields.kind} of ${fields.size} on ${fields.on}`} error=${answer.error}>
      <${Group} title="Collective">${chooser}
        <${ChoiceField} label="Kind" name="kind" value=${fields.kind} choices=${KINDS.map((one) => ({ value: one, text: one.replace("_", "-") }))} onChange=${(kind) => put({ kind })} />
        <${SliderField} label="Bytes of the whole array" name="size" stops=${STOPS.map((one) => one.bytes)} value=${(said && said.bytes) || 1e6} text=${(drag && drag.size) || fields.size}
          onDrag=${(bytes) => setDrag({ size: typed(bytes) })} onChange=${(bytes) => put({ size: typed(bytes) })} onType=${(size) => put({ size })} />
        ${!message && html`<${TextField} label="Over the axes" name="axis" value=${fields.axis} placeholder="all of them" onChange=${(axis) => put({ axis })}
          about=${said && Object.keys(said.mesh).length ? `The mesh has ${Object.entries(said.mesh).map(([name, size]) => `${name}=${size}`).join(", ")}.` : ""} />`}
        ${fields.kind === "send" && html`<${TextField} label="From the chip" name="from_chip" value=${fields.from_chip} placeholder="0,0" onChange=${(from_chip) => put({ from_chip })} />`}
        ${message && html`<${TextField} label="To the chip" name="to_chip" value=${fields.to_chip} placeholder="3,3" onChange=${(to_chip) => put({ to_chip })} />`}
        ${fields.kind === "all_to_all" && html`<${TextField} label="Experts that a token picks" name="picks" value=${fields.picks} placeholder="all pieces are full" onChange=${(picks) => put({ picks })} />`}</${Group}>
      <${Group} title="Chips">
        <${Combobox} label="Slice" name="on" value=${fields.on} choices=${catalogue.chips.map((one) => ({ value: one.name, about: one.title }))} onChange=${(on) => put({ on, set: "" })} />
        <${TextField} label="Mesh axes" name="mesh" value=${fields.mesh} placeholder="the slice's own" onChange=${(mesh) => put({ mesh })} />
        <${SwitchField} label="Rings in one direction only" name="one_way" value=${fields.one_way} onChange=${(one_way) => put({ one_way })} />
        <${SwitchField} label="Switches add (SHARP, NVLS)" name="in_network" value=${fields.in_network} onChange=${(in_network) => put({ in_network })} />
        <${WhatIf} chip=${fields.on} set=${fields.set} onDrag=${(text) => setDrag({ set: text })} onChange=${(text) => put({ set: text })} /></${Group}>
    </${Form}>
    <${AnswerArea} answer=${answer} toolbar=${html`<${Toolbar} tab="collective" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said && said.sentence} advice=${said && said.advice} />
      <${Figures} figures=${said && said.figures} />
      <${Card} title="Time over bytes" name="curve" data=${curve} height=${380} wide about="Below the crossing the hops decide, above it the bytes.">
        ${() => (curve.series.length ? html`<${Lines} series=${curve.series} x=${curve.x} y=${curve.y} rules=${curve.rules} marks=${curve.marks} height=${360}
          onPick=${(bytes) => put({ size: typed(bytes) })} />` : html`<p class="empty">One message has no curve.</p>`)}</${Card}>
      ${said && said.tiers.length > 0 && html`<${Card} title="Tiers" name="tiers" data=${said.tiers} wide>${() => html`<${Tiers} tiers=${said.tiers} />`}</${Card}>`}
      <${Notes} notes=${said ? said.notes : []} />
      <${AsSheet} view="collective" fields=${fields} />
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}
