// Numbers, files of numbers and axes as the page writes them, without a page.

import assert from "node:assert/strict";
import test from "node:test";
import { binaryText, binaryTicks, linearTicks, logTicks, tickText } from "../../../src/dragonscale/web/page/js/charts/svg.js";
import { csvOf, rowsOf } from "../../../src/dragonscale/web/page/js/save.js";

test("numbers in their units", () => {
  const shown = [[0.02, "s"], [100, "s"], [7200, "s"], [8e10, "bytes"], [4.59e14, "FLOP/s"], [0.652, "share"], [4194304, "count"], [1024, "count"], [0, "s"], [0, "share"], [2.5, "USD"]];
  assert.deepEqual(shown.map(([value, unit]) => tickText(value, unit)), ["20ms", "100s", "2h", "80GB", "459TFLOP/s", "65.2%", "4Mi", "1,024", "0", "0%", "$2.5"]);
  assert.deepEqual([1, 1024, 1572864, 2147483648].map(binaryText), ["1", "1Ki", "1.5Mi", "2Gi"]);
});

test("ticks lie inside and rise", () => {
  for (const [ticks, low, high] of [[linearTicks(0, 97), 0, 97], [logTicks(0.003, 40), 0.003, 40], [binaryTicks(1000, 9e6), 1000, 9e6]]) {
    assert.ok(ticks.length >= 2 && ticks.length <= 14, ticks.join());
    assert.ok(ticks.every((one, at) => one >= low * 0.999 && one <= high * 1.001 && (at === 0 || one > ticks[at - 1])), ticks.join());
  }
});

test("a table of numbers holds no formula and no line of its own", () => {
  const rows = rowsOf({ parts: [{ name: '=HYPERLINK("x")', shown: { value: 2.5, unit: "s", text: "2.5s", why: "" }, lines: [{ what: "a" }] }] });
  assert.equal(csvOf(rows), 'name,shown_s\r\n"\'=HYPERLINK(""x"")",2.5\r\n');
});
