// What a card shows, as a file: PNG and SVG of its pictures, CSV and JSON of its numbers. Nothing leaves the browser.

const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "stroke-opacity", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "display",
];
const SPACE = "http://www.w3.org/2000/svg";
const MARGIN = 20;
const LINE = 20;

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Computed styles of a drawing written into its copy, so that it looks the same without the page's style sheet. */
function inlined(drawing) {
  const copy = drawing.cloneNode(true);
  const [from, to] = [[drawing, ...drawing.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((one, at) => {
    const seen = getComputedStyle(one);
    to[at].removeAttribute("style");
    to[at].removeAttribute("class");
    for (const name of STYLES) {
      const value = seen.getPropertyValue(name);
      if (value && value !== "none 0px" && !(name === "opacity" && value === "1")) to[at].setAttribute(name, value);
    }
  });
  return copy;
}

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

function legendOf(card) {
  return [...card.querySelectorAll("[data-legend]")].map((one) => {
    const swatch = one.querySelector(".swatch");
    return { text: one.dataset.legend, colour: swatch ? getComputedStyle(swatch).backgroundColor : null };
  });
}

/** A text in lines of at most so many signs. */
function wrapped(text, most) {
  const lines = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + word.length < most) lines[last] += ` ${word}`; else lines.push(word);
  }
  return lines;
}

/** The pictures of a card as one SVG with its title and the legend; null where it has none. */
export function pictureOf(card) {
  const drawings = [...card.querySelectorAll("svg[data-chart]")].filter((one) => one.getClientRects().length);
  if (!drawings.length) return null;
  const { color: ink, backgroundColor: paper, fontFamily: font } = getComputedStyle(card);
  const width = Math.max(...drawings.map((one) => one.width.baseVal.value)) + 2 * MARGIN;
  const made = element("svg", { xmlns: SPACE, "font-family": font });
  made.append(element("rect", { width: "100%", height: "100%", fill: paper }));
  const title = card.querySelector("h2")?.textContent || "";
  made.append(element("text", { x: MARGIN, y: MARGIN + 15, fill: ink, "font-size": 16, "font-weight": 600 }, title));
  let y = MARGIN + 34;
  for (const line of wrapped(document.querySelector("#answer .sentence")?.textContent || "", (width - 2 * MARGIN) / 6)) {
    made.append(element("text", { x: MARGIN, y, fill: ink, opacity: 0.75, "font-size": 12 }, line));
    y += 16;
  }
  for (const one of drawings) {
    const place = element("g", { transform: `translate(${MARGIN} ${y})` });
    place.append(...inlined(one).childNodes);
    made.append(place);
    y += one.height.baseVal.value + 12;
  }
  const legend = legendOf(card);
  const columns = Math.max(1, Math.floor((width - 2 * MARGIN) / 260));
  legend.forEach(({ text, colour }, at) => {
    const [x, line] = [MARGIN + (at % columns) * 260, y + Math.floor(at / columns) * LINE];
    if (colour) made.append(element("rect", { x, y: line, width: 10, height: 10, rx: 2, fill: colour }));
    made.append(element("text", { x: x + 16, y: line + 9, fill: ink, "font-size": 12 }, text));
  });
  y += Math.ceil(legend.length / columns) * LINE + (legend.length ? 8 : 0);
  made.append(element("text", { x: width - MARGIN, y: y + 6, fill: ink, opacity: 0.6, "font-size": 10, "text-anchor": "end" }, "Dragonscale"));
  const height = y + MARGIN;
  made.setAttribute("width", width);
  made.setAttribute("height", height);
  made.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { text: new XMLSerializer().serializeToString(made), width, height };
}

/** Save a card's pictures as SVG. */
export function saveSvg(card, name) {
  const picture = pictureOf(card);
  if (picture) offer(new Blob([picture.text], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Save a card's pictures as PNG, at twice their size. */
export async function savePng(card, name) {
  const picture = pictureOf(card);
  if (!picture) return;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width * 2, picture.height * 2];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => offer(blob, `${name}.png`), "image/png");
}

/** Save a panel's data as JSON. */
export function saveJson(data, name) {
  offer(new Blob([`${JSON.stringify(data, null, 2)}\n`], { type: "application/json" }), `${name}.json`);
}

/** Save a panel's data as CSV. */
export function saveCsv(data, name) {
  offer(new Blob([csvOf(rowsOf(data))], { type: "text/csv" }), `${name}.csv`);
}

const record = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const amount = (value) => record(value) && "value" in value && "text" in value;

function flat(row, before = "") {
  const found = {};
  for (const [key, value] of Object.entries(row)) {
    const name = before + key;
    if (amount(value)) found[value.unit && value.unit !== "count" ? `${name}_${value.unit.replace(/\W+/g, "_per_")}` : name] = value.value;
    else if (record(value)) Object.assign(found, flat(value, `${name}_`));
    else if (Array.isArray(value)) { if (value.every((one) => !record(one) && !Array.isArray(one))) found[name] = value.join(" "); } else found[name] = value;
  }
  return found;
}

/** The rows of a panel's data: its series point by point, else its longest list of records, else the record itself. */
export function rowsOf(data) {
  if (Array.isArray(data)) return data.filter(record).map((row) => flat(row));
  if (!record(data)) return [];
  if (Array.isArray(data.tracks)) {
    return data.tracks.flatMap((track) => (track.slices || []).map(([name, start, seconds, , , term]) => ({ track: track.name, name, start_s: start, duration_s: seconds, term })));
  }
  if (Array.isArray(data.axes) && data.axes.some((axis) => record(axis) && axis.moves)) {
    return data.axes.flatMap(({ moves, ...axis }) => (moves.length ? moves : [{}]).map((move) => ({ ...flat(axis), ...flat(move, "move_") })));
  }
  if (Array.isArray(data.series)) {
    return data.series.flatMap((one) => (one.points || []).map((point) => ({ series: one.name, x: point[0], y: point[1] })));
  }
  const lists = Object.values(data).filter((one) => Array.isArray(one) && one.some(record)).sort((a, b) => b.length - a.length);
  return lists.length ? lists[0].filter(record).map((row) => flat(row)) : [flat(data)];
}

function quoted(value) {
  const text = value == null ? "" : String(value);
  // a cell that a spreadsheet would run as a formula is made text
  const safe = /^[=+@\t]/.test(text) || /^-[^\d.]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Rows as CSV with a header. */
export function csvOf(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}
