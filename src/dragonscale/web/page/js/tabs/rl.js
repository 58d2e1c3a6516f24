// Reinforcement learning: how a step of GRPO, PPO and others runs on these chips, phase by phase, and the other ways to run it.

import { AnswerArea, Figures, Notes, Sentence } from "../answer.js";
import { Card } from "../card.js";
import { Catalogue } from "../catalogue.js";
import { ChipField } from "../chip_field.js";
import { StackBar } from "../charts/stack.js";
import { droppedFor, ModelField } from "../config.js";
import { AnyField, MoreFields } from "../fields.js";
import { Form, Group } from "../form.js";
import { html, useContext } from "../html.js";
import { useAnswer } from "../live.js";
import { AsSheet } from "../sheet.js";
import { setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";

const SAMPLED = ["algorithm", "prompts", "samples", "prompt", "output", "mean_output", "updates"];
const RUN = ["stack", "mode", "staleness", "ratio", "rollout_dtype"];

export function RlTab({ state }) {
  const fields = state.fields.rl;
  const dropped = droppedFor(state, fields);
  const { fields: known } = useContext(Catalogue);
  const answer = useAnswer({ view: "rl", fields, dropped, panels: ["answer", "phases"] });
  const { answer: said, phases } = answer.panels;
  const put = (name) => (value) => setFields({ [name]: value });
  const own = (names) => names.map((name) => known.rl.find((one) => one.name === name)).filter(Boolean)
    .map((one) => html`<${AnyField} key=${one.name} field=${one} value=${fields[one.name]} onChange=${put(one.name)} />`);
  return html`<${Form} summary=${[fields.model, fields.on].filter(Boolean).join(" · ")} error=${answer.error}>
      <${Group} title="Job"><${ModelField} value=${fields.model} dropped=${state.dropped} onChange=${put("model")} />
        <${ChipField} label="Chips" command="train" value=${fields.on} placeholder="h100:16" fewest=${false} onChange=${put("on")} /></${Group}>
      <${Group} title="A step">${own(SAMPLED)}</${Group}>
      <${Group} title="How it runs">${own(RUN)}</${Group}>
      <${MoreFields} command="rl" placed=${["model", "on", ...SAMPLED, ...RUN]} fields=${fields} onChange=${setFields} /></${Form}>
    <${AnswerArea} answer=${answer} label="How a step runs" working=${`Searching the ways to run ${fields.model} on ${fields.on}`} toolbar=${html`<${Toolbar} tab="rl" fields=${fields} dropped=${dropped} />`}>
      <${Sentence} text=${said?.sentence} feasible=${!said || said.feasible} chip=${said && { label: "Best plan", text: said.plan, about: said.about }} advice=${said?.advice} />
      <${Figures} figures=${said?.figures} />
      ${said && html`<${Notes} notes=${said.notes} />`}
      <${Card} title="Phases of a step" name="phases" data=${phases} about="What the step waits for; what is hidden runs beside it." height=${260}>
        ${() => html`<${StackBar} parts=${phases.parts} total=${phases.total} label="Phases of a step" />`}</${Card}>
      <${Card} title="Ways to run it" name="ways" data=${said && said.ways} about="A click takes the mode and the software." height=${260}>
        ${() => html`<div class="scroll" tabindex="0" role="region" aria-label="Ways to run it"><table><thead><tr><th scope="col">mode</th><th scope="col">software</th><th scope="col">chips</th><th scope="col" class="right">step</th><th scope="col" class="right">tokens/s per chip</th></tr></thead>
          <tbody>${said.ways.map((one, at) => html`<tr key=${at}><td><button type="button" class="link" onClick=${() => setFields({ mode: one.mode, stack: one.stack })}>${one.mode}</button></td><td>${one.stack}</td>
            <td>${one.mode === "colocated" ? one.train_chips : `${one.train_chips} + ${one.rollout_chips}`}${one.feasible ? "" : ", does not fit"}</td><td class="right">${one.step.text}</td><td class="right">${one.rate.text}</td></tr>`)}</tbody></table></div>`}</${Card}>
      <${AsSheet} view="rl" fields=${fields} dropped=${dropped} />
    </${AnswerArea}>`;
}
