// Train: what is trained, on what, with which plan; and the answer, live.
//
// Three questions follow the form. The core (answer, time, memory, mesh) is asked at once, and while something is dragged in brief for the plan
// that is known to be best there. What hangs on the plan (roofline, timeline, curve over batches) is asked when the core rests. What searches again for every
// point (best plans over batches, strong scaling, a given plan against the best) is asked when it is looked at.

import { AnswerArea } from "../answer.js";
import { Compared } from "../compare.js";
import { droppedFor } from "../config.js";
import { useDerivation } from "../derivation.js";
import { html, useCallback, useMemo, useRef, useState } from "../html.js";
import { useAnswer } from "../live.js";
import { Deriving } from "../number.js";
import { setFields } from "../state.js";
import { Toolbar } from "../toolbar.js";
import { AgainstCard, BatchesCard, BestBatchesCard, MeshCard, MemoryCard, RooflineCard, ScalingCard, SheetCard, TimeCard, TimelineCard } from "./train_cards.js";
import { TrainForm } from "./train_form.js";
import { TrainSaid } from "./train_said.js";

const CORE = ["answer", "time", "memory", "mesh"];
const SEARCHING = ["fix", "remat", "largest", "rank", "slack", "headroom", "top", "deadline", "scaling", "codesign"];
const WHOLE = ["largest", "rank", "top", "deadline", "scaling", "codesign", "measured"];

/** The request of the tab's fields: a plan that is given is judged alone. */
export function trainRequest(fields, panels, extra = {}) {
  return { view: /** @type {const} */ ("train"), fields: { ...fields, ...(fields.plan ? { alone: true } : {}) }, panels, ...extra };
}

const without = (fields, names) => Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));

/** The question about one plan on one slice: the answer's own where the form leaves them open. */
function pinned(fields, said, left) {
  const open = !String(fields.on || "").includes(":") || String(fields.on).includes(",") || fields.rank === "cost";
  const batch = fields.largest ? { batch: `${said.batch.sequences}seq` } : {};
  return { ...without(fields, left), ...(open ? { on: said.on } : {}), ...batch, plan: fields.plan || said.plan };
}

/** The plan to begin from while something is dragged: the best one that is known there or nearest to it. The planner refits it where it does not divide. */
function planNear(changes, said, points, scaling) {
  const row = changes.on && scaling && scaling.rows.find((one) => one.on === changes.on && one.plan);
  const many = changes.batch ? Number(changes.batch.replace("seq", "")) : 0;
  const far = (one) => Math.abs(Math.log(one.sequences / many));
  const near = many && points.filter((one) => many % one.divides === 0).sort((one, other) => far(one) - far(other))[0];
  return (row || near || said).plan;
}

/** Whether a panel's card can be seen now: while something moves, the others wait until it rests. */
function inSight(name) {
  const box = document.querySelector(`[data-panel="${name}"]`)?.getBoundingClientRect();
  return !box || (box.top < window.innerHeight && box.bottom > 0);
}

/** Whether an element has been scrolled into view; it may come and go. */
function useSeen() {
  const observer = useRef(null);
  const [seen, set] = useState(false);
  const ref = useCallback((element) => {
    if (observer.current) observer.current.disconnect();
    observer.current = element && new IntersectionObserver((found) => { if (found.some((one) => one.isIntersecting)) set(true); }, { rootMargin: "120px" });
    if (element) observer.current.observe(element);
  }, []);
  return [ref, seen];
}

/** The answer to a request of its own; nothing is kept from another question. */
function useOwn(request, subject) {
  const answer = useAnswer(request);
  const fresh = answer.asked && JSON.stringify(answer.asked.fields) === subject;
  return { ...answer, panels: fresh ? answer.panels : {}, error: fresh ? answer.error : null };
}

