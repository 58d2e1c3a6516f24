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

/** A formula; `text` is read out, copied, and shown where there is no tree. */
export function Maths({ tree, text }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    if (!tree || !box.current) return;
    const math = document.createElementNS(NAMESPACE, "math");
    math.setAttribute("displaystyle", "true");
    math.append(built(tree));
    box.current.replaceChildren(math);
  }, [tree]);
  if (!tree) return html`<code class="formula-text">${text}</code>`;
  return html`<span class="formula" ref=${box} role="math" aria-label=${text}></span>`;
}
