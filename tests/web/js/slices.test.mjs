// Slices as they are typed: how many chips they have, and which of another chip have as many.

import assert from "node:assert/strict";
import { test } from "node:test";
import { carriedSlice, chipOf, countOf, keptCount, nearestSlice, sliceStops } from "../../../src/dragonscale/web/page/js/slices.js";

const H100 = { name: "h100", node: 8, unit: 8, train: [[1, "1"], [8, "8"], [16, "16"], [1024, "1024"], [2048, "2048"]], serve: [[1, "1"], [2, "2"], [8, "8"]], also: [] };
const V5P = { name: "v5p", node: 4, unit: 0, train: [[4, "2x2x1"], [1024, "4x16x16"], [2048, "8x16x16"]], serve: [[4, "2x2x1"], [8, "2x2x2"]], also: [] };
const GB200 = { name: "gb200", node: 4, unit: 72, train: [[4, "4"], [64, "64"], [72, "72"], [144, "144"]], serve: [[4, "4"], [12, "12"]], also: [128, 256] };
const CHIPS = [H100, V5P, GB200];

test("a slice says its chip and how many there are", () => {
  assert.deepEqual(["h100:64", "v5p:8x16x16", "v5e:16x16*2", "h100", "h100:8,v6e:4x4", "h100+hbm=2x:8"].map(countOf), [64, 2048, 512, null, null, 8]);
  assert.equal(chipOf(CHIPS, "H100+hbm=2x:8"), H100);
  assert.equal(chipOf(CHIPS, "nosuch:8"), undefined);
});

test("a chip that is picked keeps how many there were", () => {
  assert.equal(keptCount(CHIPS, "train", "v5p:8x16x16", "h100").on, "h100:2048");
  assert.equal(keptCount(CHIPS, "train", "v5p:8x16x16", "h100+hbm=2x").on, "h100+hbm=2x:2048");
  assert.equal(keptCount(CHIPS, "train", "h100:96", "gb200").on, "gb200:72");
  assert.match(keptCount(CHIPS, "train", "h100:96", "gb200").note, /no slice of 96 chips; the nearest is gb200:72 with 72/);
  assert.equal(keptCount(CHIPS, "train", "h100:128", "gb200").on, "gb200:128");
  assert.equal(keptCount(CHIPS, "train", "gb200:72", "h100").on, "h100:72");
  assert.equal(nearestSlice(V5P, "train", 96).on, "v5p:4x16x16");
  for (const picked of ["v5p:2x2x1", "h100,v5p", "nosuch"]) assert.equal(keptCount(CHIPS, "train", "h100:8", picked), null);
  assert.equal(keptCount(CHIPS, "train", "h100", "v5p"), null);
});

test("a slider has the slices of the chip that stands in the field, and what was typed", () => {
  assert.deepEqual(sliceStops(H100, "train", "h100:96").map((stop) => stop.value), [1, 8, 16, 96, 1024, 2048]);
  assert.equal(sliceStops(V5P, "train", "v5p:4x8x32").find((stop) => stop.value === 1024).on, "v5p:4x8x32");
  assert.equal(sliceStops(H100, "serve", "h100+hbm=2x")[0].on, "h100+hbm=2x:1");
});

test("a fleet begins with a node, and training keeps its own number", () => {
  assert.equal(carriedSlice(CHIPS, "train", "serve", "v5p:8x16x16", "h100:8"), "v5p:2x2x1");
  assert.equal(carriedSlice(CHIPS, "train", "serve", "h100:1024", "h100:2"), "h100:2");
  assert.equal(carriedSlice(CHIPS, "serve", "train", "v5p:2x2x1", "v5p:8x16x16"), "v5p:8x16x16");
  assert.equal(carriedSlice(CHIPS, "serve", "train", "h100:2", "v5p:8x16x16"), "h100:2048");
  assert.equal(carriedSlice(CHIPS, "serve", "simulate", "h100:2", "v5p:2x2x1"), "h100:2");
  assert.equal(carriedSlice(CHIPS, "train", "serve", "h100:8,v5p", "h100:8"), "h100:8,v5p");
});
