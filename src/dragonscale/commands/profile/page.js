
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
const tip = document.getElementById("tip");
const si = (value, unit) => {
  if (value === null || value === undefined) return "–";
  const steps = unit === "s" ? [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]
    : [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]].map(([p, f]) => [p + unit, f]);
  for (const [name, factor] of steps)
    if (Math.abs(value) >= factor * 0.9995) return Number((value / factor).toPrecision(3)) + " " + name;
  return Number(value.toPrecision(3)) + " " + steps[steps.length - 1][0];
};
function say(event, lines) {
  if (!lines) { tip.hidden = true; return; }
  tip.textContent = "";
  lines.filter(one => one).forEach((text, place) => {
    const line = document.createElement("div");
    line.textContent = text;
    if (!place) line.className = "first";
    tip.append(line);
  });
  tip.hidden = false;
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - high - 8)) + "px";
}
function told(op) {
  const one = data.ops[op];
  return [one.name, [one.kind, one.section, one.phase, one.what].filter(Boolean).join(" · "),
    one.fraction === null ? "" : (100 * one.fraction).toFixed(1) + " % of its roofline (" + one.by + ")",
    one.flops ? si(one.flops, "FLOP") + " each" : "", one.bytes ? si(one.bytes, "B") + " of memory each" : "", one.scope];
}
function sized(canvas, high) {
  const wide = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1;
  canvas.style.height = high + "px";
  canvas.width = Math.round(wide * ratio); canvas.height = Math.round(high * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.font = "12px Arial, Helvetica, sans-serif"; pen.textBaseline = "middle";
  return [pen, wide];
}

// The timeline: tracks are [name, [[start, seconds, op or -1, name, colour], …]], in seconds from the start of the step.
const lines = document.getElementById("lines");
let from = 0, until = data.seconds || 1, rows = [];
const ROW = 18, TOP = 24, NAMES = 20;
function laid() {
  rows = [];
  for (const [name, slices] of data.tracks) {
    const ends = [];
    const placed = slices.map(one => {
      // What is nested goes below what holds it.
      let depth = 0;
      while (depth < ends.length && ends[depth] > one[0] + 2e-9) depth++;
      ends[depth] = one[0] + one[1];
      return [...one, Math.min(depth, 7)];
    });
    rows.push({ name, slices: placed, depth: Math.min(Math.max(ends.length, 1), 8) });
  }
}
function ticks(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(one => one * power).find(one => one >= rough);
}
function drawLines() {
  const high = TOP + rows.reduce((sum, row) => sum + NAMES + row.depth * ROW + 4, 0);
  const [pen, wide] = sized(lines, high);
  const x = when => (when - from) / (until - from) * wide;
  const step = ticks(until - from, Math.max(2, wide / 110));
  pen.strokeStyle = css("--grid"); pen.fillStyle = css("--soft");
  for (let at = Math.ceil(from / step) * step; at <= until; at += step) {
    pen.beginPath(); pen.moveTo(x(at), 0); pen.lineTo(x(at), high); pen.stroke();
    pen.fillText(si(Math.abs(at) < step / 1e6 ? 0 : at, "s"), x(at) + 3, 10);
  }
  let top = TOP;
  for (const row of rows) {
    pen.fillStyle = css("--soft"); pen.fillText(row.name, 2, top + NAMES / 2);
    row.top = top + NAMES;
    for (const [start, seconds, , name, colour, depth] of row.slices) {
      if (start + seconds < from || start > until) continue;
      const left = Math.max(0, x(start)), right = Math.min(wide, x(start + seconds));
      const y = row.top + depth * ROW;
      pen.fillStyle = css("--" + colour);
      pen.fillRect(left, y, Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.4), ROW - 2);
      if (right - left > 34) {
        pen.fillStyle = css("--on-" + colour);
        pen.save(); pen.beginPath(); pen.rect(left, y, right - left - 3, ROW); pen.clip();
        pen.fillText(name, left + 4, y + ROW / 2 - 1); pen.restore();
      }
    }
    top = row.top + row.depth * ROW + 4;
  }
}
function under(event) {
  const box = lines.getBoundingClientRect(), y = event.clientY - box.top;
  const when = from + (event.clientX - box.left) / box.width * (until - from);
  const near = (until - from) / box.width * 2;
  for (const row of rows) {
    const depth = Math.floor((y - row.top) / ROW);
    if (depth < 0 || depth >= row.depth) continue;
    return row.slices.find(one => one[5] === depth && one[0] - near <= when && when <= one[0] + one[1] + near);
  }
}
function zoom(factor, at) {
  const span = Math.min(data.seconds, Math.max((until - from) * factor, data.seconds / 1e6));
  from = Math.min(Math.max(0, at - (at - from) / (until - from) * span), data.seconds - span);
  until = from + span;
  drawLines();
}
if (lines) {
  laid(); drawLines();
  let held = null;
  lines.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey && !event.altKey && document.activeElement !== lines) return;
    event.preventDefault();
    const box = lines.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, from + (event.clientX - box.left) / box.width * (until - from));
  }, { passive: false });
  lines.addEventListener("pointerdown", event => { held = [event.clientX, from]; lines.setPointerCapture(event.pointerId); });
  lines.addEventListener("pointerup", () => { held = null; });
  lines.addEventListener("pointermove", event => {
    if (held) {
      const span = until - from, moved = (held[0] - event.clientX) / lines.clientWidth * span;
      from = Math.min(Math.max(0, held[1] + moved), data.seconds - span); until = from + span;
      drawLines(); say(event, null);
      return;
    }
    const one = under(event);
    say(event, one && [si(one[1], "s") + " at " + si(one[0], "s"), ...(one[2] >= 0 ? told(one[2]) : [one[3]])]);
  });
  lines.addEventListener("pointerleave", event => say(event, null));
  lines.addEventListener("dblclick", () => { from = 0; until = data.seconds; drawLines(); });
  lines.addEventListener("keydown", event => {
    const middle = (from + until) / 2, span = until - from;
    if (event.key === "+" || event.key === "=") zoom(0.7, middle);
    else if (event.key === "-") zoom(1.4, middle);
    else if (event.key === "0") zoom(1e9, middle);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      from = Math.min(Math.max(0, from + (event.key === "ArrowLeft" ? -0.2 : 0.2) * span), data.seconds - span);
      until = from + span; drawLines();
    } else return;
    event.preventDefault();
  });
  for (const [id, run] of [["in", () => zoom(0.5, (from + until) / 2)], ["out", () => zoom(2, (from + until) / 2)],
    ["all", () => zoom(1e9, 0)]]) document.getElementById(id).addEventListener("click", run);
}

