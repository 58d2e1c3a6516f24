// Who answers: the server the page came from, or the planner in a worker of this browser (the static edition).
// Both take the same request and give the same messages: {progress}, {note}, {panel, data}, {done} or {error}.

const meta = document.querySelector('meta[name="dragonscale-backend"]');
/** "server" or "worker". */
export const kind = meta ? meta.content : "server";

/** A name for this tab: the server sends a tab's questions to the process that remembers its last answers. */
export const tab = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Ask; `heard` gets every message. Resolves when the answer is whole, and silently when `signal` aborts it. */
export async function ask(request, heard, signal) {
  try {
    await (kind === "worker" ? askWorker : askServer)(request, heard, signal);
  } catch (error) {
    if (signal && signal.aborted) return;
    heard({ error: { kind: "network", text: `The planner cannot be reached (${error.message}).` } });
  }
}

async function askServer(request, heard, signal) {
  await hearLines(await fetch("api/ask", {
    method: "POST", headers: { "content-type": "application/json", "x-dragonscale-tab": tab }, body: JSON.stringify(request), signal,
  }), heard);
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

let worker = null;
const waiting = new Map();
let last = 0;

function askWorker(request, heard, signal) {
  if (worker === null) {
    worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => {
      const message = JSON.parse(data.message);
      const one = waiting.get(data.id);
      if (one) one(message);
    };
  }
  const id = ++last;
  return new Promise((resolve) => {
    const end = () => { waiting.delete(id); resolve(); };
    waiting.set(id, (message) => {
      heard(message);
      if (message.done || message.error) end();
    });
    if (signal) signal.addEventListener("abort", () => { worker.postMessage({ id, cancel: true }); end(); });
    worker.postMessage({ id, request });
  });
}
