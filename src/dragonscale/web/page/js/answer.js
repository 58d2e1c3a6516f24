// The right-hand side of a tab: how far the answer is, what is wrong, the sentence, the figures, and cards under them.

import { html, useLayoutEffect, useRef } from "./html.js";
import { Skeleton } from "./card.js";
import { FlagText } from "./flag_text.js";
import { Num } from "./number.js";
import { change, current, linkedAnswer, START } from "./state.js";

/** What the link claims of its answer, while nothing else is there; marked as a claim, since anybody can write a link. */
export function Linked({ linked }) {
  return html`<div class="linked"><p class="linked-mark" role="status"><strong>Not checked yet.</strong> These words come from the link that was opened, not from the planner; it is working the answer out now.</p>
    <${Sentence} text=${linked.sentence} />
    <${Figures} figures=${linked.figures.map(([label, text]) => ({ label, number: { text } }))} /></div>`;
}

const KINDS = {
  infeasible: "Does not fit", input: "Not understood", limit: "Too much for here", network: "Not reached", fault: "A fault", busy: "Busy", refused: "Refused",
};
const PASSING = ["network", "busy", "limit", "fault"];

/** A sentence of what is wrong or why it does not fit, and a way to try again where that may help. */
export function ErrorNote({ error, retry }) {
  if (!error) return null;
  return html`<div class=${`problem problem-${error.kind}`} role="alert"><strong>${KINDS[error.kind] || "Wrong"}</strong><p><${FlagText} text=${error.text} /></p>
    ${retry && PASSING.includes(error.kind) && html`<p><button type="button" class="button" onClick=${retry}>Try again</button></p>`}</div>`;
}

/** What stands in place of an answer that there is not: the way back to a question that has one. */
function Nothing() {
  const { tab } = current();
  return html`<div class="nothing"><p>Nothing was worked out. Change the question, or begin from the one that this tab opens with.</p>
    <p><button type="button" class="button" onClick=${() => change((old) => ({ ...old, view: {}, fields: { ...old.fields, [tab]: { ...START[tab] } } }))}>Open the usual question</button></p></div>`;
}

/** What is being worked out and how far it is, in words; nothing where no answer is under way. */
function workingText(answer, working) {
  if (!answer.busy || !working) return "";
  return `${working}${answer.progress == null ? "" : ` (${Math.round(100 * answer.progress)}%)`} …`;
}

/** Why what is drawn is not the answer to the form's question yet. */
function oldText(answer, words) {
  if (!words) return "";
  return answer.early ? "Worked out beforehand; the planner is answering anew." : `${words} Below is the last answer.`;
}

/** The answer's area, for `useAnswer`'s answer; what it drew before stays while the next one comes. `toolbar` is placed under the headline; `working` says
 * what takes its time, `old` why what is drawn is not the answer yet, over the area's corner, so that nothing moves; `greyed` draws it so. */
export function AnswerArea({ answer, label = "Answer", toolbar, working = "", old = "", greyed = false, children }) {
  const { busy, progress, error } = answer;
  const ref = useRef(null);
  const words = workingText(answer, working);
  const begun = Object.keys(answer.panels || {}).length > 0;
  const note = old || (begun ? oldText(answer, words) : "");
  const linked = !error && !begun && linkedAnswer();
  const stale = Boolean(error) && begun;
  // what stands below an error answers another question: it is greyed, and nothing of it can be copied
  useLayoutEffect(() => {
    for (const one of ref.current.children) one.inert = stale && !one.matches(".problem, .progress, .stale");
  });
  return html`<section id="answer" ref=${ref} tabindex="-1" class=${`answer${stale ? " answer-stale" : ""}${greyed && !stale ? " answer-old" : ""}`} aria-busy=${String(Boolean(busy))} aria-label=${label}>
    <div class=${`progress${busy ? " progress-on" : ""}${progress == null ? " progress-open" : ""}`} aria-hidden="true">
      <div style=${{ transform: `scaleX(${progress == null ? 0.3 : Math.max(0.03, progress)})` }}></div></div>
    <p class=${`old-note${note ? " old-note-on" : ""}`} role="status">${note}</p>
    ${words && !begun && !linked && html`<p class="searching" role="status">${words}</p>`}
    <${ErrorNote} error=${error} retry=${answer.retry} />
    ${stale && html`<p class="stale about">Below is the answer to the last question that was understood.</p>`}
    ${error && !stale ? html`<${Nothing} />` : linked ? html`<${Linked} linked=${linked} />` : toolbar ? placed(children, toolbar) : children}
  </section>`;
}

/** The toolbar stands after the sentence and the figures that the answer begins with. */
function placed(children, toolbar) {
  const every = [children].flat(2);
  const rest = every.findIndex((one) => one && one.type !== Sentence && one.type !== Figures);
  const at = rest < 0 ? every.length : rest;
  return [...every.slice(0, at), toolbar, ...every.slice(at)];
}

/** What was chosen, as it is typed, with its name before it and what it means behind it. */
export function ChosenChip({ label, text, about }) {
  return html`<p class="chosen-chip"><span class="chosen-label">${label}</span> <code>${text}</code> <span class="muted">${about}</span></p>`;
}

/** The answer in a sentence; `feasible` false makes it a warning. `chip` is what was chosen ({label, text, about}), `advice` what bounds it and what to change. */
export function Sentence({ text, feasible = true, chip, advice }) {
  if (!text) return html`<${Skeleton} height=${null} className="skeleton-said" />`;
  return html`<div class="spoken" aria-live="polite"><h2 class=${`sentence${feasible ? "" : " sentence-not"}`}><${FlagText} text=${text} /></h2>
    ${chip && chip.text && html`<${ChosenChip} ...${chip} />`}
    ${advice && html`<${Advice} text=${advice} />`}</div>`;
}

/** What bounds the answer and what to change. */
export function Advice({ text }) {
  return html`<p class="advice"><${FlagText} text=${text} /></p>`;
}

const columnsOf = (many) => (many <= 6 ? many : Math.ceil(many / 2));

/** The headline numbers as tiles: {label, number, about}; `expect` is how many there will be. */
export function Figures({ figures, expect = 4 }) {
  if (!figures) {
    return html`<div class="figures figures-set" style=${{ "--columns": columnsOf(expect) }}>
      ${Array.from({ length: expect }, (_, at) => html`<${Skeleton} key=${at} height=${84} />`)}</div>`;
  }
  const columns = columnsOf(figures.length);
  return html`<dl class="figures figures-set" style=${{ "--columns": columns }}>${figures.map((one) => html`<div class=${one.met === false ? "figure figure-missed" : "figure"} key=${one.label}>
    <dt>${one.label}</dt><dd><${Num} of=${one.number} />${one.about && html`<small>${one.about}</small>`}</dd></div>`)}</dl>`;
}

/** Notes of the planner: shown small, the first three at once. */
export function Notes({ notes = [] }) {
  if (!notes.length) return null;
  const item = (note, at) => html`<li key=${at}><${FlagText} text=${note} /></li>`;
  return html`<div class="notes"><ul>${notes.slice(0, 3).map(item)}</ul>
    ${notes.length > 3 && html`<details><summary>${notes.length - 3} more note${notes.length === 4 ? "" : "s"}</summary><ul>${notes.slice(3).map(item)}</ul></details>`}</div>`;
}
