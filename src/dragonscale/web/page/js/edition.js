// What a page without a server says about itself: where its answers come from, and what it cannot do.

import { kind, onLoading } from "./backend.js";
import { html, useEffect, useState } from "./html.js";

/** The line at the foot of the static edition, and how far the planner is loaded; nothing where a server answers. */
export function Edition() {
  const [{ loading, what }, hear] = useState({ loading: 1, what: "" });
  useEffect(() => onLoading(hear), []);
  if (kind !== "worker") return null;
  return html`<footer class="edition">
    <p>The planner runs in this browser; nothing you type leaves it. Verifying a plan with a compiler and reading a model
      by its name on the Hugging Face Hub need <code>dscale web</code>. Parts by others: <a href="LICENSES.txt">licences</a>.</p>
    ${loading < 1 && html`<p class="loading-planner" role="status"><progress value=${loading} aria-label="How much is loaded"></progress>
      ${what ? `Loading ${what} into this browser …` : "Starting …"}</p>`}
  </footer>`;
}
