// The answer of the Train tab in words: the sentence, what bounds it, what would help, the figures, and the other plans.

import { Skeleton } from "../card.js";
import { Figures, Notes, Sentence } from "../answer.js";
import { FlagText } from "../flag_text.js";
import { html, memo } from "../html.js";
import { Num } from "../number.js";

/** Which of compute and network bounds the step, as a badge with its sentence. */
export function Region({ region }) {
  if (!region) return html`<p class="region" aria-hidden="true">\u00a0</p>`;
  return html`<p class=${`region region-${region.bound}`} data-bound=${region.bound}><strong>${region.title}</strong> <span>${region.text}</span></p>`;
}

function Helps({ helps, advice }) {
  if (!helps.length) return advice ? html`<p class="advice"><${FlagText} text=${capital(advice)} /></p>` : null;
  return html`<div class="helps"><h2>What would help</h2><ul>${helps.map((one) => html`<li key=${one.change}><${Num} of=${one.gain} /> tokens/s: ${one.change}${one.needs && html` <small>(needs <${FlagText} text=${one.needs} />)</small>`}</li>`)}</ul></div>`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function Plans({ plans, onTake }) {
  if (plans.length < 2) return null;
  return html`<details class="plans"><summary>The next-best plans</summary><div class="scroll" tabindex="0" role="region" aria-label="The best plans"><table>
    <thead><tr><th scope="col">plan</th><th scope="col" class="right">step</th><th scope="col" class="right"></th><th scope="col" class="right">MFU</th><th scope="col" class="right">memory</th><th scope="col">bound by</th></tr></thead>
    <tbody>${plans.map((one, at) => html`<tr key=${one.plan}><td><button type="button" class="link" onClick=${() => onTake({ plan: one.plan })} title="Judge this plan">${one.plan}</button>${at === 0 ? html` <small>recommended</small>` : ""}</td>
      <td class="right"><${Num} of=${one.step} /></td><td class="right">${at ? one.slower : ""}</td><td class="right"><${Num} of=${one.mfu} /></td><td class="right"><${Num} of=${one.memory} /></td><td>${one.bound_by}</td></tr>`)}</tbody>
  </table></div></details>`;
}

function Slices({ slices, onTake }) {
  if (!slices.length) return null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="The slices asked for"><table><caption>The slices, best first</caption>
    <thead><tr><th scope="col">slice</th><th scope="col">stack</th><th scope="col">plan</th><th scope="col" class="right">step</th><th scope="col" class="right">MFU</th><th scope="col" class="right">$/M tokens</th><th scope="col" class="right">days</th><th scope="col" class="right">cost</th><th scope="col"></th></tr></thead>
    <tbody>${slices.map((one) => html`<tr key=${one.on}><td>${one.plan ? html`<button type="button" class="link" onClick=${() => onTake({ on: one.on })}>${one.on}</button>` : one.on}</td><td>${one.stack}</td><td>${one.plan || "–"}</td>
      <td class="right"><${Num} of=${one.step} /></td><td class="right"><${Num} of=${one.mfu} /></td><td class="right"><${Num} of=${one.usd_per_mtok} /></td><td class="right">${one.days.text}</td><td class="right"><${Num} of=${one.cost} /></td><td>${one.note}</td></tr>`)}</tbody>
  </table></div>`;
}

/** What other software would make of it, side by side. */
function Stacks({ stacks, onTake }) {
  if (!stacks || stacks.length < 2) return null;
  return html`<details class="plans"><summary>Other software</summary><div class="scroll" tabindex="0" role="region" aria-label="Other software"><table>
    <thead><tr><th scope="col">stack</th><th scope="col">its best plan</th><th scope="col" class="right">step</th><th scope="col" class="right">MFU</th><th scope="col"></th></tr></thead>
    <tbody>${stacks.map((one) => html`<tr key=${one.stack}><td><button type="button" class="link" onClick=${() => onTake({ stack: one.stack })}>${one.stack}</button></td><td>${one.plan}</td>
      <td class="right"><${Num} of=${one.step} /></td><td class="right"><${Num} of=${one.mfu} /></td><td>${[one.tight && "tight", one.mostly && `mostly ${one.mostly}`].filter(Boolean).join(", ")}</td></tr>`)}</tbody></table></div></details>`;
}

/** The answer in words. `moving`: it is that of a plan at a size that is being dragged. */
export const TrainSaid = memo((/** @type {{ said: import("../../../types").TrainAnswer, given: boolean, moving: boolean, onTake: any }} */ { said, given, moving, onTake }) => {
  if (!said) return html`<${Sentence} /><${Figures} /><${Skeleton} height=${null} className="skeleton-helps" />`;
  const at = `${said.batch.sequences.toLocaleString("en-US")} sequences of ${said.batch.seq.toLocaleString("en-US")} tokens a step, ${said.dtype}, ${said.stack}${said.stack_why ? ` (${said.stack_why})` : ""}.`;
  return html`<div class="train-said">
      <${Sentence} text=${said.sentence} feasible=${said.feasible} chip=${said.plan && { label: given ? "Plan" : "Best plan", text: said.plan, about: said.plan_words }} />
      <${Region} region=${said.region} />
      <p class="advice"><${FlagText} text=${[at, said.feasible && said.band, said.gradients && `Gradients are ${said.gradients}.`, !(moving && !given) && said.searched].filter(Boolean).join(" ")} /></p>
    </div>
    <${Figures} figures=${said.figures.length ? said.figures : []} />
    ${!moving && said.plan && html`<div class="train-helps">
      <${Helps} helps=${said.feasible ? said.helps || [] : []} advice=${said.advice} />
      <${Plans} plans=${given ? [] : said.plans} onTake=${onTake} />
      <${Stacks} stacks=${given ? [] : said.stacks} onTake=${onTake} /></div>`}
    <${Slices} slices=${said.slices || []} onTake=${onTake} />
    ${(said.neighbours || []).length > 0 && html`<p class="advice">Nearby: ${said.neighbours.map((one) => html`<button type="button" class="link" key=${one.on + one.batch} onClick=${() => onTake({ on: one.on, batch: one.batch })}>${one.batch} on ${one.on} (${one.mfu.text} MFU)</button> `)}</p>`}
    <${Notes} notes=${said.notes} />`;
});
