// Where a number comes from: a drawer with how it is put together, its formula, its letters, its error and its sources.

import { ask } from "./backend.js";
import { Catalogue } from "./catalogue.js";
import { Dialog } from "./dialog.js";
import { html, useContext, useEffect, useMemo, useState } from "./html.js";
import { Maths } from "./maths.js";
import { Deriving, Num } from "./number.js";
import { setView, useAppState } from "./state.js";
import { copyText } from "./copying.js";

/** What opens derivations of a view's numbers, and the drawer to draw; the number that is open is in the address. */
export function useDerivation(view, fields, dropped, extra = {}) {
  const state = useAppState();
  const [clicked, setClicked] = useState(null);
  const open = useMemo(() => (why, amount) => {
    setClicked({ why, amount });
    setView({ why: view === state.tab ? why : `${view}/${why}` }, false);
  }, [view, state.tab]);
  const wanted = state.view.why || "";
  const mark = `${view}/`;
  const own = wanted.startsWith(mark) ? wanted.slice(mark.length) : view === state.tab && !foreign(wanted) ? wanted : "";
  const shown = clicked && clicked.why === own ? clicked.amount : null;
  const close = () => { setClicked(null); setView({ why: "" }); };
  const drawer = own
    ? html`<${Drawer} key="drawer" view=${view} fields=${fields} dropped=${dropped} extra=${extra} id=${own} shown=${shown} open=${open} onClose=${close} />`
    : null;
  return [open, drawer];
}

/** The same for a question that is not the tab's: what is open is not in the address. */
export function useOwnDerivation(view, fields) {
  const [clicked, setClicked] = useState(null);
  const open = useMemo(() => (why, amount) => setClicked({ why, amount }), []);
  const drawer = clicked
    ? html`<${Drawer} view=${view} fields=${fields} extra=${{}} id=${clicked.why} shown=${clicked.amount} open=${open} onClose=${() => setClicked(null)} />`
    : null;
  return [open, drawer];
}

const VIEWS = ["train", "serve", "simulate", "roofline", "shard", "collective", "chips", "models", "compare"];
const foreign = (wanted) => VIEWS.some((one) => wanted.startsWith(`${one}/`));

function useParts(request) {
  const [parts, setParts] = useState({});
  const key = JSON.stringify(request);
  useEffect(() => {
    const controller = new AbortController();
    setParts({});
    ask(request, (message) => {
      if (message.panel) setParts((old) => ({ ...old, [message.panel]: message.data }));
      if (message.error) setParts((old) => ({ ...old, error: message.error }));
      if (message.done) setParts((old) => ({ ...old, done: true }));
    }, controller.signal);
    return () => controller.abort();
  }, [key]);
  return parts;
}

function Drawer({ view, fields, dropped, extra, id, shown, open, onClose }) {
  const [trail, setTrail] = useState([]);
  const parts = useParts({ view: "why", of: view, fields, dropped: dropped || {}, number: id, panels: ["facts", "formula", "crossovers"], ...extra });
  /** @type {import("../../types").Views["why"] & { error?: any }} */
  const { facts, formula, crossovers, error } = parts;
  const deeper = (why, amount) => {
    if (why === id) return;
    setTrail((old) => [...old, { id, title: facts ? facts.title : id }]);
    open(why, amount);
  };
  const back = () => {
    const last = trail[trail.length - 1];
    setTrail(trail.slice(0, -1));
    open(last.id, null);
  };
  return html`<${Dialog} kind="drawer" title=${facts ? facts.title : "Where it comes from"} onClose=${onClose}>
    ${trail.length > 0 && html`<button type="button" class="link" onClick=${back}>← ${trail[trail.length - 1].title}</button>`}
    ${error && html`<p class="error" role="alert">${error.text}</p>`}
    ${!facts && !error && html`<p class="muted" role="status">Deriving …</p>`}
    ${facts && html`<${Deriving.Provider} value=${deeper}>
      <p class="why-number">${(shown || facts.number).text}</p>
      <p>${facts.sentence}</p>
      ${facts.steps.filter((one) => !one.columns).map((one, at) => html`<${Step} key=${at} of=${one} />`)}
      <${Formulas} of=${formula} solved=${crossovers ? crossovers.crossovers : []} waits=${facts.more && !error} />
      ${facts.steps.filter((one) => one.columns).map((one, at) => html`<${Step} key=${at} of=${one} />`)}
      ${facts.compared && html`<section><h3>Bound and expectation</h3><${Rows} rows=${facts.compared.rows} /><p>${facts.compared.text}</p></section>`}
      ${facts.error && html`<section><h3>How sure it is</h3><p>${facts.error}</p></section>`}
      <${Sources} sources=${facts.sources} docs=${facts.docs} />
    </${Deriving.Provider}>`}
  </${Dialog}>`;
}

