// The course: chapters and their problems on the left, one problem asked and judged on the right. What was solved stays in this browser.

import { AnswerArea, ErrorNote } from "../answer.js";
import { Catalogue } from "../catalogue.js";
import { docsAddress, pictureAddress } from "../derivation.js";
import { Form, Group } from "../form.js";
import { html, useContext, useEffect, useId, useRef, useState } from "../html.js";
import { askOnce, useAnswer } from "../live.js";
import { Command } from "../sheet.js";
import { change } from "../state.js";

const KEY = "dragonscale-learn";

// a browser may forbid a page to keep anything; then what was solved lasts until it is closed
let solved = read();

function read() {
  try { return new Set(JSON.parse(localStorage.getItem(KEY) || "[]")); } catch { return new Set(); }
}

function keep(id) {
  solved = new Set([...solved, id]);
  try { localStorage.setItem(KEY, JSON.stringify([...solved])); } catch { /* not kept */ }
}

function go(name, seed = 0) {
  change((old) => ({ ...old, fields: { ...old.fields, learn: { name, ...(seed ? { seed: String(seed) } : {}) } } }));
  // on a phone the list folds away, so that the problem is there to be seen
  /** @type {HTMLDetailsElement | null} */
  const list = document.querySelector(".form-fold");
  if (list && matchMedia("(max-width: 860px)").matches) { list.open = false; scrollTo(0, 0); }
}

function Chapters({ chapters, name }) {
  return chapters.map((one) => {
    const done = one.problems.filter((problem) => solved.has(problem.id)).length;
    const open = name.startsWith(`${one.chapter}.`);
    return html`<${Group} key=${one.chapter + open} title=${one.title} open=${open} aside=${`${done}/${one.problems.length}`}>
      <p class="hint">${one.about}</p>
      <ol class="problems">${one.problems.map((problem) => html`<li key=${problem.id}>
        <a href=${`#learn?name=${problem.id}`} aria-current=${problem.id === name ? "true" : null}
          onClick=${(event) => { event.preventDefault(); go(problem.id); }}>${problem.title}</a>
        ${solved.has(problem.id) && html`<span class="solved" role="img" aria-label="solved">✓</span>`}</li>`)}</ol></${Group}>`;
  });
}

/** What the open chapter is about, in a picture of its page. */
function ChapterPicture({ chapter }) {
  const catalogue = useContext(Catalogue);
  const [lost, setLost] = useState("");
  const address = chapter && pictureAddress(chapter.picture, catalogue.docs);
  if (!address || lost === address) return null;
  const page = docsAddress(chapter.page, "", catalogue.docs);
  return html`<figure class="chapter-picture"><img src=${address} alt=${`From the chapter ${chapter.title}: ${chapter.about}`} loading="lazy" onError=${() => setLost(address)} />
    <figcaption>${chapter.title}: ${chapter.about}${page && html` <a href=${page} target="_blank" rel="noopener">Read the chapter</a>`}</figcaption></figure>`;
}

