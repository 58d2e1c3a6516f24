// The plan compiled by XLA, as a job on the server: how far it is, and its report when it is there.

import { Dialog } from "./dialog.js";
import { html, useEffect, useState } from "./html.js";
import { followJob, hasJobs, startJob } from "./jobs.js";
import { askOnce } from "./live.js";
import { SheetView } from "./sheet.js";

// The job belongs to the page, not to the dialog: it goes on where that is closed, and is found again by its id where the page is loaded anew.
const KEY = "dragonscale-verify";
let job = {};
let controller = null;
const listeners = new Set();
function put(next) { job = next; for (const listener of listeners) listener(job); }
const hear = (message) => {
  if (message.id) sessionStorage.setItem(KEY, message.id);
  if (message.done || message.error) sessionStorage.removeItem(KEY);
  put(heard(job, message));
};

async function run(begin) {
  controller = new AbortController();
  const own = controller;
  await begin(own.signal);
  if (controller === own) controller = null;
}

function useJob() {
  const [shown, set] = useState(job);
  useEffect(() => {
    listeners.add(set);
    const left = sessionStorage.getItem(KEY);
    if (left && !job.running) {
      put({ running: true, note: "Begun before; it went on." });
      run((signal) => followJob(left, hear, signal).catch(() => { sessionStorage.removeItem(KEY); put({}); }));
    } else set(job);
    return () => listeners.delete(set);
  }, []);
  return shown;
}

/** Start, follow and cancel a verification of the tab's plan. */
export function Verifying({ tab, fields, dropped, onClose }) {
  const job = useJob();
  const start = () => run(async (signal) => {
    put({ running: true, note: "The plan is looked up." });
    const { panels, error } = await askOnce({ view: "copied", of: tab, fields, dropped, panels: ["verify"] }, signal);
    if (signal.aborted) return; // cancelled while the plan was looked up
    if (error) { put({ error }); return; }
    await startJob("verify", panels.verify.fields, hear, signal, dropped);
  });
  const cancel = () => { if (controller) controller.abort(); sessionStorage.removeItem(KEY); put({ note: "Cancelled." }); };
  const { running, progress, note, error, sheet, elapsed } = job;
  return html`<${Dialog} title="Verify with the compiler" onClose=${onClose}>
    <p>Our own JAX program of this plan is compiled by XLA for these chips (none are needed), and its memory, FLOPs and collectives are laid beside the plan's.
      It takes most of a minute and the compilers on this machine (the extra <code>tpu</code> for TPUs, <code>gpu-compiler</code> for GPUs; <code>dscale doctor</code> says how to install them); it goes on where you close this.</p>
    ${!hasJobs && html`<p class="error">This needs the server of the page: run <code>dscale web</code> on your machine.</p>`}
    ${hasJobs && html`<p>${running
      ? html`<button type="button" class="button" onClick=${cancel}>Cancel</button>`
      : html`<button type="button" class="button button-main" onClick=${start}>${sheet ? "Compile again" : "Compile"}</button>`}</p>`}
    <div aria-live="polite">
      ${running && html`<p role="status"><progress max="1" value=${progress == null ? undefined : progress} aria-label="How far"></progress>
        ${elapsed != null ? ` ${Math.round(elapsed)} s.` : ""} ${note || ""}</p>`}
      ${!running && note && html`<p role="status">${note}</p>`}
      ${error && html`<p class="error" role="alert">${error.text}</p>`}
    </div>
    ${sheet && html`<${SheetView} blocks=${sheet.blocks} />`}
  </${Dialog}>`;
}

function heard(old, message) {
  const next = { ...old };
  if (message.note) next.note = message.note;
  if (message.progress != null) next.progress = message.progress;
  if (message.elapsed != null) next.elapsed = message.elapsed;
  if (message.panel === "sheet") next.sheet = message.data;
  if (message.done) Object.assign(next, { running: false, note: "" });
  if (message.error) Object.assign(next, { running: false, error: message.error });
  return next;
}
