// The planner in a Web Worker: Python (Pyodide), NumPy and Dragonscale, unpacked from archives that lie beside the page.
// In: {id, request} and {id, cancel: true}. Out: {id, message}, the message as JSON text, as the server would send it.

import { loadPyodide } from "../planner/pyodide.mjs";

const PLANNER = new URL("../planner/", import.meta.url).href;
const PACKAGES = "/lib/python3.12/site-packages";

const queue = [];
let running = null;
let answerInWorker = null;
let failed = null;

const post = (id, message) => self.postMessage({ id, message: typeof message === "string" ? message : JSON.stringify(message) });

async function bytes(name) {
  const response = await fetch(PLANNER + name);
  if (!response.ok) throw new Error(`${name}: status ${response.status}`);
  return response.arrayBuffer();
}

/** An archive at once: Python's import cannot wait for a promise, and a worker may block. */
function bytesNow(name) {
  const request = new XMLHttpRequest();
  request.open("GET", PLANNER + name, false);
  request.responseType = "arraybuffer";
  request.send();
  if (request.status !== 200) throw new Error(`${name}: status ${request.status}`);
  return new Uint8Array(request.response);
}

async function start() {
  told(0.05, "Python");
  const manifest = fetch(`${PLANNER}manifest.json`).then((response) => response.json());
  const archives = manifest.then(({ first }) => Promise.all(first.map(bytes)));
  const python = await loadPyodide({ indexURL: PLANNER, lockFileURL: `${PLANNER}pyodide-lock.json`, fullStdLib: false });
  told(0.5, "NumPy and the planner");
  for (const archive of await archives) python.unpackArchive(archive, "zip", { extractDir: PACKAGES });
  told(0.75, "the planner");
  const { late, missing } = await manifest;
  const packages = python.pyimport("dragonscale.web.late_packages");
  packages.install(python.toPy(late), python.toPy(missing), PACKAGES, (name) => python.toPy(bytesNow(name)));
  answerInWorker = python.pyimport("dragonscale.web.in_browser").answer_in_worker;
  told(1, "");
}

/** How far the start is, for the page to show. */
function told(progress, what) {
  self.postMessage({ id: 0, message: JSON.stringify({ loading: progress, what }) });
}

async function work() {
  if (running !== null || queue.length === 0 || (answerInWorker === null && failed === null)) return;
  running = queue.shift();
  const { id, request } = running;
  const hear = (text) => { if (!running.cancelled) post(id, text); };
  const rest = () => new Promise((resolve) => { setTimeout(resolve, 0); });
  try {
    if (failed) throw failed;
    await answerInWorker.callPromising(JSON.stringify(request), hear, () => running.cancelled === true, rest);
  } catch (error) {
    const last = String(error.message || error).trim().split("\n").pop();
    post(id, { error: { kind: "fault", text: `The planner failed in this browser (${last}).` } });
  }
  running = null;
  // Through the event loop, so that what was cancelled in the meantime is dropped and not begun.
  setTimeout(work, 0);
}

self.onmessage = ({ data }) => {
  if (data.cancel) {
    const at = queue.findIndex(({ id }) => id === data.id);
    if (at >= 0) queue.splice(at, 1);
    if (running !== null && running.id === data.id) running.cancelled = true;
    return;
  }
  queue.push(data);
  work();
};

start().catch((error) => { failed = error; told(1, ""); }).then(work);
