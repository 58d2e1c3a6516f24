// The whole state of the page, and its address: #train?model=llama3-70b&on=v5p:8x16x16&batch=4Mi …
// A tab's fields are those of its command, written as on the command line; so the address, the command line and the
// request to the planner say the same thing. `view` holds what is only about looking (open panels, compared plans).

import { useEffect, useState } from "./html.js";
import { carriedSlice } from "./slices.js";

export const TABS = [
  { name: "train", title: "Train" }, { name: "serve", title: "Serve" }, { name: "simulate", title: "Simulate" },
  { name: "rl", title: "RL" },
  { name: "operations", title: "Roofline and sharding" }, { name: "chips", title: "Chips" }, { name: "models", title: "Models" },
  { name: "learn", title: "Learn" },
];
/** What the tabs open with; `first.json` has the answers to the first two (tools/static_edition/first_answers.py). */
export const START = {
  train: { model: "llama3-70b", on: "v5p:8x16x16", batch: "4Mi", seq: "8192" },
  serve: { model: "llama3-70b", on: "h100:8", prompt: "2048", output: "512", ttft: "1s", tpot: "50ms" },
  simulate: {
    model: "llama3-70b", on: "h100:8", replicas: "4", prompt: "2048", output: "256", rate: "24/s", requests: "2000", ttft: "500ms", tpot: "40ms",
  },
  rl: { model: "llama3-8b", on: "h100:16", algorithm: "grpo", prompts: "64", samples: "16", prompt: "512", output: "4096" },
  operations: {}, chips: {}, models: {}, learn: {},
};
const SHARED = ["model", "on"];
/** Characters of a dropped config that an address still holds (views/models.py says so to the reader). */
const LONGEST_FILE = 6000;
const LONGEST_SAID = 1500;
const SAID = "view.said";

function initial() {
  return { tab: "train", fields: structuredClone(START), view: {}, dropped: {} };
}

/** A state from an address; what the address does not say is as when the page opens. */
export function readAddress(hash) {
  const state = initial();
  const [tab, query = ""] = decodeHash(hash);
  if (TABS.some((one) => one.name === tab)) state.tab = tab;
  const given = new URLSearchParams(query);
  if ([...given].length) state.fields[state.tab] = {};
  for (const [name, value] of given) {
    if (name === SAID) continue;
    if (name.startsWith("view.")) state.view[name.slice(5)] = value;
    else if (name.startsWith("file.")) state.dropped[name.slice(5)] = quotes(value);
    else state.fields[state.tab][name] = value === "yes" ? true : value;
  }
  return state;
}

function decodeHash(hash) {
  const text = hash.replace(/^#/, "");
  const at = text.indexOf("?");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** The address of a state. */
export function writeAddress(state) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(state.fields[state.tab])) {
    if (value !== "" && value !== false && value != null) query.set(name, value === true ? "yes" : value);
  }
  for (const [name, value] of Object.entries(state.view)) if (value) query.set(`view.${name}`, value);
  for (const [name, text] of Object.entries(state.dropped)) {
    if ([state.fields[state.tab].model, state.fields[state.tab].trace].includes(name) && text.length <= LONGEST_FILE) query.set(`file.${name}`, quotes(text));
  }
  // these signs are allowed in a fragment and read better than their escapes
  return `#${state.tab}?${query}`.replace(/%(3A|3D|2C|2F|27|7B|7D|5B|5D)/g, (escaped) => decodeURIComponent(escaped));
}

/** A config with its two kinds of quotes exchanged, as an address holds it: double ones would each take three signs there. */
function quotes(text) {
  return text.replace(/["']/g, (sign) => (sign === '"' ? "'" : '"'));
}

let state = readAddress(location.hash);

const opened = { address: writeAddress(state), said: readSaid(location.hash) };

/** What the link that was opened says of its own answer ({sentence, figures: [[label, text]]}); null where it says nothing or another question is open. */
export const linkedAnswer = () => (writeAddress(state) === opened.address ? opened.said : null);

function readSaid(hash) {
  const text = new URLSearchParams(decodeHash(hash)[1] || "").get(SAID) || "";
  try {
    const { sentence, figures } = JSON.parse(text);
    const fits = typeof sentence === "string" && Array.isArray(figures) && figures.every((one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === "string"));
    return fits && text.length < LONGEST_SAID ? { sentence, figures } : null;
  } catch {
    return null;
  }
}

/** The address with what its answer says inside. */
export function addressSaying(sentence, figures) {
  const text = JSON.stringify({ sentence, figures });
  const address = `${location.href.split("#")[0]}${writeAddress(state)}`;
  return sentence && text.length < LONGEST_SAID ? `${address}&${new URLSearchParams({ [SAID]: text })}` : address;
}
const listeners = new Set();

/** The state as it is now. */
export const current = () => state;

/** Change the state; `replace` keeps the browser's history as it is (while a slider moves). */
export function change(next, replace = false) {
  state = typeof next === "function" ? next(state) : { ...state, ...next };
  const address = writeAddress(state);
  if (address !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", address);
  for (const listener of listeners) listener();
}

/** Change fields of a tab. */
export function setFields(changes, replace = false, tab = state.tab) {
  change((old) => ({ ...old, fields: { ...old.fields, [tab]: { ...old.fields[tab], ...changes } } }), replace);
}

/** Change what is only about looking. */
export function setView(changes, replace = true) {
  change((old) => ({ ...old, view: { ...old.view, ...changes } }), replace);
}

/** A fleet's replicas are small; the chips of a training run are not what one takes for them. */
const replicaOnly = (from, to, name) => name === "on" && from === "train" && (to === "simulate" || to === "rl");

/** Go to a tab; the model and the chips go along where both tabs have them (`chips` is the catalogue's list), of a training run one node. */
export function openTab(tab, chips = []) {
  change((old) => {
    const carried = Object.fromEntries(SHARED.filter((name) => START[tab][name] && old.fields[old.tab][name] && !replicaOnly(old.tab, tab, name))
      .map((name) => [name, old.fields[old.tab][name]]));
    if (carried.on) carried.on = carriedSlice(chips, old.tab, tab, carried.on, old.fields[tab].on);
    return { ...old, tab, view: {}, fields: { ...old.fields, [tab]: { ...old.fields[tab], ...carried } } };
  });
}

/** The state of the address that was gone to; files that are too large for it and the other tabs' fields stay. */
function goneTo(hash) {
  const read = readAddress(hash);
  return { ...read, fields: { ...state.fields, [read.tab]: read.fields[read.tab] }, dropped: { ...state.dropped, ...read.dropped } };
}

window.addEventListener("popstate", () => {
  state = goneTo(location.hash);
  for (const listener of listeners) listener();
});
window.addEventListener("hashchange", () => {
  if (location.hash !== writeAddress(state)) {
    state = goneTo(location.hash);
    for (const listener of listeners) listener();
  }
});

/** The state, in a component that is drawn anew when it changes. */
export function useAppState() {
  const [seen, set] = useState(state);
  useEffect(() => {
    const listener = () => set(state);
    listeners.add(listener);
    listener();
    return () => listeners.delete(listener);
  }, []);
  return seen;
}
