// Names beside what they name, moved or left out where they would cover each other.

import { html } from "../html.js";
import { textWidth } from "./svg.js";

const SIZE = 11;

/** Places for labels on one side, in order, moved apart so that none covers another. */
export function apart(places, gap, low, high) {
  const order = places.map((place, at) => [place, at]).sort((a, b) => a[0] - b[0]);
  let floor = low;
  for (const one of order) { one[0] = Math.max(one[0], floor); floor = one[0] + gap; }
  let ceiling = high;
  for (const one of [...order].reverse()) { one[0] = Math.min(one[0], ceiling); ceiling = one[0] - gap; }
  const found = [];
  for (const [place, at] of order) found[at] = place;
  return found;
}

/** Where a text of this width starts, near `place`, so that it stays between `low` and `high`. */
export const inside = (place, wide, low, high) => Math.max(low, Math.min(place, high - wide));

/** Places for a name around its point: beside it first, then further down and up, where a leader joins the two. */
function tried({ x, y }, wide) {
  const beside = [[x + 9, y + 4, "start"], [x - 9, y + 4, "end"], [x, y + 18, "middle"], [x, y - 10, "middle"], [x + 8, y - 8, "start"], [x - 8, y - 8, "end"], [x + 8, y + 16, "start"], [x - 8, y + 16, "end"]];
  const further = [24, 40, 56, 72, 88].flatMap((far) => [[x + 12, y + far, "start"], [x - 12, y + far, "end"], [x + 12, y - far, "start"], [x - 12, y - far, "end"], [x + 12 + far, y + far, "start"], [x - 12 - far, y + far, "end"]]);
  return [...beside, ...further].map(([px, py, anchor], index) => {
    const left = anchor === "start" ? px : anchor === "end" ? px - wide : px - wide / 2;
    const leader = index < beside.length ? null : [[x, y + (py > y ? 5 : -5)], [px + (px > x ? -2 : 2), py + (py > y ? -5 : 0)]];
    return { px, py, anchor, leader, area: [left, py - 10, left + wide, py + 3] };
  });
}

const apartFrom = (one, other) => other[2] < one[0] || other[0] > one[2] || other[3] < one[1] || other[1] > one[3];

const CROSSED = 3;

const holds = (area, [x, y]) => x >= area[0] && x <= area[2] && y >= area[1] && y <= area[3];

/** What an area touches: the edge of the box and other texts weigh more than lines, and those more than rules. */
function costOf(area, box, areas, lines, rules) {
  const outside = area[0] < box.left - 1 || area[2] > box.right + 1 || area[1] < box.top || area[3] > box.bottom;
  let crossed = 0;
  for (const point of lines) if (holds(area, point) && (crossed += 1) === CROSSED) break;
  if (rules.some((point) => holds(area, point))) crossed += 1;
  const covered = areas.reduce((many, other) => (apartFrom(area, other) ? many : many + 1), 0);
  return (outside ? 100 : 0) * CROSSED + covered * 10 * CROSSED + crossed;
}

/** A place for each text, {text, size, weight, spots: [[x, y, anchor] …]}, in order: the first of its spots that is inside of `box` and touches neither an area of `taken`
 * ([left, top, right, bottom]) nor a text before it; else the one that touches least. `lines` and `rules` are points of them, which may rather be touched than
 * texts. Gives {text, x, y, anchor, area} for each. */
export function placed(texts, box, taken = [], lines = [], rules = []) {
  const areas = [...taken];
  return texts.map(({ text, size = SIZE, weight = 400, spots }) => {
    const wide = textWidth(text, size, weight);
    const every = spots.map(([x, y, anchor]) => {
      const left = anchor === "start" ? x : anchor === "end" ? x - wide : x - wide / 2;
      return { text, x, y, anchor, area: [left, y - size + 1, left + wide, y + 3] };
    });
    // this runs at every move of a slider: a spot that touches nothing ends the search, and each is weighed once
    let [best, least] = [every[0], Infinity];
    for (const one of every) {
      const cost = costOf(one.area, box, areas, lines, rules);
      if (cost < least) [best, least] = [one, cost];
      if (!cost) break;
    }
    areas.push(best.area);
    return best;
  });
}

/** Points along a line, near enough to each other that no text lies between two of them. */
export function along(points, step = 6) {
  return points.flatMap(([x, y], at) => {
    const [nx, ny] = points[at + 1] || [x, y];
    const many = Math.max(1, Math.ceil(Math.hypot(nx - x, ny - y) / step));
    return Array.from({ length: many }, (_, part) => [x + ((nx - x) * part) / many, y + ((ny - y) * part) / many]);
  });
}

/** Areas along a leader, which other texts keep off. */
const alongLeader = (leader) => along(leader, 4).map(([x, y]) => [x - 1, y - 1, x + 1, y + 1]);

/** Names of points beside them, with a leader where they had to go further; a name that finds no free place is left out, since the reader tells it. `taken` are
 * areas [left, top, right, bottom] to keep free, `lines` others to keep off where there is room; those at the places of `first` are bold and get their
 * places before the others; only they go further than beside their point where `near` is set. */
export function PointNames({ names, spots, box, taken = [], lines = [], first = [], near = false }) {
  const dots = spots.map((spot) => [spot.x - 6, spot.y - 6, spot.x + 6, spot.y + 6]);
  const areas = [...dots, ...taken];
  const order = [...first, ...names.map((_, at) => at).filter((at) => !first.includes(at))];
  const free = (area, at) => areas.every((other, index) => index === at || apartFrom(area, other));
  return order.map((at) => {
    if (!names[at]) return null;
    const strong = first.includes(at);
    const wide = strong ? textWidth(names[at], 12, 600) : textWidth(names[at], SIZE);
    const possible = tried(spots[at], wide).filter(({ area, leader }) => area[0] > box.left && area[2] < box.right + 14 && area[1] > box.top - 24 && area[3] < box.bottom && free(area, at)
      && (!leader || ((strong || !near) && alongLeader(leader).every((one) => free(one, at)))));
    const place = possible.find(({ area }) => lines.every((other) => apartFrom(area, other))) || (strong ? possible[0] : null);
    if (!place) return null;
    areas.push(place.area, ...(place.leader ? alongLeader(place.leader) : []));
    return html`<g key=${at}>${place.leader && html`<line class="leader" x1=${place.leader[0][0]} y1=${place.leader[0][1]} x2=${place.leader[1][0]} y2=${place.leader[1][1]} />`}
      <text class=${strong ? "mark-text" : "note op"} x=${place.px} y=${place.py} text-anchor=${place.anchor}>${names[at]}</text></g>`;
  });
}
