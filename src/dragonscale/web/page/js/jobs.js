// Jobs: questions that take a compiler and most of a minute. They run beside the page on its server, one at a time, and go on
// where the page is reloaded; so there is none in the static edition.

import { hearLines, kind } from "./backend.js";

/** Whether jobs can be run here at all. */
export const hasJobs = kind === "server";

/** Run a job ("verify") with the fields of its command. `heard` gets {id}, {state, elapsed}, {note}, {progress}, {panel, data}, and at
 * last {done} or {error}. `signal` cancels it; so does nothing else: a page that is closed leaves it running. */
export async function startJob(name, fields, heard, signal, dropped = {}) {
  if (!hasJobs) {
    heard({ error: { kind: "server", text: "This needs the server of the page: run `dscale web` on your machine." } });
    return;
  }
  try {
    const begun = await begin(name, fields, dropped, heard, signal);
    if (begun) await followJob(begun, heard, signal);
  } catch (error) {
    if (signal && signal.aborted) return;
    heard({ error: { kind: "network", text: `The server of the page cannot be reached (${error.message}).` } });
  }
}

/** Hear a job that was begun before, from its first message on. */
export async function followJob(id, heard, signal) {
  const path = `api/jobs/${encodeURIComponent(id)}`;
  const cancel = () => { fetch(path, { method: "DELETE", keepalive: true }).catch(() => {}); };
  if (signal) {
    if (signal.aborted) { cancel(); return; }
    signal.addEventListener("abort", cancel, { once: true });
  }
  try {
    await hearLines(await fetch(path, { signal }), heard);
  } finally {
    if (signal) signal.removeEventListener("abort", cancel);
  }
}

async function begin(name, fields, dropped, heard, signal) {
  const response = await fetch("api/jobs", {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ kind: name, fields, dropped }), signal,
  });
  let id = "";
  await hearLines(response, (message) => {
    id = message.id || id;
    heard(message);
  });
  return id;
}
