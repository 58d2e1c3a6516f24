// A table of amounts that is sorted by a click on a heading; it scrolls inside itself where the screen is narrow.

import { html, useMemo, useState } from "./html.js";
import { Num } from "./number.js";

const valueOf = (row, column) => (column.value ? column.value(row) : row.cells[column.name]?.value);

function ordered(rows, column, down) {
  if (!column) return rows;
  const empty = (value) => value == null || value === "";
  return [...rows].sort((a, b) => {
    const [x, y] = [valueOf(a, column), valueOf(b, column)];
    if (empty(x) || empty(y)) return Number(empty(x)) - Number(empty(y));
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  });
}

/** Rows {name, cells: {column: Amount}}; `columns` are {name, title} for an amount, or {name, title, value, draw} for anything else; a `wide` one is
 * left out on a phone.
 * `chosen` are names that are marked. */
export function DataTable({ label, columns, rows, chosen = [], start = "", down = false }) {
  const [sort, setSort] = useState({ name: start, down });
  const column = columns.find((one) => one.name === sort.name);
  const shown = useMemo(() => ordered(rows, column, sort.down), [rows, sort.name, sort.down]);
  const click = (one) => setSort({ name: one.name, down: sort.name === one.name ? !sort.down : !one.draw });
  return html`<div class="scroll data-table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((one) => html`<th key=${one.name} scope="col" class=${one.draw ? (one.wide ? "wide-only" : "") : "right"}
      aria-sort=${sort.name === one.name ? (sort.down ? "descending" : "ascending") : null}>
      <button type="button" class="sort" onClick=${() => click(one)}>${one.title}<span aria-hidden="true">${sort.name === one.name ? (sort.down ? " ↓" : " ↑") : ""}</span></button></th>`)}</tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${row.name} class=${chosen.includes(row.name) ? "chosen-row" : ""}>
      ${columns.map((one, at) => (one.draw
    ? (at === 0 ? html`<th key=${one.name} scope="row">${one.draw(row)}</th>` : html`<td key=${one.name} class=${one.wide ? "wide-only" : ""}>${one.draw(row)}</td>`)
    : html`<td key=${one.name} class="right"><${Num} of=${row.cells[one.name]} /></td>`))}</tr>`)}</tbody>
  </table></div>`;
}
