// The planner in a Web Worker: Python (Pyodide), NumPy and Dragonscale, unpacked from archives that lie beside the page.
// In: {id, request} and {id, cancel: true}. Out: {id, message}, the message as JSON text, as the server would send it.

import { loadPyodide } from "../planner/pyodide.mjs";

const PLANNER = new URL("../planner/", import.meta.url).href;
const PACKAGES = "/lib/python3.12/site-packages";
const PAUSE_MS = 40;

const queue = [];
let running = null;
let answerText = null;
let failed = null;
let paused = 0;

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
  const manifest = fetch(`${PLANNER}manifest.json`).then((response) => response.json());
  const archives = manifest.then(({ first }) => Promise.all(first.map(bytes)));
  const python = await loadPyodide({ indexURL: PLANNER, lockFileURL: `${PLANNER}pyodide-lock.json`, fullStdLib: false });
  for (const archive of await archives) python.unpackArchive(archive, "zip", { extractDir: PACKAGES });
  const { late, missing } = await manifest;
  const planner = python.pyimport("dragonscale.web.in_browser");
  planner.install(python.toPy(late), python.toPy(missing), PACKAGES, (name) => python.toPy(bytesNow(name)));
  answerText = planner.answer_text;
  // Where the browser can suspend WebAssembly, a long search lets messages in and so hears that nobody waits for it.
  const { can_run_sync: canWait, run_sync: wait } = python.pyimport("pyodide.ffi");
  pause = () => {
    if (performance.now() - paused < PAUSE_MS || !canWait()) return;
    wait(new Promise((resolve) => { setTimeout(resolve, 0); }));
    paused = performance.now();
  };
}

let pause = () => {};

async function work() {
  if (running !== null || queue.length === 0 || (answerText === null && failed === null)) return;
  running = queue.shift();
  const { id, request } = running;
  try {
    if (failed) throw failed;
    paused = performance.now();
    const unwanted = () => { pause(); return running.cancelled === true; };
    await answerText.callPromising(JSON.stringify(request), (text) => { if (!running.cancelled) post(id, text); }, unwanted);
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
  if (answerText === null) post(data.id, { note: "The planner is being loaded into this browser …" });
  work();
};

start().catch((error) => { failed = error; }).then(work);
