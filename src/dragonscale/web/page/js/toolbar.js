// What can be done with a question: copied as a command, a program or a file, linked, compared, exported, judged, verified.

import { Menu } from "./card.js";
import { CompareWith } from "./compare.js";
import { copyText, downloadText } from "./copying.js";
import { Dialog } from "./dialog.js";
import { Exporting } from "./exporting.js";
import { html, useEffect, useState } from "./html.js";
import { Judging } from "./judge.js";
import { askOnce } from "./live.js";
import { addressSaying, current } from "./state.js";
import { TextFile } from "./text_file.js";
import { Verifying } from "./verify.js";

const KINDS = [{ name: "cli", title: "CLI", hint: "a command" }, { name: "python", title: "Python", hint: "a program" }, { name: "toml", title: "TOML", hint: "a file" }];
const PLANNED = ["train", "serve"];

/** The sentence and the figures as they are drawn, which a link takes along. */
function shownAnswer() {
  const textOf = (one, what) => one.querySelector(what)?.textContent.trim() || "";
  const figures = [...document.querySelectorAll("#answer > .figures > div")].map((one) => [textOf(one, "dt"), textOf(one, ".num")]);
  return [textOf(document, "#answer .sentence"), figures];
}

/** Buttons under the answer of a tab; `tab` is the command, `fields` its question as it is asked. */
export function Toolbar({ tab, fields, dropped = current().dropped }) {
  const [open, setOpen] = useState("");
  const [said, say] = useState("");
  const copyLink = async () => say((await copyText(addressSaying(...shownAnswer()))) ? "Link copied." : "The browser does not let this page copy.");
  const record = async () => {
    const { panels, error } = await askOnce({ view: tab, fields, dropped, panels: ["record"] });
    if (error) say(error.text);
    else downloadText(`dragonscale-${tab}.json`, JSON.stringify(panels.record, null, 2), "application/json");
  };
  const plans = PLANNED.includes(tab);
  const close = () => setOpen("");
  const own = { tab, fields, dropped, onClose: close };
  return html`<div class="toolbar" role="group" aria-label="Use this answer">
    ${plans && html`<button type="button" class="button" onClick=${() => setOpen("compare")}>Compare</button>
      <button type="button" class="button" onClick=${() => setOpen("export")}>Export</button>
      <button type="button" class="button" onClick=${() => setOpen("judge")}>Judge a command</button>
      <button type="button" class="button" onClick=${() => setOpen("verify")}>Verify</button>`}
    <${Menu} label="Copy as" text="Copy as …" className="menu-button" items=${[...KINDS.map((one) => ({ text: one.title, hint: one.hint, run: () => setOpen(one.name) })), { text: "Link", hint: "with the answer inside", run: copyLink }]} />
    <button type="button" class="button" onClick=${record}>Download JSON</button>
    <span class="said" role="status">${said}</span>
    ${KINDS.some((one) => one.name === open) && html`<${Copying} kind=${open} ...${own} />`}
    ${open === "compare" && html`<${CompareWith} ...${own} />`}
    ${open === "export" && html`<${Exporting} ...${own} />`}
    ${open === "judge" && html`<${Judging} onClose=${close} />`}
    ${open === "verify" && html`<${Verifying} ...${own} />`}
  </div>`;
}

function Copying({ kind, tab, fields, dropped, onClose }) {
  const [found, setFound] = useState({});
  const [shown, setShown] = useState(kind);
  const key = JSON.stringify([tab, fields]);
  const plans = shown === "toml" && PLANNED.includes(tab);
  useEffect(() => {
    const controller = new AbortController();
    const panels = plans ? ["texts", "plan"] : ["texts"];
    askOnce({ view: "copied", of: tab, fields, dropped, panels }, controller.signal)
      .then(({ panels: got, error }) => { if (!controller.signal.aborted) setFound({ ...got, error }); });
    return () => controller.abort();
  }, [key, plans]);
  const { texts, plan, error } = found;
  const one = texts && (shown === "toml" ? texts.toml : { name: shown === "python" ? "ask.py" : "ask.sh", text: texts[shown], use: "" });
  return html`<${Dialog} title="Copy as" onClose=${onClose}>
    <div class="choices" role="group" aria-label="Form">${KINDS.map((form) => html`<button type="button" class="button" key=${form.name}
      aria-pressed=${form.name === shown} onClick=${() => setShown(form.name)}>${form.title}</button>`)}</div>
    ${error && !texts && html`<p class="error" role="alert">${error.text}</p>`}
    ${one && html`<${TextFile} key=${shown} name=${one.name} text=${one.text} use=${one.use} title=${shown === "toml" ? "The question" : ""} own=${shown === "toml"} />`}
    ${plans && plan && html`<${TextFile} name=${plan.name} text=${plan.text} use=${plan.use} title="The plan, as --save writes it" own />`}
    ${texts && texts.file && html`<${TextFile} name=${texts.file.name} text=${texts.file.text} title="The config that was dropped: keep it beside the command" own short />`}
  </${Dialog}>`;
}
