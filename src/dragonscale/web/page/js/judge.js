// A pasted command or config of another software: what was understood of it, judged in place, or opened in its tab.

import { useOwnDerivation } from "./derivation.js";
import { Dialog } from "./dialog.js";
import { html, useState } from "./html.js";
import { askOnce } from "./live.js";
import { Deriving, Num } from "./number.js";
import { change } from "./state.js";

const TITLES = { train: "Train", serve: "Serve" };
const ASKS = { model: "Model (the text does not say it)", on: "Chips (such as h100:8)", batch: "Batch (such as 512seq)", seq: "Sequence length", prompt: "Prompt tokens (serving; 2048)", output: "Output tokens (serving; 512)" };
const LENGTHS = { prompt: "2048", output: "512" };
const EXAMPLE = "vllm serve meta-llama/Meta-Llama-3-70B --tensor-parallel-size 8 --max-num-seqs 256";

/** Paste, read, judge. */
export function Judging({ onClose, on = "" }) {
  const [text, setText] = useState("");
  const [beside, setBeside] = useState({ on });
  const [found, setFound] = useState({});
  const [busy, setBusy] = useState(false);
  const read = async () => {
    setBusy(true);
    const { panels, error } = await askOnce({ view: "judge", text, model: beside.model || "", on: beside.on || "", panels: ["read"] });
    if (error) { setFound({ error }); setBusy(false); return; }
    const serves = panels.read.view === "serve";
    const fields = { ...panels.read.fields };
    for (const name of serves ? Object.keys(LENGTHS) : []) fields[name] = beside[name] || fields[name] || LENGTHS[name];
    for (const name of panels.read.missing) if (beside[name]) fields[name] = beside[name];
    const missing = panels.read.missing.filter((name) => !fields[name]);
    setFound({ read: { ...panels.read, fields, missing } });
    if (!missing.length) {
      const judged = await askOnce({ view: panels.read.view, fields, panels: ["answer"] });
      setFound({ read: { ...panels.read, fields, missing }, answer: judged.panels.answer, error: judged.error });
    }
    setBusy(false);
  };
  const openIn = (view, fields) => {
    change((old) => ({ ...old, tab: view, view: {}, fields: { ...old.fields, [view]: without(fields, "alone") } }));
    onClose();
  };
  const set = (name) => (event) => setBeside({ ...beside, [name]: event.target.value.trim() });
  const { read: said, answer, error } = found;
  const asks = ["on", ...(said ? said.missing.filter((name) => name !== "on") : []), ...(said && said.view === "train" ? [] : Object.keys(LENGTHS))];
  return html`<${Dialog} title="Judge a command or config" onClose=${onClose}>
    <p>Paste what you start vLLM, SGLang, TensorRT-LLM, Megatron, torchtitan, MaxText, DeepSpeed or accelerate with. It is read, never run.</p>
    <label class="judge-label">Command or config
      <textarea class="judge-text" rows="6" spellcheck="false" placeholder=${EXAMPLE} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="judge-beside">${asks.map((name) => html`<label key=${name}>${ASKS[name]}
      <input type="text" value=${beside[name] || ""} onInput=${set(name)} /></label>`)}
      <button type="button" class="button button-main" disabled=${busy || !text.trim()} onClick=${read}>${busy ? "FlagReading …" : "Judge"}</button></div>
    <div aria-live="polite">
      ${error && html`<p class="error" role="alert">${error.text}</p>`}
      ${said && html`<section><h3>Understood: ${said.software} ${said.version}</h3><p>${said.headline}</p>
        ${said.notes.map((one) => html`<p class="muted" key=${one}>${one}</p>`)}
        <${Words} title="Changes the plan, and is not planned" words=${said.unplanned} />
        <${Words} title=${`Unknown to ${said.software} ${said.version}`} words=${said.unknown} />
        <${Words} title="Changes nothing that is planned" words=${said.ignored} />
        ${said.missing.length > 0 && html`<p>Still needed: ${said.missing.join(", ")}.</p>`}</section>`}
      ${said && answer && html`<section><h3>Judged${answer.sizes ? ` for prompts of ${said.fields.prompt} and outputs of ${said.fields.output} tokens` : ""}</h3><p class="sentence">${answer.sentence}</p>
        <${Judged} view=${said.view} fields=${said.fields} figures=${answer.figures || []} />
        ${answer.advice && html`<p>${answer.advice}</p>`}
        <p><button type="button" class="button" onClick=${() => openIn(said.view, said.fields)}>Open in ${TITLES[said.view]}</button></p></section>`}
    </div>
  </${Dialog}>`;
}

/** The figures of what was judged; each opens its derivation over the dialog. */
function Judged({ view, fields, figures }) {
  const [open, drawer] = useOwnDerivation(view, fields);
  return html`<${Deriving.Provider} value=${open}><dl class="figures">${figures.map((one) => html`<div key=${one.label}><dt>${one.label}</dt><dd><${Num} of=${one.number} /></dd></div>`)}</dl>${drawer}</${Deriving.Provider}>`;
}

const without = (fields, name) => Object.fromEntries(Object.entries(fields).filter(([key]) => key !== name)
  .map(([key, value]) => [key, typeof value === "number" ? String(value) : value]));

function Words({ title, words }) {
  if (!words.length) return null;
  return html`<p>${title}: ${words.map((one, at) => html`${at > 0 ? ", " : ""}<code key=${one}>${one}</code>`)}</p>`;
}
