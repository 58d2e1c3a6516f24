// A card: a panel of the answer with its heading, a line about it, and a menu that saves what it shows.

import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { saveCsv, saveJson, savePng, saveSvg } from "./save.js";

/** A menu that opens under its button; a click elsewhere or Escape closes it. `items` are {text, run, hint}. */
export function Menu({ label, text, items, className = "" }) {
  const ref = useRef(null);
  const [open, set] = useState(false);
  useEffect(() => {
    if (!open) return undefined;
    const away = (event) => { if (!ref.current.contains(event.target)) set(false); };
    document.addEventListener("pointerdown", away);
    ref.current.querySelector("[role=menuitem]")?.focus();
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const keyed = (event) => {
    const every = [...ref.current.querySelectorAll("[role=menuitem]")];
    const at = every.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: every.length - 1 }[event.key];
    if (open && to != null) { event.preventDefault(); every[(to + every.length) % every.length]?.focus(); }
    if (open && event.key === "Escape") { event.stopPropagation(); set(false); ref.current.querySelector("button").focus(); }
    if (open && event.key === "Tab") set(false);
  };
  return html`<div class=${`menu ${className}`} ref=${ref} onKeyDown=${keyed}>
    <button type="button" class="quiet" aria-haspopup="menu" aria-expanded=${String(open)} aria-label=${label} title=${label} onClick=${() => set(!open)}>${text}</button>
    ${open && html`<div class="menu-list" role="menu" aria-label=${label}>${(typeof items === "function" ? items(ref.current) : items).map((one) => html`<button key=${one.text} type="button"
      role="menuitem" tabindex="-1" onClick=${() => { set(false); one.run(); }}>${one.text}${one.hint && html`<small>${one.hint}</small>`}</button>`)}</div>`}
  </div>`;
}

const ARROW = html`<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><path d="M8 2v8M4.5 7 8 10.5 11.5 7M3 13.5h10" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" /></svg>`;

function saving(element, name, data) {
  const card = element?.closest(".card");
  const drawn = card?.querySelector("svg[data-chart]");
  const file = `dragonscale-${name}`;
  return [
    ...(drawn ? [{ text: "PNG", hint: "picture", run: () => savePng(card, file) }, { text: "SVG", hint: "picture", run: () => saveSvg(card, file) }] : []),
    ...(data ? [{ text: "CSV", hint: "numbers", run: () => saveCsv(data, file) }, { text: "JSON", hint: "numbers", run: () => saveJson(data, file) }] : []),
  ];
}

/** A panel. `data` is what it shows, for the files (null: not there yet, a placeholder is drawn, `height` pixels high, unless there are children);
 * children may be a function, so that nothing is read from data that is not there; `about` is a line under the heading; `wide` takes the whole row; `aside` stands at the right of the heading. */
export function Card({ title, name, data, about, children, wide = false, aside, height = 200 }) {
  const menu = useMemo(() => data && html`<${Menu} label=${`Save ${title}`} text=${ARROW} items=${(element) => saving(element, name, data)} />`, [data, title, name]);
  return html`<section class=${`card${wide ? " card-wide" : ""}`} data-panel=${name} aria-labelledby=${`card-${name}`}>
    <header class="card-head"><div><h2 id=${`card-${name}`}>${title}</h2>${about && html`<p class="about">${about}</p>`}</div>
      <div class="card-tools">${aside}${menu}</div></header>
    <div class="card-body" style=${data ? null : { minHeight: `${height}px` }}>${data ? (typeof children === "function" ? children() : children) : html`<${Skeleton} height=${height} />`}</div>
  </section>`;
}

/** A place that is kept for what is not there yet; a style gives the height where `height` is null. */
export function Skeleton({ height = 120, className = "" }) {
  return html`<div class=${`skeleton ${className}`} style=${height == null ? null : { height: `${height}px` }} aria-hidden="true"></div>`;
}
