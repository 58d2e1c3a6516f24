// The page: a header with the tabs, and the tab that is open.

import { Catalogue, loadCatalogue } from "./catalogue.js";
import { Skeleton } from "./card.js";
import { Edition } from "./edition.js";
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./html.js";
import { openTab, TABS, useAppState } from "./state.js";
import { useTheme } from "./theme.js";
import { TrainTab } from "./tabs/train.js";
import { ServeTab } from "./tabs/serve.js";
import { SimulateTab } from "./tabs/simulate.js";
import { RlTab } from "./tabs/rl.js";
import { OperationsTab } from "./tabs/operations.js";
import { ChipsTab } from "./tabs/chips.js";
import { ModelsTab } from "./tabs/models.js";
import { LearnTab } from "./tabs/learn.js";

const WHAT = "Find out how a Transformer trains and serves on TPUs and GPUs before you rent them: the best plan, its speed and cost, what limits it, and where every number comes from.";
const BODIES = {
  train: TrainTab, serve: ServeTab, simulate: SimulateTab, rl: RlTab, operations: OperationsTab, chips: ChipsTab, models: ModelsTab,
  learn: LearnTab,
};

function ThemeIcon({ theme }) {
  return html`<svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round">
    ${theme === "dark"
      ? html`<circle cx="9" cy="9" r="3.2" /><path d="M9 1.5v1.6M9 14.9v1.6M1.5 9h1.6M14.9 9h1.6M3.7 3.7l1.1 1.1M13.2 13.2l1.1 1.1M3.7 14.3l1.1-1.1M13.2 4.8l1.1-1.1" />`
      : html`<path d="M15.5 10.6A6.8 6.8 0 0 1 7.4 2.5a6.8 6.8 0 1 0 8.1 8.1Z" stroke-linejoin="round" />`}</svg>`;
}

/** A tab that fails to draw says so and leaves the others alone. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((one) => console.error(one));
  if (error) {
    return html`<div class="loading" role="alert"><p>This tab could not be drawn (${String(error.message || error)}).</p>
      <p><button type="button" class="button" onClick=${reset}>Try again</button></p></div>`;
  }
  return children;
}

function Header({ state, chips, theme, toggle }) {
  const tabs = useRef(null);
  // on a phone the open tab may lie beyond the edge
  useLayoutEffect(() => {
    const [bar, open] = [tabs.current, tabs.current.querySelector("[aria-current]")];
    if (open) bar.scrollLeft = open.offsetLeft - (bar.clientWidth - open.offsetWidth) / 2;
  }, [state.tab]);
  // an edge fades where tabs go on beyond it
  useLayoutEffect(() => {
    const bar = tabs.current;
    const fade = () => {
      bar.classList.toggle("tabs-more-left", bar.scrollLeft > 4);
      bar.classList.toggle("tabs-more-right", bar.scrollLeft + bar.clientWidth < bar.scrollWidth - 4);
    };
    const observer = new ResizeObserver(fade);
    observer.observe(bar);
    bar.addEventListener("scroll", fade, { passive: true });
    fade();
    return () => { observer.disconnect(); bar.removeEventListener("scroll", fade); };
  }, []);
  return html`<header class="top">
    <h1 class="brand"><img src="icon.svg" alt="" width="22" height="22" /> Dragonscale</h1>
    <nav class="tabs" aria-label="Questions" ref=${tabs}>
      ${TABS.map((tab) => html`<a key=${tab.name} href=${`#${tab.name}`} aria-current=${tab.name === state.tab ? "page" : null}
        onClick=${(event) => { event.preventDefault(); openTab(tab.name, chips); }}>${tab.title}</a>`)}
    </nav>
    <button type="button" class="quiet icon" onClick=${toggle} aria-label=${`Use the ${theme === "dark" ? "light" : "dark"} theme`}>
      <${ThemeIcon} theme=${theme} /></button>
  </header>`;
}

/** The places of the form and the answer, kept while the planner is not there yet. */
function Waiting({ error, retry }) {
  if (error) return html`<div class="loading" role="alert"><p>${error.message}</p><p><button type="button" class="button" onClick=${retry}>Try again</button></p></div>`;
  return html`<aside class="form" aria-hidden="true"><div class="opening">${[56, 56, 120, 56, 56].map((height, at) => html`<${Skeleton} key=${at} height=${height} />`)}</div></aside>
    <section class="answer" aria-busy="true" aria-label="Answer"><${Skeleton} height=${64} /><${Skeleton} height=${86} /><div class="cards">
      ${[1, 2, 3, 4].map((at) => html`<${Skeleton} key=${at} height=${320} />`)}</div></section>`;
}

function App() {
  const state = useAppState();
  const [{ catalogue, error }, set] = useState({});
  const load = () => { set({}); loadCatalogue().then((found) => set({ catalogue: found }), (problem) => set({ error: problem })); };
  useEffect(load, []);
  const [theme, toggle] = useTheme(catalogue ? catalogue.colours : null);
  useEffect(() => { document.title = `${TABS.find((tab) => tab.name === state.tab).title} · Dragonscale`; }, [state.tab]);
  const Body = BODIES[state.tab];
  return html`<${Catalogue.Provider} value=${catalogue}>
    <a class="skip" href="#answer" onClick=${(event) => { event.preventDefault(); document.getElementById("answer")?.focus(); }}>
      Skip to the answer</a>
    <${Header} state=${state} chips=${catalogue?.chips} theme=${theme} toggle=${toggle} />
    <main class=${`tab tab-${state.tab}`}><p class="what">${WHAT}</p>${catalogue
      ? html`<${Guarded} key=${state.tab}><${Body} state=${state} /></${Guarded}>`
      : html`<${Waiting} error=${error} retry=${load} />`}</main>
    <${Edition} />
  </${Catalogue.Provider}>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