function Formulas({ of, solved, waits }) {
  if (!of) return waits ? html`<p class="muted" role="status">The formula follows …</p>` : null;
  const changes = [...of.crossovers, ...solved];
  if (!of.formulas.length && !of.notes.length && !changes.length) return null;
  return html`<section><h3>${of.formulas.length > 1 ? "Formulas" : "Formula"}</h3>
    ${of.formulas.map((one) => html`<div class="formula-row" key=${one.name}>
      <p class="formula-name">${one.name} <strong>${one.value}</strong>
        <button type="button" class="quiet small" aria-label=${`Copy the formula of ${one.name}`} title="Copy as text"
          onClick=${() => copyText(one.text)}>copy</button></p>
      <div class="formula-line" tabindex="0" role="group" aria-label=${one.name}><${Maths} tree=${one.math} text=${one.text} /></div>
      ${one.numbers && html`<div class="formula-line formula-numbers" tabindex="0" role="group" aria-label=${`${one.name}, numbers put in`}>
        = <${Maths} tree=${one.put_in} text=${one.numbers} /></div>`}
    </div>`)}
    ${of.notes.map((one) => html`<p class="muted" key=${one}>${one}</p>`)}
    ${changes.length > 0 && html`<h3>Where it changes</h3><ul>${changes.map((one) => html`<li key=${one}>${one}</li>`)}</ul>`}
    ${of.letters.length > 0 && html`<details open><summary>Letters</summary><div class="scroll" tabindex="0" role="group" aria-label="Letters"><table class="letters">
      <thead><tr><th scope="col">letter</th><th scope="col">value</th><th scope="col">what it is</th><th scope="col">from</th></tr></thead>
      <tbody>${of.letters.map((one) => html`<tr key=${one.letter}><th scope="row"><${Maths} tree=${one.math} text=${one.letter} /></th>
        <td>${one.value}</td><td>${one.what}</td><td>${one.from}</td></tr>`)}</tbody></table></div></details>`}
  </section>`;
}

function Step({ of }) {
  if (of.columns) return html`<section><h3>${of.title}</h3><${Lines} of=${of} /></section>`;
  return html`<section><h3>${of.title}</h3>${of.text && html`<p>${of.text}</p>`}<${Rows} rows=${of.rows} total=${of.total} /></section>`;
}

function Rows({ rows, total = null }) {
  if (!rows.length) return null;
  return html`<table class="why-rows"><tbody>
    ${rows.map((one, at) => html`<tr key=${at}><th scope="row">${one.name}</th><td><${Num} of=${one.number} /></td><td class="muted">${one.note}</td></tr>`)}
    ${total && html`<tr class="total"><th scope="row">in all</th><td>${total.text}</td><td></td></tr>`}
  </tbody></table>`;
}

function Lines({ of }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${of.title}><table class="why-lines">
    <thead><tr>${of.columns.map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
    <tbody>${of.lines.map((line, at) => html`<tr key=${at}>${line.map((cell, place) => html`<td key=${place}>
      ${cell && cell.text !== undefined ? html`<${Num} of=${cell} />` : cell}</td>`)}</tr>`)}</tbody>
  </table></div>${of.text && html`<p class="muted">${of.text}</p>`}`;
}

/** @type {HTMLMetaElement | null} */
const DOCS = document.querySelector('meta[name="dragonscale-docs"]');

/** Where a page of the documentation is: on the site around the static edition, or beside the server's own checkout. */
export function docsAddress(page, anchor, beside) {
  if (DOCS) return `${DOCS.content}${page}/${anchor}`;
  return beside ? `docs/${page}.md` : null;
}

/** Where a picture of the documentation is; null where there is none beside the page. */
export function pictureAddress(name, beside) {
  if (!name || !(DOCS || beside)) return null;
  return `${DOCS ? DOCS.content : "docs/"}pictures/${name}.svg`;
}

function Sources({ sources, docs }) {
  const anchor = docs && docs.anchor ? `#${docs.anchor}` : "";
  const catalogue = useContext(Catalogue);
  const address = docs && docsAddress(docs.page, anchor, catalogue && catalogue.docs);
  return html`<section><h3>Sources</h3><ul class="sources">
    ${sources.map((one) => html`<li key=${one.text}>${one.url ? html`<a href=${one.url} rel="noreferrer noopener" target="_blank">${one.text}</a>` : one.text}</li>`)}
    ${docs && html`<li>${address
      ? html`<a href=${address} target="_blank" rel="noopener">Docs: ${docs.page}${anchor}</a>`
      : html`Docs: <code>docs/${docs.page}.md${anchor}</code>`}</li>`}
  </ul></section>`;
}
