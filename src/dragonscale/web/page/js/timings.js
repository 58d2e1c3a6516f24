// How long a slider's move takes until it is seen: the last moves as [time of the input, time of the frame that shows it], in
// milliseconds, at `window.__paints` for tests and for whoever wonders. Costs two clock readings a move.

const KEPT = 200;
const paints = [];
Object.assign(window, { __paints: paints });
let moved = 0;
let rest = 0;

/** A slider moves now. While it does, bars and lines jump instead of gliding: gliding would cost frames that the next move needs. */
export function noteInput() {
  moved = performance.now();
  if (!rest) document.documentElement.dataset.moving = "";
  clearTimeout(rest);
  rest = setTimeout(() => { rest = 0; delete document.documentElement.dataset.moving; }, 400);
}

/** The move that a question asked now stems from; 0 where it stems from none. */
export function takeInput() {
  const taken = moved;
  moved = 0;
  return taken;
}

/** What follows from a move has just been put into the page: the frame that shows it is the next one. */
export function notePaint(input) {
  if (!input) return;
  requestAnimationFrame(() => {
    // a message comes after the frame that was due, so this is the time when its drawing was done
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      paints.push([input, performance.now()]);
      if (paints.length > KEPT) paints.shift();
    };
    channel.port2.postMessage(0);
  });
}
