// Slices as one types them (h100:64, v5p:8x16x16, h100+hbm=2x:8): how many chips they have, and which slices of another chip have as many.

/** The chip that a slice or a chip is of, as the catalogue has it; nothing where it is not there, or where several are named. */
export function chipOf(chips, on) {
  const name = String(on || "").trim().split(/[:+]/)[0].toLowerCase();
  return chips.find((one) => one.name === name);
}

/** How many chips a slice has; null where only a chip is named, or several slices are. */
export function countOf(on) {
  const found = /:(\d+(?:x\d+)*)(?:\*(\d+))?$/.exec(String(on || "").trim());
  return found && !String(on).includes(",") ? found[1].split("x").reduce((all, side) => all * Number(side), Number(found[2] || 1)) : null;
}

/** The name that stands before the topology: the chip with what is changed of it. */
const named = (on) => String(on).trim().split(":")[0];

/** The stops of a slider over the slices of a chip: {value, on, text}; a slice that was typed stands in the place of its size. `command` is train or serve. */
export function sliceStops(chip, command, on) {
  const typed = countOf(on);
  const stops = new Map(chip[command].map(([many, topology]) => [many, `${named(on)}:${topology}`]));
  if (typed) stops.set(typed, String(on).trim());
  return [...stops].sort(([one], [other]) => one - other).map(([value, slice]) => ({ value, on: slice, text: `${slice}, ${value.toLocaleString("en-US")} chips` }));
}

/** The slice of a chip with so many chips, or with as nearly as many as can be had. */
export function nearestSlice(chip, command, count, name = chip.name) {
  const sizes = new Map(chip[command].map(([many, topology]) => [many, topology]));
  const whole = chip.unit > 0 && (count < chip.unit ? chip.node >= chip.unit : count % chip.unit === 0);
  if (!sizes.has(count) && (whole || chip.also.includes(count))) sizes.set(count, String(count));
  const far = (many) => Math.abs(Math.log(many / count));
  const many = [...sizes.keys()].reduce((best, one) => (far(one) < far(best) ? one : best));
  return { on: `${name}:${sizes.get(many)}`, chips: many };
}

/** What picking a chip without a topology comes to where a slice with a number of chips stood: {on, note}, the same number of the new chip.
 * Null where nothing is kept: a topology was given, several chips were, or no number of chips stood there. */
export function keptCount(chips, command, before, picked) {
  const [chip, count] = [chipOf(chips, picked), countOf(before)];
  if (!chip || !count || String(picked).includes(":") || String(picked).includes(",")) return null;
  const kept = nearestSlice(chip, command, count, named(picked));
  const [many, wanted] = [kept.chips, count].map((one) => one.toLocaleString("en-US"));
  const exact = kept.chips === count;
  return { on: kept.on, note: exact ? `The ${many} chips are kept: ${kept.on}.` : `${chip.name} has no slice of ${wanted} chips; the nearest is ${kept.on} with ${many}.` };
}

/** The chips of one tab as another takes them: a fleet begins with one node of the chip that is trained on, and a training job keeps its own number of chips. */
export function carriedSlice(chips, from, to, on, own) {
  const [chip, mine] = [chipOf(chips, on), chipOf(chips, own)];
  if (!chip || String(on).includes(",")) return on;
  const serving = to !== "train";
  if ((from === "train") === !serving) return on;
  if (mine === chip) return own;
  return nearestSlice(chip, serving ? "serve" : "train", serving ? chip.node : countOf(own) || chip.node, named(on)).on;
}
