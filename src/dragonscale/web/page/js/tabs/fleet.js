// A simulated fleet over time: a player that steps through the run, a tile for each replica at that moment, and charts with its mark.

import { Lines } from "../charts/lines.js";
import { Segmented } from "../form.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { setView } from "../state.js";
import { colourOf } from "../theme.js";

const PLAYED = 12000;
const FRAME = 80;
const ROLES = ["compute", "hbm", "tensor", "data", "expert", "pipe", "context", "fsdp"];
const DRAWN = ROLES.length;
const QUANTITIES = [
  { name: "running", title: "requests running", unit: "count" }, { name: "waiting", title: "requests waiting", unit: "count" },
  { name: "pages", title: "KV cache in use", unit: "share" }, { name: "tokens", title: "output tokens/s", unit: "count" },
];
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const whole = (value) => Math.round(value).toLocaleString("en-US");
const pairs = (moments, values) => moments.map((moment, at) => [moment, values[at]]);

/** The place in the run, and a function that plays it; without motion where the reader wants none. */
function usePlayer(many, start) {
  const [at, setAt] = useState(Math.min(start, many - 1));
  const [playing, setPlaying] = useState(false);
  const run = useRef(0);
  useEffect(() => {
    if (!playing) return undefined;
    let [place, last] = [at >= many - 1 ? 0 : at, performance.now()];
    const step = (now) => {
      if (now - last >= FRAME) {
        place += ((now - last) / PLAYED) * many;
        last = now;
        setAt(Math.min(many - 1, Math.floor(place)));
        if (place >= many - 1) { setPlaying(false); return; }
      }
      run.current = requestAnimationFrame(step);
    };
    run.current = requestAnimationFrame(step);
    return () => cancelAnimationFrame(run.current);
  }, [playing, many]);
  return { at: Math.min(at, many - 1), setAt: (to) => { setPlaying(false); setAt(to); }, playing, toggle: () => setPlaying(!playing) };
}

function Tile({ replica, at }) {
  const [pages, running, waiting, tokens] = ["pages", "running", "waiting", "tokens"].map((name) => replica[name][at]);
  const label = `${replica.name}: ${running} running, ${waiting} waiting, KV cache ${Math.round(100 * pages)}% full, ${whole(tokens)} tokens/s`;
  return html`<li class=${`tile${waiting ? " tile-waiting" : ""}${running ? "" : " tile-idle"}`} title=${label}>
    <div class="tile-fill" style=${{ transform: `scaleY(${Math.min(pages, 1)})`, background: colourOf("cache") }}></div>
    <span class="hush">${label}</span>
    <span aria-hidden="true"><b>${replica.index}</b><small>${running} run</small><small>${waiting ? `${waiting} wait` : `${Math.round(100 * pages)}%`}</small></span></li>`;
}

