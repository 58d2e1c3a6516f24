// The page's own scheduler, without a page: `node --test tests/web/js`.

import assert from "node:assert/strict";
import test from "node:test";
import { RANKS, rankOf, scheduled, urgent } from "../../../src/dragonscale/web/page/js/schedule.js";

const core = { view: "train", fields: { batch: "1" }, panels: ["answer", "time"] };
const curve = { view: "train", panels: ["best_batches"] };
const tick = (milliseconds = 5) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

/** Until the log has so many lines, for at most two seconds: timers are late on a busy machine. */
async function until(log, lines) {
  for (let tries = 0; log.length < lines && tries < 400; tries += 1) await tick();
}

/** Questions that are answered when the test says so; `log` has what was begun and given up. */
function backend() {
  const log = [];
  const open = new Map();
  const start = (request, heard, signal) => new Promise((resolve) => {
    const name = request.panels[0];
    log.push(`begin ${name}`);
    open.set(name, (message) => { heard(message); resolve(); });
    signal?.addEventListener("abort", () => { log.push(`end ${name}`); resolve(); });
  });
  return { log, start, finish: (name, message = { done: true }) => open.get(name)(message) };
}

test("what the reader moves comes before a question, its plan's curves and derivations, and searches behind the page", () => {
  assert.equal(rankOf({ ...core, brief: true }), RANKS.moved);
  assert.equal(rankOf({ view: "chips", panels: ["knobs"] }), RANKS.moved);
  assert.equal(rankOf(core), RANKS.asked);
  assert.equal(rankOf({ view: "train" }), RANKS.asked);
  assert.equal(rankOf({ view: "why", panels: ["facts"] }), RANKS.beside);
  assert.equal(rankOf({ view: "train", panels: ["batches", "roofline", "timeline"] }), RANKS.beside);
  assert.equal(rankOf(curve), RANKS.behind);
});

test("of a queue the most urgent is next, of equals the first, and only what comes before the one that runs", () => {
  const queue = [curve, core, { ...core, fields: {} }, { ...core, brief: true }].map((request) => ({ request }));
  assert.equal(urgent(queue), 3);
  assert.equal(urgent(queue.slice(0, 3)), 1);
  assert.equal(urgent(queue.slice(0, 1), RANKS.behind), -1);
  assert.equal(urgent([], RANKS.behind), -1);
});

test("a search behind the page waits for the reader's question, and is interrupted by the next and asked again", async () => {
  const { log, start, finish } = backend();
  const ask = scheduled(start, 1);
  const heard = [];
  const whole = ask(curve, (message) => heard.push(message));
  ask(core, () => {});
  await tick();
  assert.deepEqual(log, ["begin answer"]);
  finish("answer");
  await until(log, 2);
  assert.deepEqual(log, ["begin answer", "begin best_batches"]);
  ask(core, () => {});
  assert.deepEqual(log.slice(2), ["end best_batches", "begin answer"]);
  finish("best_batches", { panel: "late" }); // what comes of the interrupted attempt is not heard
  await tick();
  assert.equal(log.length, 4);
  finish("answer");
  await until(log, 5);
  finish("best_batches");
  await whole;
  assert.deepEqual(heard, [{ done: true }]);
});

test("searches behind the page run one after the other; what nobody wants any more is left out", async () => {
  const { log, start, finish } = backend();
  const ask = scheduled(start, 1);
  const controller = new AbortController();
  const given = ask({ view: "train", panels: ["scaling"] }, () => {}, controller.signal);
  ask(curve, () => {});
  await until(log, 1);
  assert.deepEqual(log, ["begin scaling"]);
  controller.abort();
  await given;
  await until(log, 3);
  assert.deepEqual(log, ["begin scaling", "end scaling", "begin best_batches"]);
  finish("best_batches");
  const late = new AbortController();
  late.abort();
  await ask(curve, () => {}, late.signal);
  assert.equal(log.length, 3);
});

test("a question that fails lets the searches go on", async () => {
  const { log, start } = backend();
  const ask = scheduled((request, ...rest) => (request === core ? Promise.reject(new Error("gone")) : start(request, ...rest)), 1);
  ask(curve, () => {});
  await assert.rejects(ask(core, () => {}));
  await until(log, 1);
  assert.deepEqual(log, ["begin best_batches"]);
});
