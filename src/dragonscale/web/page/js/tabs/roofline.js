// One operation on one chip: its time at best, under the chip's roof, and where another resource takes over.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Lines } from "../charts/lines.js";
import { RooflineChart } from "../charts/roofline.js";
import { Combobox } from "../combobox.js";
import { useDerivation } from "../derivation.js";
import { ChoiceField, Form, Group, SwitchField } from "../form.js";
import { html, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { AsSheet } from "../sheet.js";
import { colourOf } from "../theme.js";
import { Toolbar } from "../toolbar.js";
import { WhatIf } from "../whatif.js";
import { ExpressionField, Letters } from "./notation.js";

const PANELS = ["notation", "answer", "roof", "curve"];
const MEMORIES = ["hbm", "vmem", "smem", "l2", "pcie", "dcn"];
const EXAMPLES = [
  { text: "MLP matmul of LLaMA-3 70B", fields: { expression: "bf16[B,8192] @ bf16[8192,28672]", sizes: "B=512" } },
  { text: "the same in int8", fields: { expression: "int8[B,8192] @ int8[8192,28672]", sizes: "B=512" } },
  { text: "weights in int8, activations in bf16", fields: { expression: "bf16[B,8192] @ int8[8192,28672]", sizes: "B=512" } },
  { text: "a square matmul", fields: { expression: "bf16[N,N2] @ bf16[N2,M]", sizes: "N=2048,N2=2048,M=2048" } },
  { text: "attention with 8 KV heads", fields: { expression: "attention(B=8, T=4096, N=64, K=8, H=128, causal)", sizes: "" } },
  { text: "softmax, elementwise", fields: { expression: "softmax(bf16[B,F])", sizes: "B=1024,F=8192" } },
  { text: "amounts: 2 TFLOP, 3 GB", fields: { expression: "2e12FLOP 3GB", sizes: "" } },
];

function Resources({ said }) {
  const longest = Math.max(...said.resources.map((one) => one.seconds.value || 0)) || 1;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Time of each resource"><table>
    <thead><tr><th scope="col">resource</th><th scope="col">formula</th><th scope="col" class="right">time</th><th scope="col"><span class="hush">drawn</span></th></tr></thead>
    <tbody>${said.resources.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td><code>${one.formula}</code></td>
      <td class="right"><${Num} of=${one.seconds} /></td>
      <td class="drawn"><span style=${{ width: `${(100 * (one.seconds.value || 0)) / longest}%`, background: colourOf(one.role) }}></span></td></tr>`)}</tbody></table></div>
    ${said.crossovers.length > 0 && html`<h3>Where that changes</h3><ul class="plain">${said.crossovers.map((one) => html`<li key=${one.variable + one.value}>
      ${one.variable} = <${Num} of=${one.number} />: ${one.below} binds below, ${one.above} above</li>`)}</ul>`}`;
}

/** The question, on the left, and its answer. */
export function RooflineQuestion({ fields, set, catalogue, chooser, dropped }) {
  const [drag, setDrag] = useState(null);
  const [over, setOver] = useState("");
  const question = { view: /** @type {const} */ ("roofline"), fields: { ...fields, ...drag }, panels: PANELS, ...(over ? { over } : {}), ...(drag ? { brief: true } : {}) };
  const answer = useAnswer(question);
  const { notation, answer: said, roof, curve } = answer.panels;
  const [open, drawer] = useDerivation("roofline", fields, dropped);
  const put = (changes) => { setDrag(null); set(changes); };
  const summary = `${fields.expression} on ${fields.on || "no chip"}`;
  return html`<${Deriving.Provider} value=${open}>
    <${Form} summary=${summary} error=${answer.error}>
      <${Group} title="Operation">${chooser}
        <${ExpressionField} label="Operation" value=${fields.expression} notation=${notation} examples=${EXAMPLES}
          onChange=${(expression, more) => { setOver(""); put(more || { expression, sizes: "" }); }} />
        <${Letters} letters=${notation ? notation.letters : []} sizes=${fields.sizes} onDrag=${(sizes) => setDrag({ sizes })} onChange=${(sizes) => put({ sizes })} /></${Group}>
      <${Group} title="Chip">
        <${Combobox} label="Chip" name="on" value=${fields.on} choices=${catalogue.chips.map((one) => ({ value: one.name, about: one.title }))} onChange=${(on) => put({ on, set: "" })} />
        <${ChoiceField} label="Operands come from" name="memory" value=${fields.memory || "hbm"} choices=${MEMORIES.map((one) => ({ value: one, text: one }))}
          onChange=${(memory) => put({ memory: memory === "hbm" ? "" : memory })} />
        <${SwitchField} label="Count only the weights' bytes" name="weights_only" value=${fields.weights_only} onChange=${(on) => put({ weights_only: on })} />
        <${WhatIf} chip=${fields.on} set=${fields.set} onDrag=${(text) => setDrag({ set: text })} onChange=${(text) => put({ set: text })} /></${Group}>
    </${Form}>
    <${AnswerArea} answer=${answer} toolbar=${html`<${Toolbar} tab="roofline" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said && said.sentence} advice=${said && said.sentence !== said.advice ? said.advice : ""} />
      <${Figures} figures=${said && said.figures} expect=${8} />
      <${Card} title="Under the roof" name="roof" data=${roof} height=${360} about=${roof && roof.ridge ? html`Compute binds above <${Num} of=${roof.ridge} /> FLOPs per byte.` : ""}>
        ${() => (roof.roofs.length ? html`<${RooflineChart} roofs=${roof.roofs} points=${roof.points} height=${340} />` : html`<p class="empty">A roof needs a chip.</p>`)}</${Card}>
      <${Card} title=${curve && curve.letter ? `Time over ${curve.letter}` : "Time over a size"} name="curve" data=${curve} height=${360}
        aside=${curve && curve.letters.length > 1 && html`<label class="inline">over <select onChange=${(event) => setOver(event.currentTarget.value)}>
          ${curve.letters.map((one) => html`<option key=${one} value=${one} selected=${one === curve.letter}>${one}</option>`)}</select></label>`}>
        ${() => (curve.series.length ? html`<${Lines} series=${curve.series} x=${curve.x} y=${curve.y} rules=${curve.rules} marks=${curve.marks} height=${340} />`
    : html`<p class="empty">${curve.letters.length ? "Give the other letters a size." : "Every size is written in the expression; a letter, such as B, would be drawn over its sizes."}</p>`)}</${Card}>
      <${Card} title="What takes the time" name="resources" data=${said} height=${120} wide>${() => html`<${Resources} said=${said} />`}</${Card}>
      <${Notes} notes=${said ? said.notes : []} />
      <${AsSheet} view="roofline" fields=${fields} />
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}