export function TrainTab({ state }) {
  const fields = state.fields.train;
  const dropped = useMemo(() => droppedFor(state, fields), [state.dropped, fields.model]);
  const [drag, setDrag] = useState(null);
  const rested = trainRequest(without(fields, ["codesign", "scaling"]), [...CORE, "sliders"], { dropped });
  const moving = drag && { view: /** @type {const} */ ("train"), fields: drag.fields, panels: drag.panels, brief: true, near: !fields.plan, dropped };
  const answer = useAnswer(moving || rested);
  const kept = useRef({});
  // where nothing near runs while it moves, what was drawn last stays, greyed: only an answer may say no
  const lost = Boolean(drag || answer.busy) && !fields.plan && answer.panels.answer && answer.panels.answer.plan && !answer.panels.answer.feasible && kept.current.runs;
  const { answer: said, time, memory, mesh } = lost || answer.panels;
  const { sliders } = answer.panels;
  if (said && said.feasible) kept.current.runs = { answer: said, time, memory, mesh };
  const settled = !drag && !answer.busy && !answer.error && answer.asked && JSON.stringify(answer.asked) === JSON.stringify(rested) && said && said.plan;
  if (settled || answer.early) kept.current.said = said;
  const base = kept.current.said;

  const judged = settled ? { ...pinned(fields, said, SEARCHING), alone: true } : null;
  const rest = useAnswer(judged && { view: "train", fields: judged, panels: ["batches", "roofline", "timeline"], dropped });

  const whole = settled ? pinned(fields, said, WHOLE) : null;
  const [bestRef, bestSeen] = useSeen();
  const [scaleRef, scaleSeen] = useSeen();
  const [againstRef, againstSeen] = useSeen();
  const [sheetRef, sheetSeen] = useSeen();
  const searched = useRef({});
  if (whole && !fields.plan) {
    // the curves belong to the job, not to the batch at which the slider rests: they are asked anew only for another job
    const job = JSON.stringify([without(whole, ["batch", "plan"]), dropped]);
    if (searched.current.job !== job || !inReach(searched.current, said)) searched.current = { job, whole, sequences: said.batch.sequences };
  }
  const curves = fields.plan || answer.error ? null : searched.current.whole;
  const best = useOwn(bestSeen && curves ? { view: "train", fields: curves, panels: ["best_batches"], dropped } : null, JSON.stringify(curves));
  const points = useRef({ job: "", known: new Map() });
  if (points.current.job !== searched.current.job) points.current = { job: searched.current.job, known: new Map() };
  for (const one of (best.panels.best_batches || { points: [] }).points) points.current.known.set(one.sequences, one);
  const scaling = useOwn(scaleSeen && whole ? { view: "train", fields: whole, panels: ["scaling"], dropped } : null, JSON.stringify(whole));
  const held = settled && fields.plan && againstSeen ? without(fields, ["top", "scaling", "codesign"]) : null;
  const against = useOwn(held && { view: "train", fields: held, panels: ["against"], dropped }, JSON.stringify(held));

  const asked = useMemo(() => trainRequest(fields, []).fields, [fields]);
  const [open, drawer] = useDerivation("train", drag ? drag.fields : asked, dropped);
  const set = useCallback((changes) => { setDrag(null); setFields(changes); }, []);
  const dragged = (changes) => {
    if (!base) return;
    const plan = fields.plan || planNear(changes, base, [...points.current.known.values()], scaling.panels.scaling);
    setDrag({ fields: { ...pinned({ ...fields, plan }, base, SEARCHING), ...changes, alone: true }, panels: CORE.filter((one) => one === "answer" || inSight(one)) });
  };
  const latest = useRef(dragged);
  latest.current = dragged;
  const now = said && said.batch;
  const none = said && !said.plan;
  const about = (drag && base) || said;
  // what a drag does not change is not drawn again
  const form = useMemo(() => html`<${TrainForm} fields=${fields} said=${about} sliders=${sliders} error=${answer.error} dropped=${state.dropped}
    drag=${(changes) => latest.current(changes)} set=${set} />`, [fields, about, sliders, answer.error, state.dropped]);
  const tools = useMemo(() => html`<${Toolbar} tab="train" fields=${asked} dropped=${dropped} />`, [asked, dropped]);
  const mark = now && `${now.tokens} ${said.sentence}`;
  const { batches, timeline, roofline } = rest.panels;
  const batchesCard = useMemo(() => html`<${BatchesCard} batches=${batches} now=${now} said=${said} moving=${Boolean(drag)} />`, [batches, mark, Boolean(drag)]);
  const bestCard = useMemo(() => html`<div class="card-seen" ref=${bestRef}><${BestBatchesCard} best=${best} now=${now} said=${said} onTake=${set} /></div>`,
    [best.panels.best_batches, best.busy, best.progress, best.error, mark]);
  const againstCard = useMemo(() => html`<div class="card-seen" ref=${againstRef}><${AgainstCard} against=${against} onTake=${(plan) => set({ plan })} /></div>`,
    [against.panels.against, against.busy, against.progress, against.error]);
  const rooflineCard = useMemo(() => html`<${RooflineCard} roofline=${roofline} />`, [roofline]);
  const timelineCard = useMemo(() => html`<${TimelineCard} timeline=${timeline} fields=${judged} dropped=${dropped} />`, [timeline, JSON.stringify(judged), dropped]);
  const scalingCard = useMemo(() => html`<div class="card-seen" ref=${scaleRef}><${ScalingCard} scaling=${scaling} onTake=${set} /></div>`,
    [scaling.panels.scaling, scaling.busy, scaling.progress, scaling.error]);
  return html`<${Deriving.Provider} value=${open}>
    ${form}
    <${AnswerArea} answer=${answer} label="How it trains" working=${drag ? "" : `${fields.plan ? "Judging the plan" : "Searching the plans"} of ${fields.model} on ${fields.on}`} toolbar=${null} old=${oldNote(answer, Boolean(drag), lost, Boolean(fields.plan))} greyed=${Boolean(lost) || (answer.busy && !drag && !answer.early)}>
      <${TrainSaid} said=${said} given=${Boolean(fields.plan)} moving=${Boolean(drag)} onTake=${set} />
      ${tools}
      <${Compared} state=${state} />
      ${!none && html`<div class="columns"><div class="column"><${TimeCard} time=${time} view=${state.view} /><${MemoryCard} memory=${memory} view=${state.view} /></div>
          <div class="column">${batchesCard}${rooflineCard}</div></div>
        <${MeshCard} mesh=${mesh} />${timelineCard}${fields.plan ? againstCard : bestCard}${scalingCard}`}
      <div class="card-seen card-wide" ref=${sheetRef}><${SheetCard} fields=${sheetSeen && said && !drag ? asked : null} dropped=${dropped} /></div>
    </${AnswerArea}>${drawer}</${Deriving.Provider}>`;
}

/** What an answer that is not the one to the form's question says of itself. */
function oldNote(answer, moving, lost, given) {
  if (lost && moving) return `No plan next to the last one runs here (${answer.panels.answer.problems[0] || "none fits"}); a search follows when it rests.`;
  if (moving) return given ? "" : "A plan next to the last one; the best is searched when it rests.";
  return "";
}

const REACH = 4;

/** Whether the batch is still near the middle of the curve that was searched. */
function inReach(searched, said) {
  return searched.sequences && said.batch.sequences >= searched.sequences / REACH && said.batch.sequences <= searched.sequences * REACH;
}
