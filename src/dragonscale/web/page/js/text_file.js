// A text that is copied or downloaded.

import { copyText, downloadText } from "./copying.js";
import { html, useState } from "./html.js";

/** A text with buttons that copy and download it; `use` is the command that takes the file. */
export function TextFile({ name, text, use = "", title = "", own = false, short = false }) {
  const [said, say] = useState("");
  const copy = async () => say((await copyText(text)) ? "Copied." : "The browser does not let this page copy; select the text instead.");
  return html`<section class="text-file">
    ${title && html`<h3>${title}</h3>`}
    <p class="text-file-head">${own && html`<code>${name}</code>`}
      <button type="button" class="button" onClick=${copy}>Copy</button>
      ${own && html`<button type="button" class="button" onClick=${() => downloadText(name, text)}>Download</button>`}
      <span role="status" class="said">${said}</span></p>
    <pre tabindex="0" aria-label=${own ? name : "Text"} class=${short ? "short" : ""}><code>${text}</code></pre>
    ${use && html`<p class="muted">Then: <code>${use}</code></p>`}
  </section>`;
}