/** The panel `over_time`. `view` holds what is looked at: {by, quantity, moment}. */
export function FleetOverTime({ data, view }) {
  const many = data.moments.length;
  const { at, setAt, playing, toggle } = usePlayer(many, Number(view.moment) || Math.floor(many / 2));
  const by = view.by === "replicas" ? "replicas" : "fleet";
  const quantity = QUANTITIES.find((one) => one.name === view.quantity) || QUANTITIES[0];
  const x = useMemo(() => ({ label: "simulated time", unit: "s", from: 0, upto: data.seconds.value }), [data]);
  const rules = useMemo(() => [{ at: data.moments[at], text: data.texts[at], role: "limit" }], [data, at]);
  const rest = (to) => setView({ moment: String(to) });
  const draw = (series, y, label) => html`<div class="over"><h3>${label}</h3><${Lines} series=${series} x=${x} y=${y} rules=${rules} height=${190} label=${`${label} over time`}
    onPick=${(moment) => { const to = nearest(data.moments, moment); setAt(to); rest(to); }} /></div>`;
  const fleet = useMemo(() => fleetSeries(data), [data]);
  const each = useMemo(() => data.replicas.slice(0, DRAWN).map((one, place) => ({ name: one.name, role: ROLES[place], points: pairs(data.moments, one[quantity.name]) })), [data, quantity]);
  return html`<div class="player" role="group" aria-label="Moment of the run">
      ${!still() && html`<button type="button" class="button" aria-pressed=${String(playing)} onClick=${toggle}>${playing ? "Pause" : "Play"}</button>`}
      <input type="range" min="0" max=${many - 1} step="1" value=${at} aria-label="Moment" aria-valuetext=${data.texts[at]}
        style=${{ "--part": `${(100 * at) / Math.max(1, many - 1)}%` }}
        onInput=${(event) => setAt(Number(event.currentTarget.value))} onChange=${(event) => rest(Number(event.currentTarget.value))} />
      <output>${data.texts[at]} of ${data.seconds.text}</output>
    </div>
    <ul class="tiles" aria-label=${`Replicas at ${data.texts[at]}`}>${data.replicas.map((one) => html`<${Tile} key=${one.index} replica=${one} at=${at} />`)}</ul>
    <p class="about">A tile is a replica: its fill is the KV cache in use${data.about ? `. ${data.about}` : "."}</p>
    <div class="over-choice"><${Segmented} label="Charts of" name="by" value=${by} choices=${[{ value: "fleet", text: "the fleet" }, { value: "replicas", text: "each replica" }]}
        onChange=${(to) => setView({ by: to === "fleet" ? "" : to })} />
      ${by === "replicas" && html`<${Segmented} label="Quantity" name="quantity" value=${quantity.name} choices=${QUANTITIES.map((one) => ({ value: one.name, text: one.title }))}
        onChange=${(to) => setView({ quantity: to === "running" ? "" : to })} />`}</div>
    ${by === "fleet"
      ? html`<div class="overs">${draw(fleet.requests, { label: "requests", unit: "count", from: 0 }, "Requests in the fleet")}
          ${draw(fleet.shares, { label: "share", unit: "share", from: 0, upto: 1 }, "KV cache and busy replicas")}
          ${fleet.tokens && draw(fleet.tokens, { label: "tokens/s", unit: "count", from: 0 }, "Output tokens a second")}
          ${fleet.rates && draw(fleet.rates, { label: "requests/s", unit: "count", from: 0 }, "Requests a second")}
          ${fleet.replicas && draw(fleet.replicas, { label: "replicas", unit: "count", from: 0 }, "Replicas that are up")}</div>`
      : html`${draw(each, { label: quantity.title, unit: quantity.unit, from: 0, ...(quantity.unit === "share" ? { upto: 1 } : {}) }, quantity.title)}
          ${data.replicas.length > DRAWN && html`<p class="about">The first ${DRAWN} replicas are drawn; the tiles show all.</p>`}`}`;
}

const nearest = (moments, wanted) => moments.reduce((best, one, at) => (Math.abs(one - wanted) < Math.abs(moments[best] - wanted) ? at : best), 0);

function fleetSeries(data) {
  const { fleet, moments, arrivals } = data;
  const line = (name, role, values) => ({ name, role, points: pairs(moments, values) });
  const several = Math.max(...fleet.replicas) - Math.min(...fleet.replicas) > 0.01;
  return {
    requests: [line("running", "compute", fleet.running), line("waiting", "tensor", fleet.waiting)],
    shares: [line("KV cache in use", "cache", fleet.pages), line("busy", "compute", fleet.busy)],
    tokens: fleet.tokens.length ? [line("output tokens/s", "hbm", fleet.tokens)] : null,
    rates: arrivals.arriving.length > 1
      ? [{ name: "coming", role: "data", points: arrivals.arriving }, ...(arrivals.ending.length > 1 ? [{ name: "ending", role: "compute", points: arrivals.ending }] : [])] : null,
    replicas: several ? [line("replicas", "data", fleet.replicas)] : null,
  };
}
