// A window over the page: the browser's own <dialog>, which keeps the focus inside, closes with Escape and gives the focus back.

import { html, useEffect, useId, useRef } from "./html.js";

/** A dialog that is open as long as it is drawn; `kind` is "drawer" (at the side, whole on phones) or "window". */
export function Dialog({ title, kind = "window", onClose, children }) {
  const box = useRef(null);
  const named = useId();
  const closed = useRef(onClose);
  closed.current = onClose;
  useEffect(() => {
    const one = box.current;
    const back = /** @type {HTMLElement | null} */ (document.activeElement);
    one.showModal();
    const end = () => closed.current();
    one.addEventListener("close", end);
    return () => {
      one.removeEventListener("close", end);
      one.close();
      if (back && back.isConnected) back.focus();
    };
  }, []);
  const outside = (event) => { if (event.target === box.current) onClose(); };
  return html`<dialog ref=${box} class=${`dialog dialog-${kind}`} aria-labelledby=${named} onClick=${outside}>
    <div class="dialog-body">
      <header class="dialog-head"><h2 id=${named}>${title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick=${onClose}>×</button></header>
      ${children}
    </div>
  </dialog>`;
}
