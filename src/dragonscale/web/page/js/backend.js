// Who answers: the server the page came from, or the planner in a worker of this browser (the static edition).
// Both take the same request and give the same messages: {progress}, {note}, {panel, data}, {done} or {error}.

import { scheduled } from "./schedule.js";

/** @type {HTMLMetaElement | null} */
const meta = document.querySelector('meta[name="dragonscale-backend"]');
/** "server" or "worker". */
export const kind = meta ? meta.content : "server";


/** Ask; `heard` gets every message. Resolves when the answer is whole, and silently when `signal` aborts it. What searches behind the
 * page waits for all else of this tab. */
export const ask = scheduled(send);

async function send(request, heard, signal) {
  try {
    await (kind === "worker" ? askWorker : askServer)(request, heard, signal);
  } catch (error) {
    if (signal && signal.aborted) return;
    heard({ error: { kind: "network", text: `The planner cannot be reached (${error.message}).` } });
  }
}

async function askServer(request, heard, signal) {
  let ended = false;
  await hearLines(await fetch("api/ask", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request), signal,
  }), (message) => {
    ended = ended || Boolean(message.done || message.error);
    heard(message);
  });
  if (!ended) throw new Error("the answer broke off");
}

/** Read a response of lines of JSON; `heard` gets each. */
export async function hearLines(response, heard) {
  if (!response.ok && !(response.headers.get("content-type") || "").includes("json")) {
    throw new Error(`status ${response.status}`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value || "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line) heard(JSON.parse(line));
    if (done) return;
  }
}

const waiting = new Map();
const listeners = new Set();
let loaded = { loading: kind === "worker" ? 0 : 1, what: "" };
function setLoaded(message) { loaded = message; }

/** Hear how far the planner is loaded into this browser, from 0 to 1, and what comes next; returns how to stop. */
export function onLoading(hear) {
  hear(loaded);
  listeners.add(hear);
  return () => listeners.delete(hear);
}

let last = 0;
// Begun when the page has been drawn, which must not wait for it, and before anybody has filled in the form.
const worker = kind === "worker" ? drawnOnce().then(startWorker) : null;

function drawnOnce() {
  return new Promise((resolve) => { if (window.requestIdleCallback) window.requestIdleCallback(resolve, { timeout: 1500 }); else setTimeout(resolve, 300); });
}

function startWorker() {
  const made = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  made.onmessage = ({ data }) => {
    const message = JSON.parse(data.message);
    if (message.loading == null) waiting.get(data.id)?.(message);
    else for (const hear of [setLoaded, ...listeners]) hear(message);
  };
  made.onerror = ({ message }) => {
    const text = `The planner could not be started in this browser (${message || "it has no module workers"}).`;
    for (const hear of waiting.values()) hear({ error: { kind: "network", text } });
  };
  return made;
}

async function askWorker(request, heard, signal) {
  if (request.view === "catalogue") {
    // Worked out when the edition was built: the form need not wait for the planner.
    const response = await fetch(new URL("../planner/catalogue.json", import.meta.url), { signal });
    heard({ panel: "catalogue", data: await response.json() });
    heard({ done: true });
    return;
  }
  const id = ++last;
  const planner = await worker;
  if (signal && signal.aborted) return;
  await new Promise((/** @type {(done?: any) => void} */ resolve) => {
    const end = () => { waiting.delete(id); resolve(); };
    waiting.set(id, (message) => {
      heard(message);
      if (message.done || message.error) end();
    });
    if (signal) signal.addEventListener("abort", () => { planner.postMessage({ id, cancel: true }); end(); });
    planner.postMessage({ id, request });
  });
}
