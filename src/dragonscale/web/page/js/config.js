// The field for a model: search among the presets, type org/name of the Hub, or drop a config.json.

import { kind } from "./backend.js";
import { Catalogue } from "./catalogue.js";
import { html, useContext, useEffect, useRef, useState } from "./html.js";
import { askOnce, useAnswer } from "./live.js";
import { change, current } from "./state.js";

const SHOWN = 60;
const LARGEST = 256000;

/** The dropped configs that a request needs: the one that its field names. */
export function droppedFor(state, fields) {
  const text = state.dropped[fields.model];
  return text ? { [fields.model]: text } : {};
}

/** Presets that a text fits, those whose name begins with it first. */
export function fitting(presets, text) {
  const words = text.toLowerCase().split(/[\s/]+/).filter(Boolean);
  const found = presets.filter((one) => words.every((word) => `${one.name} ${one.family} ${one.parameters}`.toLowerCase().includes(word)));
  const rank = (one) => (one.name.startsWith(words[0] || "") ? 0 : 1);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, SHOWN);
}

/** Read a dropped file and make it the model: resolves to the sentence of what is wrong, or "". */
async function take(file, onChange) {
  if (file.size > LARGEST) return `${file.name} has ${file.size.toLocaleString("en")} bytes; a model's config.json has a few thousand.`;
  const text = await file.text();
  const { panels, error } = await askOnce({ view: "models", dropped: { [file.name]: text }, panels: ["config"] });
  if (error) return error.text;
  const made = panels.config;
  change({ dropped: { ...current().dropped, [made.name]: made.text } }, true);
  onChange(made.name);
  return made.in_address ? "" : `The config is too long for an address (${made.characters.toLocaleString("en")} characters): a link to this page will not hold it.`;
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

/** A model: `onChange` hears its name; a dropped config goes to the state under that name first. */
export function ModelField({ value = "", dropped = {}, onChange, label = "Model" }) {
  const { presets } = useContext(Catalogue);
  const [text, setText] = useState(value);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const [wrong, setWrong] = useState("");
  const id = useRef(`m${Math.random().toString(36).slice(2)}`).current;
  const file = useRef(null);
  useEffect(() => { setText(value); setWrong(""); }, [value]);
  const own = dropped[value] ? { [value]: dropped[value] } : {};
  const answer = useAnswer(value ? { view: "models", fields: { model: value }, dropped: own, panels: ["line"] } : null);
  const taken = async (one) => { const said = await take(one, onChange); setWrong(said); };
  const over = useDrop(taken);
  const found = open ? fitting(presets, text === value ? "" : text) : [];
  const choose = (name) => { setOpen(false); setAt(-1); setText(name); if (name !== value) onChange(name); };
  const keys = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      setAt((old) => Math.max(-1, Math.min(found.length - 1, old + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Enter") choose(at >= 0 && found[at] ? found[at].name : text.trim());
    else if (event.key === "Escape") { setOpen(false); setText(value); }
  };
  useEffect(() => { if (at >= 0) document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: "nearest" }); }, [at]);
  const line = answer.panels.line;
  const error = answer.error && modelError(answer.error.text, value);
  const named = Object.keys(dropped).filter((name) => name.toLowerCase().includes(text === value ? "" : text.toLowerCase()));
  return html`<div class=${`field model-field ${over ? "dropping" : ""}`}>
    <label for=${id}>${label}</label>
    <div class="model-input">
      <input id=${id} type="text" role="combobox" aria-expanded=${open} aria-controls=${`${id}-list`} aria-autocomplete="list"
        aria-activedescendant=${open && at >= 0 ? `${id}-${at}` : null} aria-invalid=${error ? "true" : null} aria-describedby=${`${id}-said`}
        spellcheck="false" autocomplete="off" value=${text} placeholder="preset or org/name"
        onFocus=${(event) => { setOpen(true); event.target.select(); }} onInput=${(event) => { setText(event.target.value); setOpen(true); setAt(-1); }}
        onKeyDown=${keys} onBlur=${() => { setOpen(false); if (text.trim() && text.trim() !== value) onChange(text.trim()); }} />
      <button type="button" class="quiet" title="Read a model's config.json" aria-label="Read a model's config.json from a file"
        onClick=${() => file.current.click()}>config.json</button>
      <input ref=${file} type="file" accept=".json,application/json" hidden
        onChange=${(event) => { const [one] = event.target.files; event.target.value = ""; if (one) taken(one); }} />
    </div>
    <ul id=${`${id}-list`} role="listbox" aria-label="Models" class="model-list" hidden=${!open || !(found.length + named.length)}>
      ${open && found.map((one, place) => html`<li key=${one.name} id=${`${id}-${place}`} role="option" aria-selected=${place === at}
        onMouseDown=${(event) => { event.preventDefault(); choose(one.name); }}>
        <span>${one.name}</span> <span class="dim">${one.parameters} · ${one.family}</span></li>`)}
      ${open && named.map((name) => html`<li key=${`file ${name}`} role="option" aria-selected="false"
        onMouseDown=${(event) => { event.preventDefault(); choose(name); }}><span>${name}</span> <span class="dim">dropped</span></li>`)}
    </ul>
    <p id=${`${id}-said`} class=${error || wrong ? "said error" : "said dim"} role=${error || wrong ? "alert" : null}>
      ${wrong || error || (line && line.name ? `${line.text}${dropped[value] ? ", from the dropped config" : ""}` : "")}</p>
    ${over && html`<p class="drop-here" aria-hidden="true">Drop a model's config.json</p>`}
  </div>`;
}

/** The planner's sentence; in the static edition also what needs the server. */
function modelError(text, value) {
  if (kind === "worker" && value.includes("/")) {
    return `${value} is no preset; fetching a model from the Hub needs the server (dscale web). Drop its config.json here instead.`;
  }
  return text;
}
