// The planner in a Web Worker: Python (Pyodide), NumPy and Dragonscale, unpacked from archives that lie beside the page.
// In: {id, request} and {id, cancel: true}. Out: {id, message}, the message as JSON text, as the server would send it.

import { loadPyodide } from "../planner/pyodide.mjs";
import { rankOf, urgent } from "./schedule.js";

const PLANNER = new URL("../planner/", import.meta.url).href;
const PACKAGES = "/lib/python3.12/site-packages";

const queue = [];
const running = []; // what is being answered: the last began while those before it rested
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

/** Answer what waits, the most urgent first; `rank` of what runs meanwhile, which only something more urgent may pass. */
async function work(rank = Infinity) {
  if (answerInWorker === null && failed === null) return;
  for (let at = urgent(queue, rank); at >= 0; at = urgent(queue, rank)) {
    const [asked] = queue.splice(at, 1);
    running.push(asked);
    await answerOne(asked);
    running.splice(running.indexOf(asked), 1);
    // Through the event loop, so that what was cancelled in the meantime is dropped and not begun.
    await rest();
  }
}

const rest = () => new Promise((resolve) => { setTimeout(resolve, 0); });

async function answerOne(asked) {
  const { id, request } = asked;
  const hear = (text) => { if (!asked.cancelled) post(id, text); };
  // while this one rests, what is more urgent is answered, and only then does it go on
  const resting = async () => { await rest(); await work(rankOf(request)); };
  try {
    if (failed) throw failed;
    await answerInWorker.callPromising(JSON.stringify(request), hear, () => asked.cancelled === true, resting);
  } catch (error) {
    const last = String(error.message || error).trim().split("\n").pop();
    post(id, { error: { kind: "fault", text: `The planner failed in this browser (${last}).` } });
  }
}

self.onmessage = ({ data }) => {
  if (data.cancel) {
    const at = queue.findIndex(({ id }) => id === data.id);
    if (at >= 0) queue.splice(at, 1);
    for (const one of running) if (one.id === data.id) one.cancelled = true;
    return;
  }
  queue.push(data);
  if (!running.length) work();
};

start().catch((error) => { failed = error; told(1, ""); }).then(() => work());
