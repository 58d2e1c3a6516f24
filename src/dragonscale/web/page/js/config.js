// The field for a model: search among the presets, type org/name of the Hub, or drop a config.json.

import { kind } from "./backend.js";
import { Catalogue } from "./catalogue.js";
import { Combobox } from "./combobox.js";
import { Complaint } from "./form.js";
import { html, useContext, useEffect, useMemo, useRef, useState } from "./html.js";
import { askOnce, useAnswer } from "./live.js";
import { change, current } from "./state.js";

const LARGEST = 256000;

/** The dropped files that a request needs: the config and the trace that its fields name. */
export function droppedFor(state, fields) {
  const named = [fields.model, fields.trace].filter((name) => name && state.dropped[name]);
  return Object.fromEntries(named.map((name) => [name, state.dropped[name]]));
}

/** Read a dropped file and make it the model: resolves to {error} or {note}, sentences, or to nothing to say. */
async function take(file, onChange) {
  const bytes = (many) => many.toLocaleString("en-US");
  if (file.size > LARGEST) return { error: `${file.name} has ${bytes(file.size)} bytes; a model's config.json has a few thousand.` };
  const text = await file.text();
  const { panels, error } = await askOnce({ view: "models", dropped: { [file.name]: text }, panels: ["config"] });
  if (error) return { error: error.text };
  const made = panels.config;
  change({ dropped: { ...current().dropped, [made.name]: made.text } }, true);
  onChange(made.name);
  return made.in_address ? {} : { note: `Too long for an address (${bytes(made.characters)} characters): a link to this page will not hold it.` };
}

/** Files dropped anywhere on the page while this is shown; says whether one is held over it. */
function useDrop(onFile) {
  const [over, set] = useState(false);
  const heard = useRef(onFile);
  heard.current = onFile;
  useEffect(() => {
    const files = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
    const drag = (event) => { if (files(event)) { event.preventDefault(); set(true); } };
    const leave = (event) => { if (!event.relatedTarget) set(false); };
    const drop = (event) => {
      if (!files(event)) return;
      event.preventDefault();
      set(false);
      if (event.dataTransfer.files[0]) heard.current(event.dataTransfer.files[0]);
    };
    const all = { dragover: drag, dragleave: leave, drop };
    for (const [name, listener] of Object.entries(all)) window.addEventListener(name, listener);
    return () => { for (const [name, listener] of Object.entries(all)) window.removeEventListener(name, listener); };
  }, []);
  return over;
}

/** The planner's complaint about a model; in the static edition also what needs the server. */
function told(error, value) {
  if (!error) return null;
  const hub = kind === "worker" && value.includes("/");
  const text = `${value} is no preset, and a config of the Hub is fetched by the server (dscale web) only; drop its config.json here instead.`;
  return { kind: "input", text: hub ? `The model ${text}` : error.text };
}

/** A model: `onChange` hears its name; a dropped config goes to the state under that name first. */
export function ModelField({ value = "", dropped = {}, onChange, label = "Model", placeholder = "preset or org/name" }) {
  const { presets } = useContext(Catalogue);
  const [said, say] = useState({});
  const file = useRef(null);
  const choices = useMemo(() => [
    ...Object.keys(dropped).map((name) => ({ value: name, about: "dropped" })),
    ...presets.map((one) => ({ value: one.name, about: `${one.parameters} · ${one.family}` })),
  ], [presets, dropped]);
  const own = dropped[value] ? { [value]: dropped[value] } : {};
  const answer = useAnswer(value ? { view: "models", fields: { model: value }, dropped: own, panels: ["line"] } : null);
  useEffect(() => { if (!dropped[value]) say({}); }, [value]);
  const taken = async (one) => say(await take(one, onChange));
  const over = useDrop(taken);
  const { line } = answer.panels;
  const fresh = line && answer.asked && answer.asked.fields.model === value && !answer.error;
  const about = said.note || (value && fresh ? `${line.text}${dropped[value] ? ", from the dropped config" : ""}` : "");
  const complaint = said.error ? { kind: "input", text: `The model: ${said.error}` } : value ? told(answer.error, value) : null;
  const button = html`<button type="button" class="quiet small model-file" title="Read a model's config.json (or drop one on the page)"
    aria-label="Read a model's config.json from a file" onClick=${() => file.current.click()}>file</button>`;
  return html`<div class="model-field"><${Complaint.Provider} value=${complaint}>
    <${Combobox} label=${label} name="model" value=${value} choices=${choices} onChange=${onChange} about=${about || " "} placeholder=${placeholder} after=${button} />
  </${Complaint.Provider}>
    <input ref=${file} type="file" accept=".json,application/json" hidden aria-label="A model's config.json"
      onChange=${(event) => { const [one] = event.target.files; event.target.value = ""; if (one) taken(one); }} />
    ${over && html`<p class="drop-here" aria-hidden="true">Drop a model's config.json</p>`}
  </div>`;
}
