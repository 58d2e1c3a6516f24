// Rows of records as a table: columns are what the rows have; those that say nothing in any row are left out.

import { html, useState } from "../html.js";
import { Num } from "../number.js";

const FEW = 10;
const NAMES = {
  what: "what", section: "section", phase: "phase", kind: "kind", axes: "axes", times: "times", flops: "FLOPs", hbm: "HBM", sent: "sent",
  bound: "at best", expected: "expected", exposed: "exposed", bytes: "bytes", since: "from", until: "until",
};
const amounts = (value) => value !== null && typeof value === "object" && "text" in value;
const silent = (value) => value == null || value === "" || (Array.isArray(value) && !value.length) || (amounts(value) && !value.value);

function cell(value) {
  if (amounts(value)) return value.value ? html`<${Num} of=${value} />` : html`<span class="faint">–</span>`;
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "number" ? value.toLocaleString("en-US") : String(value ?? "");
}

/** A table of rows that are records of texts, numbers, lists and amounts. */
export function LinesTable({ rows, label, names = NAMES, few = FEW }) {
  const [all, setAll] = useState(false);
  const keys = Object.keys(rows[0] || {}).filter((key) => key !== "why" && key !== "key" && rows.some((row) => !silent(row[key])));
  const right = (key) => rows.some((row) => amounts(row[key]) || typeof row[key] === "number");
  const shown = all ? rows : rows.slice(0, few);
  return html`<div class="scroll lines" tabindex="0" role="region" aria-label=${label}>
    <table><thead><tr>${keys.map((key) => html`<th key=${key} scope="col" class=${right(key) ? "right" : ""}>${names[key] || key}</th>`)}</tr></thead>
      <tbody>${shown.map((row, at) => html`<tr key=${at}>${keys.map((key) => html`<td key=${key} class=${right(key) ? "right" : ""}>${cell(row[key])}</td>`)}</tr>`)}</tbody></table>
    ${rows.length > few && html`<button type="button" class="quiet small" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${rows.length}`}</button>`}
  </div>`;
}
