// A card inside a page of docs or course: a slider, and what it moves: the answer, its bar, and its formulas with the numbers in. Every
// stop was worked out when the site was made (tools/static_edition/cards.py); nothing is asked.

import { StackBar } from "./charts/stack.js";
import { html, render, useEffect, useState } from "./html.js";
import { Maths } from "./maths.js";
import { useTheme } from "./theme.js";

const name = location.hash.slice(1).replace(/[^\w-]/g, "");
// the docs around it have a theme of their own
const scheme = parent.document.body?.dataset.mdColorScheme;
const around = scheme && (scheme === "slate" ? "dark" : "light");

function Stop({ stop }) {
  const letters = [...new Set(stop.formulas.flatMap((one) => one.letters))];
  return html`<p class="sentence" aria-live="polite">${stop.sentence}</p>
    ${stop.plan && html`<p class="chosen-chip"><span class="chosen-label">Plan</span> <code>${stop.plan}</code></p>`}
    <dl class="card-figures">${stop.figures.map((one) => html`<div key=${one.label}><dt>${one.label}</dt><dd><strong>${one.text}</strong> <small>${one.about}</small></dd></div>`)}</dl>
    <div class="card-formulas">${stop.formulas.map((one) => html`<div key=${one.name}><p class="formula-name">${one.name} <strong>${one.value}</strong></p>
      <div class="formula-line" tabindex="0" role="group" aria-label=${one.name}><${Maths} key=${one.text} tree=${one.math} text=${one.text} /></div>
      ${one.numbers && html`<div class="formula-line formula-numbers" tabindex="0" role="group" aria-label=${`${one.name}, numbers put in`}>= <${Maths} key=${one.numbers} tree=${one.put_in} text=${one.numbers} /></div>`}</div>`)}</div>
    ${letters.length > 0 && html`<details class="card-letters"><summary>What the letters are</summary><ul>${letters.map((one) => html`<li key=${one}>${one}</li>`)}</ul></details>`}
    ${stop.parts.length > 0 && html`<${StackBar} parts=${stop.parts} label="Where the time goes" />`}`;
}

function LiveCard({ data, colours }) {
  const [at, set] = useState(data.start);
  useTheme(colours, around);
  const stop = data.stops[at];
  const most = data.stops.length - 1;
  return html`<section class="card live" aria-label=${data.title}><header class="card-head"><h2>${data.title}</h2>
      <a href=${`index.html${stop.address}`} target="_top">Open in the page</a></header>
    <div class="field field-slider"><label for="stop">${data.label}</label><output for="stop">${stop.text}</output>
      <input id="stop" type="range" min="0" max=${most} step="1" value=${at} aria-valuetext=${stop.text} style=${{ "--part": `${(100 * at) / most}%` }} onInput=${(event) => set(Number(event.currentTarget.value))} /></div>
    <${Stop} stop=${stop} /></section>`;
}

// the frame in the docs is as high as what is in it
function fitted() {
  const frame = window.frameElement;
  if (!frame) return undefined;
  const watch = new ResizeObserver(() => { frame.setAttribute("height", String(document.body.scrollHeight)); });
  watch.observe(document.body);
  return () => watch.disconnect();
}

function Opened() {
  const [found, set] = useState(null);
  useEffect(fitted, []);
  useEffect(() => {
    const read = (path) => fetch(path).then((response) => response.json());
    Promise.all([read(`cards/${name}.json`), read("cards/colours.json")]).then(set, () => set([null, null]));
  }, []);
  if (!found) return html`<p class="muted" role="status">…</p>`;
  return found[0] ? html`<${LiveCard} data=${found[0]} colours=${found[1]} />` : html`<p class="muted">This card is not there; <a href="index.html" target="_top">open the page</a>.</p>`;
}

render(html`<${Opened} />`, document.getElementById("app"));
