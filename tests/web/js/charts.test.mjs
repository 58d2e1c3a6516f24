// Legends and formulas, without a page.

import assert from "node:assert/strict";
import test from "node:test";
import { legendOf } from "../../../src/dragonscale/web/page/js/charts/roofline.js";
import { termsOf } from "../../../src/dragonscale/web/page/js/maths.js";

test("a legend has one entry for each colour, which names all that is drawn in it", () => {
  const points = [
    { name: "decode QKV", bound: "memory", role: "hbm", group: "a decode step" },
    { name: "decode M", bound: "compute", role: "hbm", group: "a decode step" },
    { name: "prefill M", bound: "compute", role: "compute", group: "a prompt" },
  ];
  assert.deepEqual(legendOf(points), [{ role: "hbm", name: "a decode step" }, { role: "compute", name: "a prompt" }]);
  const bounds = legendOf([{ name: "a", bound: "HBM" }, { name: "b", bound: "compute" }, { name: "c", bound: "memory" }]);
  assert.deepEqual(bounds, [{ role: "hbm", name: "bound by HBM, bound by memory" }, { role: "compute", name: "bound by compute" }]);
});

test("a formula breaks before its signs and nowhere else", () => {
  const sum = ["mrow", ["mi", "a"], ["mo", "+"], ["mfrac", ["mi", "b"], ["mi", "c"]], ["mo", "−"], ["mi", "d"]];
  assert.deepEqual(termsOf(sum).map((term) => term.length - 1), [1, 2, 2]);
  const equation = ["mrow", ["mi", "t"], ["mo", "="], sum];
  assert.deepEqual(termsOf(equation).map((term) => term.slice(1).map((part) => part[0])), [["mi"], ["mo", "mi"], ["mo", "mfrac"], ["mo", "mi"]]);
  assert.deepEqual(termsOf(["mfrac", ["mi", "b"], ["mi", "c"]]), [["mrow", ["mfrac", ["mi", "b"], ["mi", "c"]]]]);
});
