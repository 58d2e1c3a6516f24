// One bar of parts against a limit, with its list; a part opens the lines that it is the sum of.

import { html, useState } from "../html.js";
import { Num } from "../number.js";
import { colourOf, colourOn } from "../theme.js";
import { LinesTable } from "./table.js";
import { textWidth, tickText, useWidth } from "./svg.js";

const HIGH = 34;

function placed(parts, whole, width, value) {
  let at = 0;
  return parts.map((part) => {
    const wide = (Math.max(value(part) || 0, 0) / whole) * width;
    const found = { part, x: at, wide };
    at += wide;
    return found;
  });
}

function Bar({ parts, whole, width, limit, used, opened, toggle, hiddenAll }) {
  const solid = placed(parts, whole, width, (part) => part.shown?.value);
  const hidden = placed(parts, whole, width, (part) => part.hidden?.value).filter((one) => one.wide > 0.5);
  const height = HIGH + (hiddenAll ? 28 : 0) + (limit ? 20 : 2);
  const edge = limit ? (limit.value / whole) * width : 0;
  return html`<svg class="stack" data-chart width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    <rect class="free" x="0" y="0" width=${limit ? edge : width} height=${HIGH} rx="3" />
    ${solid.map(({ part, x, wide }) => html`<g key=${part.name} class=${`piece${opened && opened !== part.name ? " piece-dim" : ""}`} onClick=${() => toggle(part.name)}>
      <rect x=${x} y="0" width=${Math.max(wide - (wide > 3 ? 1 : 0), 0)} height=${HIGH} style=${{ fill: colourOf(part.role) }}><title>${`${part.name} ${part.shown.text}`}</title></rect>
      ${wide > textWidth(part.name) + 16 && html`<text class="inside" x=${x + 8} y=${HIGH / 2} dy="0.35em" style=${{ fill: colourOn(part.role) }}>${part.name}</text>`}</g>`)}
    ${hidden.length > 0 && html`<g class="hidden-row" transform=${`translate(0 ${HIGH + 4})`}>
      ${hidden.map(({ part, x, wide }) => html`<rect key=${part.name} x=${x} y="0" width=${Math.min(Math.max(wide - 1, 0), Math.max(width - x, 0))} height="6"
        style=${{ fill: colourOf(part.role) }} opacity="0.55"><title>${`${part.name} hidden ${part.hidden.text}`}</title></rect>`)}
    </g><text class="tick" x="0" y=${HIGH + 24}>hidden behind other work: ${hiddenAll}</text>`}
    ${limit && html`<g class=${used > limit.value ? "limit limit-over" : "limit"}>
      <line x1=${Math.min(edge, width - 1)} x2=${Math.min(edge, width - 1)} y1="-1" y2=${HIGH + 5} />
      <text class="tick" x=${Math.min(edge, width)} y=${HIGH + 17} text-anchor="end">${limit.text} ${used > limit.value ? "is all there is" : "available"}</text></g>`}
  </svg>`;
}

/** Parts of a whole. `open` and `onOpen` are the part whose lines are shown, kept inside where they are not given. */
export function StackBar({ parts = [], hidden, total, limit, open, onOpen, label = "Parts" }) {
  const [ref, width] = useWidth(480);
  const [own, setOwn] = useState(null);
  const opened = onOpen ? open : own;
  const toggle = (name) => (onOpen || setOwn)(opened === name ? null : name);
  const sum = parts.reduce((all, part) => all + Math.max(part.shown?.value || 0, 0), 0);
  const hiddenSum = parts.reduce((all, part) => all + Math.max(part.hidden?.value || 0, 0), 0);
  const whole = Math.max(sum, limit?.value || 0) || 1;
  const unit = parts[0]?.shown?.unit || "s";
  const hiddenAll = hiddenSum > 0 ? (hidden?.text || tickText(hiddenSum, unit)) : "";
  const summary = `${label}: ${parts.map((part) => `${part.name} ${part.shown.text}`).join(", ")}${total ? `; ${total.text} in all` : ""}${limit ? `, of ${limit.text}` : ""}`;
  return html`<figure class="chart stack-chart" ref=${ref} aria-label=${summary}>
    <${Bar} parts=${parts} whole=${whole} width=${width} limit=${limit} used=${sum} opened=${opened} toggle=${toggle} hiddenAll=${hiddenAll} />
    <ul class="parts">${parts.map((part) => html`<${Part} key=${part.name} part=${part} share=${sum ? part.shown.value / sum : 0}
      opened=${opened === part.name} onOpen=${() => toggle(part.name)} />`)}</ul>
  </figure>`;
}

function Part({ part, share, opened, onOpen }) {
  const hidden = part.hidden && part.hidden.value > 0 ? part.hidden : null;
  const lines = part.lines || [];
  return html`<li class=${opened ? "part part-open" : "part"} data-legend=${`${part.name}  ${part.shown.text}${hidden ? ` (+${hidden.text} hidden)` : ""}`}>
    <div class="part-row">
      <button type="button" class="part-name" aria-expanded=${lines.length ? String(opened) : null} disabled=${!lines.length} onClick=${onOpen}>
        <span class="swatch" style=${{ background: colourOf(part.role) }}></span><span>${part.name}</span></button>
      <span class="part-hidden">${hidden && html`+<${Num} of=${hidden} /> hidden`}</span>
      <span class="part-share">${part.share ? part.share.text : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`}</span>
      <${Num} of=${part.shown} className="part-value" />
    </div>
    ${opened && lines.length > 0 && html`<${LinesTable} rows=${lines} label=${`Lines of ${part.name}`} />`}
  </li>`;
}