// The roofline: points are ops with FLOPs and bytes, both axes logarithmic.
const roof = document.getElementById("roof");
let points = [];
function drawRoof() {
  const high = 380, left = 88, bottom = 36;
  const [pen, wide] = sized(roof, high);
  const some = data.points.map(one => ({ ...one, x: one.flops / one.bytes, y: one.rate }));
  const xs = some.map(one => one.x), ys = some.map(one => one.y), top = Math.max(...ys, data.peak || 0);
  const knee = data.peak && data.bandwidth ? data.peak / data.bandwidth : null;
  const x0 = Math.log10(Math.max(Math.min(...xs, knee ? knee / 10 : 1), (knee || Math.max(...xs)) / 2e3)) - 0.1, x1 = Math.log10(Math.max(...xs, knee ? knee * 4 : 1)) + 0.15;
  const y0 = Math.log10(Math.max(Math.min(...ys), top / 1e6)) - 0.1, y1 = Math.log10(top) + 0.15;
  const x = value => left + (Math.max(Math.log10(value), x0) - x0) / (x1 - x0) * (wide - left - 12);
  const y = value => 10 + (y1 - Math.log10(Math.max(value, 10 ** y0))) / (y1 - y0) * (high - bottom - 10);
  pen.strokeStyle = css("--grid"); pen.fillStyle = css("--soft");
  for (let power = Math.ceil(x0); power <= x1; power++) {
    pen.beginPath(); pen.moveTo(x(10 ** power), 10); pen.lineTo(x(10 ** power), high - bottom); pen.stroke();
    pen.textAlign = "center"; pen.fillText(power < 0 ? (10 ** power).toFixed(-power) : si(10 ** power, ""), x(10 ** power), high - bottom + 12);
  }
  pen.fillText("FLOPs per byte of memory", (left + wide) / 2, high - 8);
  pen.textAlign = "right";
  for (let power = Math.ceil(y0); power <= y1; power++) {
    pen.beginPath(); pen.moveTo(left, y(10 ** power)); pen.lineTo(wide - 12, y(10 ** power)); pen.stroke();
    pen.fillText(si(10 ** power, "FLOP/s"), left - 6, y(10 ** power));
  }
  pen.textAlign = "left";
  if (knee) {
    pen.strokeStyle = css("--limit"); pen.lineWidth = 2;
    pen.save(); pen.beginPath(); pen.rect(left, 0, wide - left - 12, high - bottom); pen.clip();
    pen.beginPath(); pen.moveTo(x(10 ** x0), y(10 ** x0 * data.bandwidth)); pen.lineTo(x(knee), y(data.peak)); pen.lineTo(x(10 ** x1), y(data.peak)); pen.stroke();
    pen.restore(); pen.lineWidth = 1;
    pen.fillStyle = css("--ink"); pen.textAlign = "right"; pen.fillText(si(data.peak, "FLOP/s") + " of " + data.chip, wide - 16, y(data.peak) - 9); pen.textAlign = "left";
  }
  points = some.map(one => ({ ...one, at: [x(one.x), y(one.y)], size: 3 + 13 * Math.sqrt(one.share) }));
  for (const one of [...points].sort((a, b) => b.size - a.size)) {
    pen.beginPath(); pen.arc(...one.at, one.size, 0, 7);
    pen.globalAlpha = 0.75; pen.fillStyle = css("--" + one.colour); pen.fill();
    pen.globalAlpha = 1; pen.strokeStyle = css("--ink"); pen.stroke();
  }
}
if (roof) {
  drawRoof();
  roof.addEventListener("pointermove", event => {
    const box = roof.getBoundingClientRect();
    const away = one => Math.hypot(event.clientX - box.left - one.at[0], event.clientY - box.top - one.at[1]) - one.size;
    const one = points.filter(each => away(each) < 4).sort((a, b) => away(a) - away(b))[0];
    say(event, one && [...told(one.op), si(one.rate, "FLOP/s") + ", " + si(one.seconds, "s") + " of a step"]);
  });
  roof.addEventListener("pointerleave", event => say(event, null));
}

// Tables: a click on a heading sorts by it, another turns the order round; a word leaves the rows that have it.
for (const table of document.querySelectorAll("table.sorts")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const sort = () => {
      const body = table.tBodies[0], up = head.getAttribute("aria-sort") === "descending";
      table.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const ordered = [...body.rows].sort((a, b) => {
        const [one, two] = [value(a), value(b)], [p, q] = [Number(one), Number(two)];
        const found = one !== "" && two !== "" && !isNaN(p) && !isNaN(q) ? p - q : String(one).localeCompare(String(two));
        return up ? found : -found;
      });
      body.append(...ordered);
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
const find = document.getElementById("find");
if (find) find.addEventListener("input", () => {
  const word = find.value.toLowerCase();
  for (const row of document.querySelectorAll("#ops tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(word);
});
const again = () => { if (lines) drawLines(); if (roof) drawRoof(); };
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
