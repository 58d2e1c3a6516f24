// A sharded einsum: what each chip holds, the collectives it needs forward and backward, and every way to do it, drawn.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { MeshPicker, Stages } from "../charts/arrays.js";
import { Combobox } from "../combobox.js";
import { useDerivation } from "../derivation.js";
import { Form, Group, TextField } from "../form.js";
import { html, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { AsSheet } from "../sheet.js";
import { colourOf } from "../theme.js";
import { Toolbar } from "../toolbar.js";
import { WhatIf } from "../whatif.js";
import { ExpressionField, Letters } from "./notation.js";

const SQUARE = "I=8192,J=8192,K=8192";
const MLP = "B=32768,D=8192,F=28672";
const EXAMPLES = [
  { text: "case 1: the summed dim is whole", fields: { expression: "A[I_X, J] @ B[J, K_Y] -> C[I_X, K_Y]", sizes: SQUARE } },
  { text: "case 2: one operand is split over the summed dim", fields: { expression: "A[I, J_X] @ B[J, K] -> C[I, K]", sizes: SQUARE } },
  { text: "case 3: both are split over the summed dim", fields: { expression: "A[I, J_X] @ B[J_X, K] -> C[I, K]", sizes: SQUARE } },
  { text: "case 4: both are split over the same axis elsewhere", fields: { expression: "A[I_X, J] @ B[J, K_X] -> C[I, K_X]", sizes: SQUARE } },
  { text: "MLP, data parallel", fields: { expression: "In[B_X, D] · W1[D, F] · W2[F, D] -> Out[B_X, D]", sizes: MLP } },
  { text: "MLP, FSDP", fields: { expression: "In[B_X, D] · W1[D_X, F] · W2[F, D_X] -> Out[B_X, D]", sizes: MLP } },
  { text: "MLP, tensor parallel", fields: { expression: "In[B, D_Y] · W1[D, F_Y] · W2[F_Y, D] -> Out[B, D_Y]", sizes: MLP } },
  { text: "MLP, FSDP and tensor parallel", fields: { expression: "In[B_X, D_Y] · W1[D_X, F_Y] · W2[F_Y, D_X] -> Out[B_X, D_Y]", sizes: MLP } },
  { text: "a reshard", fields: { expression: "A[I_X, J] -> A[I, J_X]", sizes: "I=8192,J=8192" } },
];

function Arrays({ line }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of what each chip holds"><table>
    <thead><tr><th scope="col">array</th><th scope="col">each chip holds</th><th scope="col" class="right">bytes</th><th scope="col" class="right">all chips</th><th scope="col" class="right">replicas</th></tr></thead>
    <tbody>${line.arrays.map((one, at) => html`<tr key=${at}><th scope="row"><code>${one.array}</code></th><td>${one.shape}</td><td class="right"><${Num} of=${one.bytes} /></td>
      <td class="right"><${Num} of=${one.total} /></td><td class="right"><${Num} of=${one.replicas} /></td></tr>`)}</tbody></table></div>`;
}

function Times({ way }) {
  const longest = Math.max(...way.times.map((one) => one.shown.value || 0)) || 1;
  return html`<ul class="times">${way.times.map((one) => html`<li key=${one.name}><span>${one.name}</span>
    <span class="drawn"><span style=${{ width: `${(100 * (one.shown.value || 0)) / longest}%`, background: colourOf(one.role) }}></span></span> <${Num} of=${one.shown} /></li>`)}</ul>`;
}

function Moves({ way }) {
  if (!way.moves.length) return html`<p class="muted">No communication.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of collectives"><table>
    <thead><tr><th scope="col">collective</th><th scope="col">from</th><th scope="col">to</th><th scope="col" class="right">array</th><th scope="col" class="right">sent by a chip</th><th scope="col" class="right">at best</th></tr></thead>
    <tbody>${way.moves.map((one, at) => html`<tr key=${at}><th scope="row">${one.collective} over ${one.axes.join(", ")} <small class="muted">${one.when}</small></th><td><code>${one.array}</code></td>
      <td><code>${one.result}</code></td><td class="right"><${Num} of=${one.bytes} /></td><td class="right"><${Num} of=${one.sent} /></td><td class="right"><${Num} of=${one.seconds} /></td></tr>`)}</tbody></table></div>`;
}

function Ways({ line, chosen, onChoose }) {
  return html`<ol class="ways" aria-label="Ways to do it, cheapest first">${line.ways.map((way, at) => html`<li key=${at} class=${at === chosen ? "way way-now" : "way"}>
    <button type="button" class="way-head" aria-pressed=${String(at === chosen)} onClick=${() => onChoose(at)}>
      <strong>${at === 0 ? "cheapest" : `way ${at + 1}`}</strong> <span>${way.moves.map((one) => `${one.collective} ${one.axes.join("")}`).join(", ") || "no communication"}</span></button>
    <p><${Num} of=${way.sent} /> sent by a chip${way.lower.value ? html`, <${Num} of=${way.lower} /> at best` : ""}${way.bound_by ? `, bound by ${way.bound_by}` : ""}</p>
    <${Times} way=${way} /></li>`)}</ol>`;
}

/** The question, on the left, and its answer. */
export function ShardQuestion({ fields, set, catalogue, chooser, dropped }) {
  const [drag, setDrag] = useState(null);
  const [chip, setChip] = useState(0);
  const [at, setAt] = useState({ key: "", pass: 0, line: 0, way: 0 });
  const answer = useAnswer({ view: "shard", fields: { ...fields, ...drag }, panels: ["notation", "answer", "passes"], ...(drag ? { brief: true } : {}) });
  const { notation, answer: said, passes } = answer.panels;
  const [open, drawer] = useDerivation("shard", fields, dropped);
  const put = (changes) => { setDrag(null); set(changes); };
  const seen = at.key === fields.expression ? at : { pass: 0, line: 0, way: 0 };
  const pass = passes && (passes.passes[seen.pass] || passes.passes[0]);
  const line = pass && (pass.lines[seen.line] || pass.lines[0]);
  const way = line && (line.ways[seen.way] || line.ways[0]);
  const look = (next) => setAt({ ...seen, ...next, key: fields.expression });
  const bad = notation && notation.wrong;
  return html`<${Deriving.Provider} value=${open}>
    <${Form} summary=${fields.expression} error=${answer.error}>
      <${Group} title="Einsum">${chooser}
        <${ExpressionField} label="Sharded einsum" value=${fields.expression} notation=${notation} examples=${EXAMPLES} onChange=${(expression, more) => put(more || { expression })} />
        <${Letters} letters=${notation ? notation.letters : []} sizes=${fields.sizes} onDrag=${(sizes) => setDrag({ sizes })} onChange=${(sizes) => put({ sizes })} /></${Group}>
      <${Group} title="Mesh">
        <${TextField} label="Mesh axes, slowest first" name="mesh" value=${fields.mesh} placeholder="X=4,Y=8" onChange=${(mesh) => put({ mesh })} />
        <${Combobox} label="Chip or slice" name="on" value=${fields.on} choices=${catalogue.chips.map((one) => ({ value: one.name, about: one.title }))} onChange=${(on) => put({ on, set: "" })}
          about="A slice, such as v5e:4x8, has as many chips as the mesh." />
        <${WhatIf} chip=${fields.on} set=${fields.set} onDrag=${(text) => setDrag({ set: text })} onChange=${(text) => put({ set: text })} /></${Group}>
    </${Form}>
    <${AnswerArea} answer=${answer} toolbar=${html`<${Toolbar} tab="shard" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said && said.sentence} />
      <${Figures} figures=${said && said.figures} expect=${5} />
      <${Card} title="Which chip holds what" name="picture" data=${!bad && way} height=${320} wide about=${line ? html`<code>${line.einsum}</code>${line.case ? `, case ${line.case}` : ", a reshard"}` : ""}
        aside=${passes && html`<${Chooser} passes=${passes} seen=${seen} look=${look} />`}>
        ${() => html`<div class="picture"><${MeshPicker} mesh=${passes.mesh} chip=${Math.min(chip, Math.max(0, passes.mesh.places.length - 1))} onPick=${setChip} />
          <${Stages} stages=${way.stages} chip=${chip} /></div>`}</${Card}>
      <${Card} title="Ways to do it, cheapest first" name="ways" data=${line} height=${200}>${() => html`<${Ways} line=${line} chosen=${line.ways.indexOf(way)} onChoose=${(next) => look({ way: next })} />`}</${Card}>
      <${Card} title="Collectives of this way" name="collectives" data=${way} height=${200}>${() => html`<${Moves} way=${way} />`}</${Card}>
      <${Card} title="What each chip holds" name="arrays" data=${line} height=${160} wide>${() => html`<${Arrays} line=${line} />`}</${Card}>
      <${Notes} notes=${said ? said.notes : []} />
      <${AsSheet} view="shard" fields=${fields} />
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}

function Chooser({ passes, seen, look }) {
  const options = passes.passes.flatMap((pass, at) => pass.lines.map((line, place) => ({ value: `${at} ${place}`, text: `${pass.name}: ${line.einsum}` })));
  const chosen = (event) => { const [pass, line] = event.currentTarget.value.split(" ").map(Number); look({ pass, line, way: 0 }); };
  return html`<select class="inline-choice" aria-label="Einsum of the forward or the backward pass" onChange=${chosen}>
    ${options.map((one) => html`<option key=${one.value} value=${one.value} selected=${one.value === `${seen.pass} ${seen.line}`}>${one.text}</option>`)}</select>`;
}
