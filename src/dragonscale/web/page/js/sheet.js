// Any answer of the planner as it lays it out for the terminal: its blocks as headings, tables, bars and commands to copy.

import { html, useState } from "./html.js";
import { useAnswer } from "./live.js";
import { colourOf } from "./theme.js";

const ROLES = ["compute", "hbm", "tensor", "fsdp", "expert", "pipe", "data", "context", "overhead"];
const COMMAND = /^\$?\s*dscale\s/;

/** Text with the words in backticks as code; commands among them can be copied. */
export function Words({ text }) {
  const pieces = String(text).split(/`([^`\n]+)`/);
  return html`${pieces.map((piece, at) => (at % 2 === 0 ? piece
    : COMMAND.test(piece) ? html`<${Command} key=${at} text=${piece} />` : html`<code key=${at}>${piece}</code>`))}`;
}

/** A command to type, with a button that copies it. */
export function Command({ text }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text.replace(/^\$\s*/, ""));
      set(true);
      setTimeout(() => set(false), 1500);
    } catch { set(false); }
  };
  return html`<span class="command"><code>${text}</code>
    <button type="button" class="quiet copy" onClick=${copy} aria-label=${copied ? "Copied" : `Copy ${text}`}>${copied ? "copied" : "copy"}</button></span>`;
}

function Title({ block }) {
  return html`<header class="sheet-title">${block.verdict && html`<p class=${block.tone}><${Words} text=${block.verdict} /></p>`}<h3><${Words} text=${block.text} /></h3>
    ${block.aside && html`<p class="dim"><${Words} text=${block.aside} /></p>`}</header>`;
}

function Facts({ block }) {
  return html`<dl class="sheet-facts">${block.rows.map((row, at) => html`<div key=${at}>
    <dt>${row.label}</dt><dd class=${row.tone}><${Words} text=${row.text} /></dd></div>`)}</dl>`;
}

function StackedBar({ block }) {
  const sum = block.parts.reduce((all, part) => all + part.value, 0);
  const scale = Math.max(block.total, sum) || 1;
  const said = block.parts.map((part) => `${part.name} ${part.text}`).join(", ");
  return html`<figure class="sheet-bar">
    <figcaption>${block.label} <span class=${block.tone}><${Words} text=${block.text} /></span></figcaption>
    <div class="sheet-stack" role="img" aria-label=${`${block.label}: ${said}`}>
      ${block.parts.map((part, at) => html`<span key=${part.name} title=${`${part.name} ${part.text}`}
        style=${{ width: `${(100 * part.value) / scale}%`, background: colourOf(ROLES[at % ROLES.length]) }} />`)}</div>
    ${block.legend !== "none" && html`<ul class=${`sheet-legend ${block.legend}`}>${block.parts.map((part, at) => html`<li key=${part.name}>
      <span class="swatch" style=${{ background: colourOf(ROLES[at % ROLES.length]) }} /> ${part.name} <b>${part.text}</b>
      ${part.note && html`<span class="dim"> ${part.note}</span>`}</li>`)}</ul>`}
  </figure>`;
}

function Grid({ block }) {
  const { columns } = block;
  return html`<figure class="sheet-grid">
    ${block.title && html`<figcaption><${Words} text=${block.title} /></figcaption>`}
    <div class="scrolls" tabindex="0" role="region" aria-label=${block.title || "Table"}><table>
      <thead><tr>${columns.map((column, at) => html`<th key=${at} scope="col" class=${column.right ? "right" : ""}>
        ${column.title || html`<span class="unseen">${column.bar ? "share" : "remark"}</span>`}</th>`)}</tr></thead>
      <tbody>${block.rows.map((row, at) => html`<tr key=${at}>${row.map((cell, place) => html`<${Cell} key=${place} cell=${cell} column=${columns[place]} />`)}</tr>`)}</tbody>
    </table></div>
    ${block.foot && html`<p class="dim"><${Words} text=${block.foot} /></p>`}
  </figure>`;
}

function Cell({ cell, column }) {
  if (column.bar) {
    const share = Math.max(0, Math.min(1, Number(cell) || 0));
    return html`<td><span class="sheet-share" role="img" aria-label=${`${Math.round(share * 100)}%`}>
      <span style=${{ width: `${100 * share}%` }} /></span></td>`;
  }
  return html`<td class=${`${column.right ? "right" : ""} ${column.wrap ? "wrap" : ""} ${column.tone}`}><${Words} text=${cell} /></td>`;
}

const DRAWN = {
  Title, Facts, StackedBar, Grid,
  Prose: ({ block }) => html`<p class=${block.tone}><${Words} text=${block.text} /></p>`,
  Verbatim: ({ block }) => html`<pre class="verbatim scrolls" tabindex="0">${block.text}</pre>`,
  NextStep: ({ block }) => html`<p class="next-step">${block.why && html`<${Words} text=${block.why} />`} <${Command} text=${block.text} /></p>`,
};

/** The blocks of a sheet (`blocks/sheet.py`), in order. */
export function SheetView({ blocks }) {
  return html`<div class="sheet">${(blocks || []).map((block, at) => {
    const Drawn = DRAWN[block.kind];
    return Drawn ? html`<${Drawn} key=${at} block=${block} />` : null;
  })}</div>`;
}

/** The answer of a command as the terminal shows it, asked when it is opened. */
export function AsSheet({ view, fields, dropped = {} }) {
  const [open, set] = useState(false);
  const answer = useAnswer(open ? { view, fields, dropped, panels: ["sheet"], detail: true } : null);
  const { sheet } = answer.panels;
  return html`<details class="as-sheet" onToggle=${(event) => set(event.currentTarget.open)}><summary>As the command line prints it</summary>
    ${answer.error && html`<p class="error" role="alert">${answer.error.text}</p>`}
    ${sheet && html`<${SheetView} blocks=${sheet.blocks} />`}</details>`;
}
