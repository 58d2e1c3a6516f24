// The planner speaks of flags (--tpot 30ms), as its command line has them; a page with a form speaks of fields. Here a sentence is cut at its flags.

const LABELS = {
  model: "Model", on: "Chips", plan: "Plan", price: "Price of a chip", tokens: "Training tokens", seq: "Sequence length", method: "What is trained", stack: "Stack",
  numerics: "Gradients", fix: "Fixed settings", remat: "Recompute policies", ttft: "Time to first token", tpot: "Time per output token", itl: "Between tokens",
  e2e: "Whole request", rate: "Requests to serve", prompt: "Prompt tokens", output: "Output tokens", cached: "Part of each prompt that is cached", engine: "Engine",
  quantize: "Quantise to", kv_dtype: "Format of the KV cache", accept: "Drafts accepted", drafts: "Tokens drafted at a time", draft: "Drafting model",
  disaggregate: "Prefill on replicas of its own", better: "Say what would be better",
};
/** Where a command's form has another label. */
const OWN_LABELS = { train: { batch: "Batch", dtype: "Format of matmuls" }, serve: { batch: "Sequences at once" }, simulate: { on: "Chips of a replica", rate: "Requests a second" } };
const VALUES = { numerics: { benchmark: "as in published benchmarks", production: "as in production" } };
/** Commands in backticks or as they are typed, and flags. */
const CUT = /(`[^`]*`|\bdscale [a-z]+ [^`]*$|--[a-z][a-z0-9-]*)/;

/** What a form calls a field of a command. */
export function labelOf(command, name) {
  const plain = name.replaceAll("_", " ");
  return OWN_LABELS[command]?.[name] || LABELS[name] || plain.charAt(0).toUpperCase() + plain.slice(1);
}

/** The value that follows a flag, and what comes after it; a word of the sentence is none: a value has a digit or an =, or is one that the field offers. */
function valueOf(rest, field, offered) {
  const found = /^[ =]([^\s()"',;]*[^\s()"',;.:])/.exec(rest);
  if (!found) return null;
  const [whole, value] = found;
  return /[\d=]/.test(value) || (field.examples || []).includes(value) || offered.includes(value) ? { value, length: whole.length } : null;
}

/** A sentence as parts: {text}, or {label, fields} of a button that sets fields, or {label, field} of one that leads to a field. `known` are the command's fields
 * as the catalogue describes them, `offered` names that fields take (stacks, engines, formats). Flags that stand together are one button. */
export function flagParts(text, command, known, offered = []) {
  const parts = [];
  let rest = String(text);
  const say = (piece) => {
    const last = parts.at(-1);
    if (last && last.text != null) last.text += piece;
    else if (piece) parts.push({ text: piece });
  };
  while (rest) {
    const found = CUT.exec(rest);
    if (!found) { say(rest); break; }
    say(rest.slice(0, found.index));
    rest = rest.slice(found.index + found[0].length);
    const field = known.find((one) => one.flag === found[0]);
    if (!field) { say(found[0]); continue; }
    const label = labelOf(command, field.name);
    if (field.switch) { parts.push({ label, fields: { [field.name]: true } }); continue; }
    const given = valueOf(rest, field, offered);
    if (!given) { parts.push({ label, field: field.name }); continue; }
    rest = rest.slice(given.length);
    const button = { label: `${label}: ${VALUES[field.name]?.[given.value] || given.value}`, fields: { [field.name]: given.value } };
    const [before, between] = [parts.at(-2), parts.at(-1)];
    if (before?.fields && between?.text === " ") {
      parts.pop();
      Object.assign(before, { label: `${before.label}, ${button.label}`, fields: { ...before.fields, ...button.fields } });
    } else parts.push(button);
  }
  return parts;
}
