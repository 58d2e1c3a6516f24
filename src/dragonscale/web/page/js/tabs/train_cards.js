// The cards of the Train tab.

import { Card } from "../card.js";
import { Lines } from "../charts/lines.js";
import { MeshChart } from "../charts/mesh.js";
import { RooflineChart } from "../charts/roofline.js";
import { StackBar } from "../charts/stack.js";
import { Timeline } from "../charts/timeline.js";
import { downloadText } from "../copying.js";
import { FlagText } from "../flag_text.js";
import { html, memo, useMemo, useState } from "../html.js";
import { askOnce, useAnswer } from "../live.js";
import { Num } from "../number.js";
import { SheetView } from "../sheet.js";
import { setView } from "../state.js";

const CANNOT = "Nothing to show: the plan cannot run.";

/** Where the time goes: exposed above, hidden below; a part opens its lines. */
export const TimeCard = memo((/** @type {{ time: import("../../../types").TimePanel, view: any }} */ { time, view }) => {
  const about = time && time.lower && html`What the step of <${Num} of=${time.total} /> waits for; below it what is hidden. At datasheet rates: <${Num} of=${time.lower} /> with perfect overlap, <${Num} of=${time.upper} /> with none.`;
  return html`<${Card} title="Where the time goes" name="time" data=${time} about=${about} height=${340}>
    ${() => !time.parts.length ? html`<p class="empty">${CANNOT}</p>` : html`<${StackBar} parts=${time.parts} hidden=${time.hidden} total=${time.total} open=${view.term || null} onOpen=${(term) => setView({ term: term || "" })} label="Time of a step" />`}
  </${Card}>`;
});

/** Memory of the fullest chip against what it has. */
export const MemoryCard = memo((/** @type {{ memory: import("../../../types").MemoryPanel, view: any }} */ { memory, view }) => {
  const about = memory && memory.used && html`<${Num} of=${memory.used} /> of <${Num} of=${memory.limit} /> on the fullest chip.`;
  return html`<${Card} title="Memory" name="memory" data=${memory} about=${about} height=${340}>
    ${() => !memory.parts.length ? html`<p class="empty">${CANNOT}</p>` : html`<${StackBar} parts=${memory.parts} total=${memory.used} limit=${memory.limit} open=${view.held || null} onOpen=${(held) => setView({ held: held || "" })} label="Memory of a chip" />`}
  </${Card}>`;
});

const stepOf = (said) => said && said.figures && said.figures.find((one) => one.label === "step")?.number;
const mfuOf = (said) => said && said.figures && said.figures.find((one) => one.label === "MFU")?.number;

/** The plan over sizes of the batch, with the crossovers; the marker is where the batch is now. */
export const BatchesCard = memo((/** @type {{ batches: import("../../../types").LinesPanel, now: any, said: import("../../../types").TrainAnswer, moving: boolean }} */ { batches, now, said, moving }) => {
  const step = stepOf(said);
  const marks = useMemo(() => (now && step && step.value != null ? [{ x: now.tokens, y: step.value, text: step.text, role: said.region && said.region.bound === "communication" ? "limit" : undefined }] : []), [now && now.tokens, step && step.value, said && said.region && said.region.bound]);
  return html`<${Card} title="Batch: where communication stops hiding" name="batches" data=${batches} about=${batches && batches.about} height=${330}>
    ${() => html`<${Lines} series=${batches.series} x=${batches.x} y=${batches.y} rules=${batches.rules} marks=${marks} height=${300} label="Time of a step over its tokens" />
      <ul class="words">${batches.words.map((one) => html`<li key=${one}>${one}.</li>`)}</ul>
      ${moving && said && batches.plan !== said.plan && html`<p class="about">The lines are those of ${batches.plan}; the marker is ${said.plan} at the batch that is dragged.</p>`}`}
  </${Card}>`;
});

/** How far a slow card is, or why it is not there. */
function Waiting({ answer, text, drawn = true }) {
  if (answer.error) return html`<p class="empty" role="alert">${answer.error.text}</p>`;
  return answer.busy ? html`<p class=${drawn ? "about" : "about reserve"} role="status">${text}${answer.progress != null ? ` ${Math.round(100 * answer.progress)}%` : ""} …</p>` : null;
}

