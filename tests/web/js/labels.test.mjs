// Places of texts in charts, and what axes say, without a page.

import assert from "node:assert/strict";
import test from "node:test";
import { along, placed } from "../../../src/dragonscale/web/page/js/charts/labels.js";
import { axisText, tickText } from "../../../src/dragonscale/web/page/js/charts/svg.js";

const BOX = { left: 0, right: 400, top: 0, bottom: 300 };
const covers = (one, other) => !(other[2] < one[0] || other[0] > one[2] || other[3] < one[1] || other[1] > one[3]);

test("texts of rules at one place lie apart", () => {
  const rows = [10, 24, 38].flatMap((y) => [[100, y, "start"], [95, y, "end"]]);
  const found = placed(["SLO met up to 93", "TPOT asked for: 50ms", "176 fit"].map((text) => ({ text, spots: rows })), BOX);
  for (const [at, one] of found.entries()) for (const other of found.slice(at + 1)) assert.ok(!covers(one.area, other.area));
});

test("a text leaves a line and the edge alone where it can, and covers a line rather than a text", () => {
  const line = along([[0, 100], [400, 100]]);
  const [free] = placed([{ text: "3.07s", spots: [[200, 102, "start"], [200, 80, "start"]] }], BOX, [], line);
  assert.equal(free.y, 80);
  const [inside] = placed([{ text: "a long text at the edge", spots: [[390, 50, "start"], [390, 50, "end"]] }], BOX);
  assert.equal(inside.anchor, "end");
  const [crossing] = placed([{ text: "3.07s", spots: [[200, 102, "start"], [200, 80, "start"]] }], BOX, [[190, 70, 260, 85]], line);
  assert.equal(crossing.y, 102);
});

test("one axis counts in one way", () => {
  const text = axisText({ binary: true, unit: "count" }, 64 * 1048576);
  assert.deepEqual([131072, 1048576, 2.5 * 1048576].map(text), ["128Ki", "1Mi", "2.5Mi"]);
  assert.deepEqual([512, 2048].map(axisText({ binary: true, unit: "count" }, 65536)), ["512", "2,048"]);
  assert.equal(tickText(0.02, "s"), "20ms");
});

test("a text crosses a rule rather than a line, and neither where it can", () => {
  const line = along([[0, 100], [400, 100]]);
  const rule = along([[210, 0], [210, 300]]);
  const on = [200, 102, "start"];
  assert.equal(placed([{ text: "3.07s", spots: [on, [200, 80, "start"]] }], BOX, [], line, rule)[0].y, 80);
  assert.equal(placed([{ text: "3.07s", spots: [[200, 80, "start"], [300, 80, "start"]] }], BOX, [], line, rule)[0].x, 300);
});
