// Roofline and sharding: one operation on one chip, a sharded einsum on a mesh, a collective over its axes.

import { Catalogue } from "../catalogue.js";
import { Segmented } from "../form.js";
import { html, useContext } from "../html.js";
import { change } from "../state.js";
import { CollectiveQuestion } from "./collective.js";
import { RooflineQuestion } from "./roofline.js";
import { ShardQuestion } from "./shard.js";

const KINDS = {
  roofline: { title: "Roofline", Body: RooflineQuestion, start: { expression: "bf16[B,8192] @ bf16[8192,28672]", on: "v5e", sizes: "B=512" } },
  shard: { title: "Sharding", Body: ShardQuestion, start: { expression: "A[I_X, J] @ B[J_X, K] -> C[I, K]", mesh: "X=4,Y=8", on: "v5e:4x8", sizes: "I=8192,J=8192,K=8192" } },
  collective: { title: "Collective", Body: CollectiveQuestion, start: { kind: "all_gather", size: "64MB", on: "v5e:8x16", axis: "X" } },
};
// what each question was when another was looked at
const kept = {};

/** Put the whole question of the tab, or fields of it. */
function setQuestion(what, fields, replace = false) {
  kept[what] = fields;
  change((old) => ({ ...old, fields: { ...old.fields, operations: { what, ...fields } } }), replace);
}

export function OperationsTab({ state }) {
  const catalogue = useContext(Catalogue);
  const { what: given, ...own } = state.fields.operations;
  const what = KINDS[given] ? given : "roofline";
  const fields = Object.keys(own).length ? own : KINDS[what].start;
  const { Body } = KINDS[what];
  const chooser = html`<${Segmented} label="What" name="what" value=${what} choices=${Object.entries(KINDS).map(([value, one]) => ({ value, text: one.title }))}
    onChange=${(next) => { kept[what] = fields; setQuestion(next, kept[next] || KINDS[next].start); }} />`;
  return html`<${Body} key=${what} fields=${fields} catalogue=${catalogue} chooser=${chooser} dropped=${state.dropped}
    set=${(changes, replace) => setQuestion(what, { ...fields, ...changes }, replace)} />`;
}