/** MFU of the best plan over sizes of the batch, as it is found. */
export const BestBatchesCard = memo(({ best, now, said, onTake }) => {
  /** @type {import("../../../types").BestBatchesPanel} */
  const data = best.panels.best_batches;
  const mfu = mfuOf(said);
  const marks = useMemo(() => (now && mfu && said.feasible ? [{ x: now.tokens, y: mfu.value, text: mfu.text }] : []), [now && now.tokens, mfu && mfu.value]);
  const about = data ? (data.done < data.whole ? `${data.done} of ${data.whole} batches searched.` : "Each point is a search of its own.") : "";
  const take = (tokens) => { const row = data.points.find((one) => one.tokens === tokens); if (row) onTake({ batch: row.batch }); };
  return html`<${Card} title="The best plan at each batch" name="best_batches" data=${data || (best.error || best.busy ? {} : null)} about=${about} height=${330}>
    ${() => html`${data && html`<${Lines} series=${data.series} x=${data.x} y=${data.y} rules=${data.rules} marks=${marks} height=${300} onPick=${take} label="MFU of the best plan over tokens of a step" />
      <div class="scroll" tabindex="0" role="region" aria-label="The best plan at each batch"><table><thead><tr><th scope="col">batch</th><th scope="col">best plan</th><th scope="col" class="right">step</th><th scope="col" class="right">MFU</th><th scope="col">bound</th></tr></thead>
        <tbody>${data.points.map((one) => html`<tr key=${one.sequences} class=${now && now.sequences === one.sequences ? "here" : ""} title=${one.why}><td><button type="button" class="link" onClick=${() => onTake({ batch: one.batch })}>${one.batch}</button></td>
          <td>${one.plan}</td><td class="right"><${Num} of=${one.step} /></td><td class="right"><${Num} of=${one.part} /></td><td>${one.bound}</td></tr>`)}</tbody></table></div>
      ${data.missing.map((text) => html`<p class="about" key=${text}>${text}.</p>`)}`}
    <${Waiting} answer=${best} text="Searching the best plan at each batch" drawn=${Boolean(data)} />`}
  </${Card}>`;
});

/** Chips by axis and what goes over each. */
export const MeshCard = memo((/** @type {{ mesh: import("../../../types").MeshPanel }} */ { mesh }) => {
  const about = mesh && mesh.axes.length ? "Chips in frames by mesh axis, the outermost first, with the collectives that run over each: bytes that a chip sends in a step, and how long they take." : "";
  return html`<${Card} title="The mesh" name="mesh" data=${mesh} about=${about} wide height=${300}>${() => html`<${MeshChart} mesh=${mesh} />`}</${Card}>`;
});

/** One step over time. */
export const TimelineCard = memo((/** @type {{ timeline: import("../../../types").TimelinePanel, fields: any, dropped: any }} */ { timeline, fields, dropped }) => {
  const [said, say] = useState("");
  const save = async () => {
    say("");
    const { panels, error } = await askOnce({ view: "train", fields, dropped, panels: ["trace"] });
    if (error) say(error.text);
    else downloadText("dragonscale-step.trace.json", JSON.stringify(panels.trace), "application/json");
  };
  const aside = timeline && fields && html`<button type="button" class="quiet" onClick=${save} title="A trace that ui.perfetto.dev opens">Perfetto trace</button>`;
  return html`<${Card} title="One predicted step" name="timeline" data=${timeline} about=${said || (timeline && timeline.about)} aside=${aside} wide height=${260}>
    ${() => !timeline.tracks.length ? html`<p class="empty">${CANNOT}</p>` : html`<${Timeline} timeline=${timeline} />`}</${Card}>`;
});

/** The plan's own operations under the roofs of the chip. */
export const RooflineCard = memo(({ roofline }) => {
  return html`<${Card} title="Roofline" name="roofline" data=${roofline} about=${roofline && roofline.about} height=${380}>
    ${() => !roofline.roofs.length ? html`<p class="empty">${CANNOT}</p>` : html`<${RooflineChart} roofs=${roofline.roofs} points=${roofline.points} height=${300} label="Matmuls of a layer and the step's traffic under the chip's roofs" />
      <p class="about">Matmuls of a layer by FLOPs per byte of HBM; the step by FLOPs per byte sent over each set of axes, under the roof of those wires.</p>`}</${Card}>`;
});

