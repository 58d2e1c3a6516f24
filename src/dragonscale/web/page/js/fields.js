// Fields of a command as the catalogue describes them: what a form does not place by itself stands under "More".

import { Catalogue } from "./catalogue.js";
import { ChoiceField, Group, SwitchField, TextField } from "./form.js";
import { html, useContext } from "./html.js";
import { START } from "./state.js";

const HINT = 110;
const FEW = 5;
/** Flags that only say how an answer is printed, or that name files of the one who types. */
const PRINTED = ["explain", "json", "color", "width", "verify", "profile", "trace"];

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

/** The fields of a command that `placed` does not name, by the planner's groups, each folded unless one of its fields is set. */
export function MoreFields({ command, placed, fields, onChange }) {
  const catalogue = useContext(Catalogue);
  const rest = catalogue.fields[command].filter((field) => !placed.includes(field.name) && !PRINTED.includes(field.name));
  return [...new Set(rest.map((field) => field.group))].map((group) => {
    const own = rest.filter((field) => field.group === group);
    const used = own.filter((field) => fields[field.name]).length;
    return html`<${Group} key=${group} title=${group ? `More: ${group.charAt(0).toLowerCase()}${group.slice(1)}` : "More"} open=${used > 0} aside=${used ? `${used} set` : ""}>
      ${own.map((field) => html`<${AnyField} key=${field.name} field=${field} value=${fields[field.name]} onChange=${(value) => onChange({ [field.name]: value })} />`)}
    </${Group}>`;
  });
}

/** A use case, which stands for lengths, sessions and targets, and how many people have it; `without` are the fields that it answers. */
export function UseCase({ command, fields, without, onChange }) {
  const { fields: known } = useContext(Catalogue);
  const names = (known[command].find((field) => field.name === "use_case") || {}).examples || [];
  const take = (name) => onChange({ ...Object.fromEntries(without.map((one) => [one, name ? "" : START[command][one] || ""])), use_case: name, users: name && (fields.users || "1000") });
  return html`<${ChoiceField} label="Use case" name="use_case" value=${fields.use_case || ""} onChange=${take} about="Lengths, sessions and targets in a word."
      choices=${["", ...names].map((one) => ({ value: one, text: one || "none: typed below" }))} />
    ${fields.use_case && html`<${TextField} label="People who use it" name="users" value=${String(fields.users || "")} placeholder="1000" onChange=${(users) => onChange({ users })} />`}`;
}
