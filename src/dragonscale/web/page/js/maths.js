// Formulas: the planner's trees (["mfrac", above, below] …) as MathML, element by element.

import { html, useLayoutEffect, useRef } from "./html.js";

const NAMESPACE = "http://www.w3.org/1998/Math/MathML";
const KNOWN = new Set(["mrow", "mfrac", "msup", "msub", "msqrt", "mi", "mn", "mo", "mtext"]);

function built(tree) {
  const [name, ...inside] = tree;
  const element = document.createElementNS(NAMESPACE, KNOWN.has(name) ? name : "mrow");
  for (const one of inside) element.append(Array.isArray(one) ? built(one) : document.createTextNode(String(one)));
  return element;
}

const SIGNS = new Set(["+", "−", "="]);

/** The terms of a sum, each with the sign before it: a line breaks between two `math` elements, never inside of one. */
export function termsOf(tree) {
  const terms = [[]];
  for (const part of tree[0] === "mrow" ? tree.slice(1) : [tree]) {
    if (Array.isArray(part) && part[0] === "mo" && SIGNS.has(part[1]) && terms.at(-1).length) terms.push([]);
    // the sides of an equation are sums of their own
    if (Array.isArray(part) && part[0] === "mrow" && part.some((one) => Array.isArray(one) && one[0] === "mo" && SIGNS.has(one[1]))) {
      const [first, ...others] = termsOf(part);
      terms.at(-1).push(...first.slice(1));
      terms.push(...others.map((one) => one.slice(1)));
    } else terms.at(-1).push(part);
  }
  return terms.filter((parts) => parts.length).map((parts) => ["mrow", ...parts]);
}

/** A formula; `text` is read out, copied, and shown where there is no tree. */
export function Maths({ tree, text }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    if (!tree || !box.current) return;
    box.current.replaceChildren(...termsOf(tree).flatMap((term, index) => {
      const math = document.createElementNS(NAMESPACE, "math");
      math.setAttribute("displaystyle", "true");
      const row = built(term);
      // a sign that begins a line still stands between two terms
      if (index && row.firstElementChild.localName === "mo") row.firstElementChild.setAttribute("form", "infix");
      math.append(row);
      return [math, document.createTextNode(" ")];
    }));
  }, [tree]);
  if (!tree) return html`<code class="formula-text">${text}</code>`;
  return html`<span class="formula" ref=${box} role="math" aria-label=${text}></span>`;
}
