// The plan compiled by XLA, as a job on the server: how far it is, and its report when it is there.

import { Dialog } from "./dialog.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { hasJobs, startJob } from "./jobs.js";
import { askOnce } from "./live.js";
import { SheetView } from "./sheet.js";

/** Start, follow and cancel a verification of the tab's plan. */
export function Verifying({ tab, fields, dropped, onClose }) {
  const [job, setJob] = useState({});
  const run = useRef(null);
  const start = async () => {
    setJob({ running: true, note: "The plan is looked up." });
    const controller = new AbortController();
    run.current = controller;
    const { panels, error } = await askOnce({ view: "copied", of: tab, fields, dropped, panels: ["verify"] }, controller.signal);
    if (controller.signal.aborted) return; // cancelled while the plan was looked up
    if (error) { setJob({ error }); return; }
    await startJob("verify", panels.verify.fields, (message) => setJob((old) => heard(old, message)), controller.signal, dropped);
    run.current = null;
  };
  const cancel = () => { if (run.current) run.current.abort(); setJob({ note: "Cancelled." }); };
  useEffect(() => () => { if (run.current) run.current.abort(); }, []);
  const { running, progress, note, error, sheet, elapsed } = job;
  return html`<${Dialog} title="Verify with the compiler" onClose=${onClose}>
    <p>Our own JAX program of this plan is compiled by XLA for these chips (none are needed), and its memory, FLOPs and collectives are laid beside the plan's.</p>
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
