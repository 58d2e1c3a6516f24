// What a page without a server says about itself: where its answers come from, and what it cannot do.

import { kind } from "./backend.js";
import { html } from "./html.js";

/** What needs `dscale web`, in words, for tooltips of what is switched off; null where there is a server. */
export const needsServer = kind === "worker"
  ? "This needs a server: run dscale web on your machine." : null;

/** The line at the foot of the static edition; nothing where a server answers. */
export function Edition() {
  if (kind !== "worker") return null;
  return html`<footer class="edition"><p>
    The planner runs in this browser; nothing you type leaves it. Verifying a plan with a compiler and reading a model
    by its name on the Hugging Face Hub need <code>dscale web</code>. Parts by others: <a href="LICENSES.txt">licences</a>.
  </p></footer>`;
}
