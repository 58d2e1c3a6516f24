// The page: a header with the tabs, and the tab that is open.

import { Catalogue, loadCatalogue } from "./catalogue.js";
import { html, render, useEffect, useState } from "./html.js";
import { openTab, TABS, useAppState } from "./state.js";
import { useTheme } from "./theme.js";
import { TrainTab } from "./tabs/train.js";
import { ServeTab } from "./tabs/serve.js";
import { SimulateTab } from "./tabs/simulate.js";
import { OperationsTab } from "./tabs/operations.js";
import { ChipsTab } from "./tabs/chips.js";
import { ModelsTab } from "./tabs/models.js";

const BODIES = {
  train: TrainTab, serve: ServeTab, simulate: SimulateTab, operations: OperationsTab, chips: ChipsTab, models: ModelsTab,
};

function App({ catalogue }) {
  const state = useAppState();
  const [theme, toggle] = useTheme(catalogue.colours);
  const Body = BODIES[state.tab];
  return html`<${Catalogue.Provider} value=${catalogue}>
    <a class="skip" href="#answer" onClick=${(event) => { event.preventDefault(); document.getElementById("answer")?.focus(); }}>
      Skip to the answer</a>
    <header class="top">
      <p class="brand"><img src="icon.svg" alt="" width="24" height="24" /> Dragonscale</p>
      <nav aria-label="Questions">
        ${TABS.map((tab) => html`<a key=${tab.name} href=${`#${tab.name}`} aria-current=${tab.name === state.tab ? "page" : null}
          onClick=${(event) => { event.preventDefault(); openTab(tab.name); }}>${tab.title}</a>`)}
      </nav>
      <button type="button" class="quiet" onClick=${toggle} aria-label=${`Use the ${theme === "dark" ? "light" : "dark"} theme`}>
        ${theme === "dark" ? "☀" : "☾"}</button>
    </header>
    <main class=${`tab tab-${state.tab}`}><${Body} key=${state.tab} state=${state} /></main>
  </${Catalogue.Provider}>`;
}

function Opening() {
  const [found, set] = useState({});
  useEffect(() => {
    loadCatalogue().then((catalogue) => set({ catalogue }), (error) => set({ error }));
  }, []);
  if (found.error) return html`<p class="loading" role="alert">${found.error.message}</p>`;
  return found.catalogue ? html`<${App} catalogue=${found.catalogue} />` : html`<p class="loading">Loading …</p>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${Opening} />`, root);
