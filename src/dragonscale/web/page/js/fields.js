// Fields of a command as the catalogue describes them: what a form does not place by itself stands under "More".

import { Catalogue } from "./catalogue.js";
import { ChoiceField, Group, SwitchField, TextField } from "./form.js";
import { html, useContext } from "./html.js";

const HINT = 110;
const FEW = 5;
/** Flags that only say how an answer is printed, or that name files of the one who types. */
const PRINTED = ["explain", "json", "color", "width", "verify", "profile", "trace", "top"];

const short = (text) => (text.length > HINT ? `${text.slice(0, text.lastIndexOf(" ", HINT))} …` : text);

/** One field: a switch, a choice of a few, or text. */
export function AnyField({ field, value, onChange }) {
  const plain = field.flag.replace(/^--/, "").replaceAll("-", " ");
  const label = plain.charAt(0).toUpperCase() + plain.slice(1);
  const about = short(field.description || "");
  if (field.switch) return html`<${SwitchField} label=${label} name=${field.name} value=${value} about=${about} onChange=${(on) => onChange(on || "")} />`;
  const usual = field.default != null && field.default !== "" && field.default !== 0 ? String(field.default) : "";
  if (field.examples && field.examples.length <= FEW) {
    const choices = [...new Set(["", ...field.examples, value || ""])].filter((one) => one === "" || one !== usual || one === value);
    return html`<${ChoiceField} label=${label} name=${field.name} value=${value || ""} about=${about} onChange=${onChange}
      choices=${choices.map((one) => ({ value: one, text: one || usual || "–" }))} />`;
  }
  return html`<${TextField} label=${label} name=${field.name} value=${value == null ? "" : String(value)} placeholder=${usual || field.value || ""} about=${about} onChange=${onChange} />`;
}

/** The fields of a command that `placed` does not name, folded unless one of them is set. */
export function MoreFields({ command, placed, fields, onChange }) {
  const catalogue = useContext(Catalogue);
  const rest = catalogue.fields[command].filter((field) => !placed.includes(field.name) && !PRINTED.includes(field.name));
  const used = rest.filter((field) => fields[field.name]).length;
  return html`<${Group} title="More" open=${used > 0} aside=${used ? `${used} set` : ""}>
    ${rest.map((field) => html`<${AnyField} key=${field.name} field=${field} value=${fields[field.name]} onChange=${(value) => onChange({ [field.name]: value })} />`)}
  </${Group}>`;
}
