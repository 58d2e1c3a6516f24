// The plan written down for the software that runs it: files to copy and to download, and what differs there.

import { downloadText } from "./copying.js";
import { Dialog } from "./dialog.js";
import { html, useEffect, useState } from "./html.js";
import { askOnce } from "./live.js";
import { TextFile } from "./text_file.js";

/** Choose a target and see its files. */
export function Exporting({ tab, fields, dropped, onClose }) {
  const [targets, setTargets] = useState(null);
  const [to, setTo] = useState("");
  const [launcher, setLauncher] = useState("");
  const [found, setFound] = useState({});
  useEffect(() => {
    const controller = new AbortController();
    askOnce({ view: "export", of: tab, fields, dropped, panels: ["targets"] }, controller.signal).then(({ panels, error }) => {
      if (controller.signal.aborted) return;
      if (error) setFound({ error });
      else { setTargets(panels.targets); setTo(panels.targets.own || panels.targets.software[0].name); }
    });
    return () => controller.abort();
  }, []);
  useEffect(() => {
    if (!to) return undefined;
    const controller = new AbortController();
    const load = targets.loads.some((one) => one.name === to);
    setFound((old) => ({ ...old, busy: true }));
    askOnce({ view: "export", of: tab, fields, dropped, to: launcher && !load ? `${to},${launcher}` : to, panels: ["files"] }, controller.signal)
      .then(({ panels, error }) => { if (!controller.signal.aborted) setFound({ files: panels.files, error }); });
    return () => controller.abort();
  }, [to, launcher]);
  const { files, error, busy } = found;
  return html`<${Dialog} title="Export the plan" onClose=${onClose}>
    ${targets && html`<${Choice} label="For" chosen=${to} every=${[...targets.software, ...targets.loads]} choose=${setTo} />
      <${Choice} label="Started by" chosen=${launcher} every=${[{ name: "", title: "its usual way" }, ...targets.launchers]} choose=${setLauncher} />`}
    <div aria-live="polite" aria-busy=${Boolean(busy)}>
      ${!files && !error && html`<p class="muted" role="status">Writing …</p>`}
      ${error && html`<p class="error" role="alert">${error.text}</p>`}
      ${files && !error && html`<p>${files.expected.map((one) => html`<span key=${one}>Expected: ${one} </span>`)}</p>
        ${files.differences.map((one) => html`<p class="warn" key=${one}>Differs: ${one}.</p>`)}
        ${files.notes.map((one) => html`<p class="muted" key=${one}>${one}</p>`)}
        ${files.files.map((one) => html`<${TextFile} key=${`${to}${one.name}`} name=${one.name} text=${one.text} own title=${one.name} />`)}
        ${files.files.length > 1 && html`<p><button type="button" class="button" onClick=${() => downloadText(`${files.target}.txt`, files.bundle)}>Download all as one text</button></p>`}
        <${TextFile} name="export.sh" text=${files.cli} title="The command that writes them" />`}
    </div>
  </${Dialog}>`;
}

function Choice({ label, chosen, every, choose }) {
  return html`<div class="choices" role="group" aria-label=${label}><span class="muted">${label}</span>
    ${every.map((one) => html`<button type="button" class="button" key=${one.name} aria-pressed=${one.name === chosen} title=${one.version || ""} onClick=${() => choose(one.name)}>${one.title}</button>`)}</div>`;
}