/** The course as a map: a row for each chapter, a square for each problem, filled where it is solved. */
function CourseMap({ chapters, name }) {
  return html`<section class="course-map" aria-labelledby="course-map"><h2 id="course-map">Map of the course</h2>
    <ol>${chapters.map((one) => {
      const done = one.problems.filter((problem) => solved.has(problem.id)).length;
      return html`<li key=${one.chapter}><div><strong>${one.title}</strong> <span class="muted">${one.about}</span></div>
        <progress max=${one.problems.length} value=${done} aria-label=${`${one.title}: ${done} of ${one.problems.length} solved`}></progress> <span class="muted">${done} of ${one.problems.length}</span>
        <div class="squares">${one.problems.map((problem) => html`<a key=${problem.id} href=${`#learn?name=${problem.id}`} title=${problem.title} aria-label=${`${problem.title}${solved.has(problem.id) ? ", solved" : ""}`}
          class=${solved.has(problem.id) ? "square square-solved" : "square"} aria-current=${problem.id === name ? "true" : null} onClick=${(event) => { event.preventDefault(); go(problem.id); }}></a>`)}</div></li>`;
    })}</ol></section>`;
}

function Options({ options, onAnswer }) {
  return html`<div class="learn-options" role="group" aria-label="Options">${options.map((one) => html`<button key=${one} type="button" class="button"
    onClick=${() => onAnswer(one)}>${one}</button>`)}</div>`;
}

function Typed({ problem, onAnswer }) {
  const [text, set] = useState("");
  const id = useId();
  const send = (event) => { event.preventDefault(); if (text.trim()) onAnswer(text.trim()); };
  return html`<form class="typed" onSubmit=${send}><label for=${id}>Your answer: ${problem.unit.replace(/, such as .*/, "")}${problem.tolerance ? `, within ${+(100 * problem.tolerance).toFixed(2)}%` : ""}</label>
    <div><input id=${id} type="text" value=${text} autocomplete="off" spellcheck="false" placeholder=${(problem.unit.match(/such as (.*)$/) || [])[1] || ""}
      onInput=${(event) => set(event.currentTarget.value)} /><button type="submit" class="button button-main">Answer</button></div></form>`;
}

function Solution({ problem, docs }) {
  const address = docsAddress(problem.page, "", docs);
  return html`<section class="solution"><h3>Worked solution</h3><pre class="verbatim scrolls" tabindex="0">${problem.solution.join("\n")}</pre>
    <p>Answer: <strong>${problem.answer}</strong></p>
    ${problem.check && html`<p>Check: <${Command} text=${problem.check} /></p>`}
    ${address && html`<p><a href=${address} target="_blank" rel="noopener">The chapter</a></p>`}</section>`;
}

/** One problem; `asked` is it as posed. What is answered is asked apart, so that the question never flickers. */
function Problem({ asked, following, onSolved }) {
  const [found, set] = useState({ hints: 0 });
  const { docs } = useContext(Catalogue);
  const again = async (more, hints = found.hints) => {
    const { panels, error } = await askOnce({ view: "learn", fields: { name: asked.problem, seed: String(asked.seed), ...more }, panels: ["problem"] });
    const said = panels.problem;
    if (said && said.right) { keep(asked.problem); onSolved(); }
    set((old) => ({ ...old, hints, error, said: said && said.told ? said : error ? null : old.said, shown: said && said.solution.length ? said : old.shown, all: said && said.hints.length ? said.hints : old.all }));
  };
  const { said, shown, all = [], error, hints } = found;
  return html`<article class="problem-card" aria-labelledby="problem-title">
    <h2 id="problem-title">${asked.title}</h2>
    <p class="about">${asked.problem}${asked.seed ? `, seed ${asked.seed}` : ""}</p>
    <p class="sentence ask">${asked.ask}</p>
    ${asked.options.length ? html`<${Options} options=${asked.options} onAnswer=${(answer) => again({ answer })} />`
      : html`<${Typed} key=${`${asked.problem}${asked.seed}`} problem=${asked} onAnswer=${(answer) => again({ answer })} />`}
    <div aria-live="polite">
      <${ErrorNote} error=${error} />
      ${said && html`<p class=${`verdict ${said.right ? "verdict-right" : "verdict-wrong"}`}><strong>${said.answered}</strong>: ${said.told}</p>`}
      ${hints > 0 && all.length > 0 && html`<ol class="hints">${all.slice(0, hints).map((one) => html`<li key=${one}>${one}</li>`)}</ol>`}
      ${shown && html`<${Solution} problem=${shown} docs=${docs} />`}</div>
    <div class="learn-tools">
      <button type="button" class="button" disabled=${hints >= asked.hint_count} onClick=${() => again({ hint: true }, hints + 1)}>Hint</button>
      <button type="button" class="button" onClick=${() => again({ solution: true })}>Solution</button>
      <button type="button" class="button" onClick=${() => go(asked.problem, asked.seed + 1)}>Other numbers</button>
      ${following && html`<button type="button" class="button" onClick=${() => go(following)}>Next problem</button>`}</div>
    <p class="about">In the terminal: <${Command} text=${`dscale learn ${asked.problem}${asked.seed ? ` --seed ${asked.seed}` : ""}`} /></p>
  </article>`;
}

export function LearnTab({ state }) {
  const course = useAnswer({ view: "learn", panels: ["course"] });
  const chapters = course.panels.course ? course.panels.course.chapters : [];
  const every = chapters.flatMap((one) => one.problems.map((problem) => problem.id));
  const { name: given, seed } = state.fields.learn;
  const within = every.filter((id) => !given || id.startsWith(`${given}.`)); // a chapter stands for what is left of it
  // what was opened stays when it is solved
  const opened = useRef({});
  if (opened.current.given !== given || !opened.current.name) {
    opened.current = { given, name: (given && !within.length && given) || within.find((id) => !solved.has(id)) || within[0] || "" };
  }
  const { name } = opened.current;
  const [, redraw] = useState(0);
  const answer = useAnswer(name ? { view: "learn", fields: { name, ...(seed ? { seed } : {}) }, panels: ["problem"] } : null);
  const { problem } = answer.panels;
  const following = every[every.indexOf(name) + 1];
  useEffect(() => { if (problem) /** @type {HTMLElement | null} */ (document.querySelector(".typed input"))?.focus({ preventScroll: true }); }, [problem && problem.problem, problem && problem.seed]);
  return html`<${Form} label="Chapters" summary=${problem ? problem.title : ""}>
      <p class="hint learnt">${every.length ? `${every.filter((id) => solved.has(id)).length} of ${every.length} problems solved, kept in this browser.` : "…"}</p>
      <${Chapters} chapters=${chapters} name=${name} /></${Form}>
    <${AnswerArea} answer=${name ? answer : course} label="Problem">
      ${problem && html`<${Problem} key=${`${problem.problem} ${problem.seed}`} asked=${problem} following=${following} onSolved=${() => redraw((count) => count + 1)} />`}
      ${problem && html`<${ChapterPicture} chapter=${chapters.find((one) => name.startsWith(`${one.chapter}.`))} />`}
      ${problem && chapters.length > 0 && html`<${CourseMap} chapters=${chapters} name=${name} />`}
    </${AnswerArea}>`;
}
