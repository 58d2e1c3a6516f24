// Sentences of the planner cut at their flags: what becomes a button, and what it sets.

import assert from "node:assert/strict";
import { test } from "node:test";
import { flagParts } from "../../../src/dragonscale/web/page/js/flags.js";

const field = (name, more = {}) => ({ name, flag: `--${name.replaceAll("_", "-")}`, switch: false, examples: [], ...more });
const TRAIN = [field("slack"), field("numerics", { examples: ["production", "benchmark"] }), field("stack"), field("headroom"), field("force", { switch: true }), field("fix"), field("batch")];
const SERVE = [field("ttft"), field("tpot"), field("quantize", { examples: ["fp8"] }), field("on"), field("prompt"), field("engine"), field("batch")];
const drawn = (parts) => parts.map((part) => (part.text != null ? part.text : `[${part.label}]`)).join("");

test("a flag with its value sets the field", () => {
  const parts = flagParts("context must gain more than 19% (--slack 0 takes it).", "train", TRAIN);
  assert.equal(drawn(parts), "context must gain more than 19% ([Slack: 0] takes it).");
  assert.deepEqual(parts[1].fields, { slack: "0" });
  const gradients = flagParts("in fp32, the software's default; --numerics benchmark: in bf16, 0.3% faster", "train", TRAIN);
  assert.equal(drawn(gradients), "in fp32, the software's default; [Gradients: as in published benchmarks]: in bf16, 0.3% faster");
  assert.deepEqual(gradients[1].fields, { numerics: "benchmark" });
  assert.deepEqual(flagParts("try --stack torchtitan.", "train", TRAIN, ["torchtitan"])[1].fields, { stack: "torchtitan" });
  assert.deepEqual(flagParts("--fix zero=1 tries it", "train", TRAIN)[0].fields, { fix: "zero=1" });
  assert.deepEqual(flagParts("with --batch 64seq, 524,288 tokens", "train", TRAIN)[1].fields, { batch: "64seq" });
});

test("flags that stand together are one button", () => {
  const parts = flagParts("slow end. --ttft p95:456ms --tpot 30ms would leave room.", "serve", SERVE);
  assert.equal(drawn(parts), "slow end. [Time to first token: p95:456ms, Time per output token: 30ms] would leave room.");
  assert.deepEqual(parts[1].fields, { ttft: "p95:456ms", tpot: "30ms" });
});

test("a flag without a value leads to its field", () => {
  const parts = flagParts("int4 weights shorten them (--quantize); --ttft and --tpot set one. --engine vllm or no", "serve", SERVE);
  assert.equal(drawn(parts), "int4 weights shorten them ([Quantise to]); [Time to first token] and [Time per output token] set one. [Engine] vllm or no");
  assert.deepEqual(parts.filter((part) => part.field).map((part) => part.field), ["quantize", "ttft", "tpot", "engine"]);
  assert.deepEqual(flagParts("or add --force.", "train", TRAIN)[1], { label: "Force", fields: { force: true } });
});

test("commands and flags of other commands stay as they are", () => {
  for (const text of ["Write `dscale train --slack 0` here", "run dscale train llama3-8b --slack 0", "vLLM's --max-model-len 8192", "nothing"]) {
    assert.deepEqual(flagParts(text, "train", TRAIN), [{ text }]);
  }
});
