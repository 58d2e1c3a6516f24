// A field that searches a list as one types: the ARIA combobox pattern, with anything else allowed too.

import { FlagText } from "./flag_text.js";
import { html, useContext, useEffect, useId, useMemo, useRef, useState } from "./html.js";
import { Complaint, complaintOf } from "./form.js";

// every chip: a list that is opened without a word typed shows all of them
const MOST = 200;

/** Choices that match what is typed, the best first: every word of it occurs; those that begin with it come before the others. */
export function matching(choices, typed) {
  const words = typed.toLowerCase().split(/[\s-]+/).filter(Boolean);
  if (!words.length) return choices.slice(0, MOST);
  const rank = (one) => {
    const text = `${one.value} ${one.text || ""} ${one.about || ""}`.toLowerCase();
    const squeezed = text.replace(/[\s\-_.]/g, "");
    if (!words.every((word) => text.includes(word) || squeezed.includes(word.replace(/[\s\-_.]/g, "")))) return -1;
    const value = one.value.toLowerCase();
    return value === typed.toLowerCase() ? 3 : value.startsWith(words[0]) ? 2 : 1;
  };
  return choices.map((one) => [rank(one), one]).filter(([found]) => found > 0).sort((a, b) => b[0] - a[0]).slice(0, MOST).map(([, one]) => one);
}

/** A field with a searched list of {value, text, about, group}; `onChange` hears the value chosen, or the text typed when it is done. */
export function Combobox({ label, name, value, choices, onChange, about = "", placeholder = "", after }) {
  const id = useId();
  const box = useRef(null);
  const [typed, setTyped] = useState(null);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const items = useMemo(() => choices.map((one) => (typeof one === "string" ? { value: one } : one)), [choices]);
  const found = useMemo(() => (open ? matching(items, typed === null ? "" : typed) : []), [items, typed, open]);
  const complaint = complaintOf(useContext(Complaint), name);
  const now = found.findIndex((one) => one.value === value || one.value === String(value || "").split(/[:+]/)[0]);
  useEffect(() => {
    if (open && at >= 0) document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: "nearest" });
  }, [at, open]);
  // a list of many opens at what is chosen
  useEffect(() => {
    const option = open && typed === null && document.getElementById(`${id}-${now}`);
    if (option) option.parentElement.scrollTop = option.offsetTop - option.parentElement.clientHeight / 2;
  }, [open]);
  const close = () => { setOpen(false); setAt(-1); };
  const take = (text) => { close(); setTyped(null); if (text.trim() && text.trim() !== (value || "")) onChange(text.trim()); };
  const keyed = (event) => {
    const last = found.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) setOpen(true);
      else setAt(event.key === "ArrowDown" ? (at >= last ? 0 : at + 1) : (at <= 0 ? last : at - 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(open && at >= 0 ? found[at].value : typed ?? (value || ""));
    } else if (event.key === "Escape" && (open || typed !== null)) {
      event.stopPropagation();
      close();
      setTyped(null);
    }
  };
  return html`<div class="field combobox" data-field=${name}>
    <label for=${id}>${label}</label>
    <div class="input">
      <input id=${id} ref=${box} type="text" role="combobox" autocomplete="off" autocapitalize="off" spellcheck="false" aria-autocomplete="list" placeholder=${placeholder}
        aria-expanded=${String(open && found.length > 0)} aria-controls=${`${id}-list`} aria-activedescendant=${open && at >= 0 ? `${id}-${at}` : null} value=${typed ?? (value || "")}
        aria-invalid=${complaint ? "true" : null} aria-describedby=${complaint ? `${id}-error` : about ? `${id}-about` : null}
        onInput=${(event) => { setTyped(event.currentTarget.value); setOpen(true); setAt(-1); }} onFocus=${(event) => event.currentTarget.select()}
        onClick=${() => setOpen(true)} onKeyDown=${keyed} onBlur=${() => take(typed ?? (value || ""))} />
      ${after || html`<span class="unit chevron" aria-hidden="true"></span>`}
    </div>
    <div class="options" id=${`${id}-list`} role="listbox" aria-label=${label} hidden=${!open || !found.length}>
      ${found.map((one, place) => html`<div key=${one.value} id=${`${id}-${place}`} role="option" aria-selected=${String(place === at)} class=${place === now ? "option option-now" : "option"}
        onPointerDown=${(event) => event.preventDefault()} onClick=${() => take(one.value)} onPointerMove=${() => { if (at !== place) setAt(place); }}>
        <span>${one.text || one.value}</span>${one.about && html`<small>${one.about}</small>`}</div>`)}
    </div>
    ${complaint ? html`<p class="field-error" id=${`${id}-error`}><${FlagText} text=${complaint} /></p>` : about && html`<p class="hint" id=${`${id}-about`}>${about}</p>`}
  </div>`;
}
