// Models: every preset in a table; one by part, over the length of its sequences, and as a program of einsums.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Lines } from "../charts/lines.js";
import { StackBar } from "../charts/stack.js";
import { droppedFor, ModelField } from "../config.js";
import { DataTable } from "../datatable.js";
import { useDerivation } from "../derivation.js";
import { Form, Group, SliderField, SwitchField, TextField } from "../form.js";
import { html, useMemo, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving, Num } from "../number.js";
import { AsSheet } from "../sheet.js";
import { openTab, setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";

const LENGTHS = Array.from({ length: 14 }, (_, at) => 2 ** (7 + at));

function Every({ table, onOpen }) {
  const [text, setText] = useState("");
  const columns = useMemo(() => table && [
    { name: "name", title: "model", value: (row) => row.name, draw: (row) => html`<button type="button" class="link" onClick=${() => onOpen(row.name)}>${row.name}</button> ${row.moe && html`<small class="muted">MoE</small>`}` },
    { name: "family", title: "family", wide: true, value: (row) => row.family, draw: (row) => row.family },
    ...table.columns,
  ], [table]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(() => table && table.rows.filter((row) => words.every((word) => `${row.name} ${row.family} ${row.moe ? "moe" : "dense"}`.toLowerCase().includes(word))), [table, text]);
  return html`<${Card} title="Presets" name="models" data=${table} wide height=${600} about=${table ? `${rows.length} of ${table.rows.length}; a click on a heading sorts.` : ""}
    aside=${html`<input type="search" class="search" aria-label="Search the presets" placeholder="llama moe …" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />`}>
    ${() => html`<${DataTable} label="Table of presets" columns=${columns} rows=${rows} />`}</${Card}>`;
}

function Pairs({ rows, label }) {
  return html`<dl class="pairs" aria-label=${label}>${rows.map(([name, number]) => html`<div key=${name}><dt>${name}</dt><dd><${Num} of=${number} /></dd></div>`)}</dl>`;
}

function One({ model, lengths, program }) {
  const { parameters, flops } = model || {};
  return html`<${Sentence} text=${model && model.sentence} advice=${model && `${model.shape}. ${model.advice}`} />
    <div class="toolbar"><button type="button" class="button button-main" onClick=${() => openTab("train")}>Train this</button>
      <button type="button" class="button" onClick=${() => openTab("serve")}>Serve this</button></div>
    <${Figures} figures=${model && model.figures} />
    <${Card} title="Parameters by part" name="parameters" data=${parameters}>${() => html`<${StackBar} parts=${parameters.parts} total=${parameters.total} label="Parameters" />`}</${Card}>
    <${Card} title="Forward FLOPs of a token by part" name="flops" data=${flops} about=${model && `At ${model.sequence.toLocaleString("en-US")} tokens.`}>${() => html`<${StackBar} parts=${flops.parts} total=${flops.total} label="FLOPs" />`}</${Card}>
    <${Card} title="Attention against the matmuls" name="attention" data=${lengths} height=${340}
      about=${lengths ? html`${lengths.meets.value ? html`The dot products of attention cost as much as all matmuls at <${Num} of=${lengths.meets} />` : "A window keeps attention below the matmuls at any length"}; the rule T = 8D says <${Num} of=${lengths.rule} />.` : ""}>
      ${() => (lengths.flops ? html`<${Lines} ...${lengths.flops} height=${320} />` : html`<p class="empty">Not for a config with assumed fields.</p>`)}</${Card}>
    <${Card} title="KV cache over the context" name="cache" data=${lengths} height=${340} about="Of one sequence.">
      ${() => (lengths.cache ? html`<${Lines} ...${lengths.cache} height=${320} />` : html`<p class="empty">Not for a config with assumed fields.</p>`)}</${Card}>
    <${Card} title="Weights by format" name="weights" data=${model && model.weights} height=${140}>${() => html`<${Pairs} label="Weights by format" rows=${model.weights.map((one) => [one.format, one.bytes])} />
      ${model.stored.length > 0 && html`<h3>As its files hold them</h3><${Pairs} label="Stored" rows=${model.stored.map((one) => [one.format, one.bytes])} />`}`}</${Card}>
    <${Card} title="Activations of a token, by recompute" name="activations" data=${model && model.activations} height=${140} about="What training keeps for the backward pass.">
      ${() => html`<${Pairs} label="Activations" rows=${model.activations.map((one) => [one.policy, one.bytes])} />`}</${Card}>
    <${Card} title="As a program of einsums" name="program" data=${program} wide height=${300} about="What every count above is read from.">${() => html`<pre class="verbatim scroll" tabindex="0">${program.program}</pre>`}</${Card}>
    <${Notes} notes=${model ? model.notes : []} />`;
}

export function ModelsTab({ state }) {
  const fields = state.fields.models;
  const named = Boolean(fields.model);
  const [drag, setDrag] = useState(null);
  const dropped = droppedFor(state, fields);
  const question = { view: /** @type {const} */ ("models"), fields: { ...fields, ...drag }, dropped, panels: named ? ["model", "lengths", "program"] : ["table"], ...(drag ? { brief: true } : {}) };
  const answer = useAnswer(question);
  const { table, model, lengths, program } = answer.panels;
  const [open, drawer] = useDerivation("models", fields, dropped);
  const put = (changes) => { setDrag(null); setFields(changes); };
  return html`<${Deriving.Provider} value=${open}>
    <${Form} summary=${fields.model || "all presets"} error=${null}>
      <${Group} title="Model">
        <${ModelField} value=${fields.model} dropped=${state.dropped} placeholder="all presets" onChange=${(name) => put({ model: name })} />
        ${named && html`<button type="button" class="quiet" onClick=${() => put({ model: "" })}>All presets</button>
          <${SliderField} label="Sequence length" name="seq" stops=${LENGTHS} value=${Number(fields.seq) || (model && model.sequence) || 8192} text=${String((drag && drag.seq) || fields.seq || 8192)}
            onDrag=${(seq) => setDrag({ seq: String(seq) })} onChange=${(seq) => put({ seq: String(seq) })} onType=${(seq) => put({ seq })} />
          <${TextField} label="Format of the KV cache" name="kv_dtype" value=${fields.kv_dtype} placeholder="bf16" list=${["bf16", "fp8", "int8", "int4"]} onChange=${(kv_dtype) => put({ kv_dtype })} />
          <${SwitchField} label="Count the whole attention square" name="full" value=${fields.full} onChange=${(full) => put({ full })} />
          <${TextField} label="Assume fields of the config" name="assume" value=${fields.assume} placeholder="num_hidden_layers=16" onChange=${(assume) => put({ assume })} />`}</${Group}>
    </${Form}>
    <${AnswerArea} answer=${answer} toolbar=${html`<${Toolbar} tab="models" fields=${fields} dropped=${dropped} />`}>
      ${!named && html`<${Sentence} text=${table && `${table.rows ? table.rows.length : 0} models by name: their sizes, heads and caches.`} advice="Open one for its counts, FLOPs and program, or drop a config.json on the page." />`}
      ${named ? html`<${One} model=${model} lengths=${lengths} program=${program} />` : html`<${Every} table=${table} onOpen=${(name) => put({ model: name })} />`}
      <${AsSheet} view="models" fields=${fields} dropped=${dropped} />
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}