/** The best plan on smaller and larger slices, as it is found. */
export const ScalingCard = memo(({ scaling, onTake }) => {
  /** @type {import("../../../types").ScalingPanel} */
  const data = scaling.panels.scaling;
  const take = (chips) => { const row = data.rows.find((one) => one.chips === chips); if (row) onTake({ on: row.on }); };
  return html`<${Card} title="Strong scaling" name="scaling" data=${data || (scaling.error || scaling.busy ? {} : null)} about="The same batch on fewer and more chips: the best plan of each slice." height=${380}>
    ${() => html`${data && html`<${Lines} series=${data.series} x=${{ ...data.x, binary: true }} y=${data.y} rules=${data.rules} marks=${data.marks} height=${300} onPick=${take} label="Time of a step over chips" />
      <div class="scroll" tabindex="0" role="region" aria-label="The best plan of each slice"><table><thead><tr><th scope="col">slice</th><th scope="col">best plan</th><th scope="col" class="right">step</th><th scope="col" class="right">MFU</th><th scope="col" class="right">efficiency</th></tr></thead>
        <tbody>${data.rows.map((one) => html`<tr key=${one.on} class=${one.here ? "here" : ""}><td><button type="button" class="link" onClick=${() => onTake({ on: one.on })}>${one.on}</button></td><td>${one.plan || one.bound_by}</td>
          <td class="right"><${Num} of=${one.step} /></td><td class="right"><${Num} of=${one.mfu} /></td><td class="right"><${Num} of=${one.efficiency} /></td></tr>`)}</tbody></table></div>
      <ul class="words">${data.words.map((one) => html`<li key=${one}>${one}.</li>`)}</ul>`}
    <${Waiting} answer=${scaling} text="Searching the best plan of each slice" drawn=${Boolean(data)} />`}
  </${Card}>`;
});

/** A given plan held against the best. */
export const AgainstCard = memo(({ against, onTake }) => {
  const data = against.panels.against;
  return html`<${Card} title="Against the best plan" name="against" data=${data || (against.error || against.busy ? {} : null)} height=${200}>
    ${() => html`${data && html`<p><${FlagText} text=${data.text} /></p>
      ${data.best && html`<p class="plan-buttons"><button type="button" class="button" onClick=${() => onTake(data.best.plan)}>Take ${data.best.plan}</button> <span class="dim"><${Num} of=${data.best.step} /> a step, <${Num} of=${data.best.mfu} /> MFU</span></p>`}
      ${data.changes.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Single changes"><table><caption>One setting changed at a time</caption><thead><tr><th scope="col">setting</th><th scope="col">from</th><th scope="col">to</th><th scope="col" class="right">step</th><th scope="col" class="right">tokens/s</th><th scope="col"></th></tr></thead>
        <tbody>${data.changes.map((one) => html`<tr key=${one.plan}><td>${one.setting}</td><td>${one.from}</td><td>${one.to}</td><td class="right"><${Num} of=${one.step} /></td><td class=${`right ${one.better ? "better" : "worse"}`}>${one.gain}</td>
          <td><button type="button" class="link" onClick=${() => onTake(one.plan)}>take it</button></td></tr>`)}</tbody></table></div>`}
      ${data.measured && html`<p>${data.measured.text}</p><ul class="words">${data.measured.suspects.map((one) => html`<li key=${one.cause}>${one.cause}: ${one.step.text}, ${one.explains} of the rest. ${one.look}</li>`)}</ul>`}`}
    <${Waiting} answer=${against} text="Searching for a better plan" />`}
  </${Card}>`;
});

/** The whole answer as the terminal shows it; asked when it is looked at. */
export const SheetCard = memo(({ fields, dropped }) => {
  const [open, setOpen] = useState(false);
  const answer = useAnswer(open && fields ? { view: "train", fields, dropped, panels: ["sheet"] } : null);
  return html`<details class="card whole-sheet" onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>The whole answer, as the command prints it</summary>
    <div class="card-body">${open && answer.panels.sheet && html`<${SheetView} blocks=${answer.panels.sheet.blocks} />`}<${Waiting} answer=${answer} text="Asking" /></div></details>`;
});
