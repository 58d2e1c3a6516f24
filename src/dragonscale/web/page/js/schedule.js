// Whose turn it is in this tab: what the reader moves or asks, then what hangs on the answer (curves of its plan, derivations), then
// what searches behind the page. The last runs alone, when nothing else does; anything else of the tab interrupts it, and it is asked
// again afterwards. Nothing here knows of a page, a server or a worker.

/** The smaller, the sooner: a slider's place or a fact, the reader's question, what hangs on its answer, what searches behind it. */
export const RANKS = { moved: 0, asked: 1, beside: 2, behind: 3 };
const FACTS = ["catalogue", "chips", "models", "learn", "copied", "judge", "roofline", "shard", "collective"];
const BESIDE = ["batches", "roofline", "timeline", "batch", "sheet", "trace"];
const BEHIND = ["best_batches", "scaling", "against"];

/** The rank of a request. */
export function rankOf({ view, panels = [], brief }) {
  if (panels.some((one) => BEHIND.includes(one))) return RANKS.behind;
  if (brief || FACTS.includes(view)) return RANKS.moved;
  if (view === "why" || (panels.length > 0 && panels.every((one) => BESIDE.includes(one)))) return RANKS.beside;
  return RANKS.asked;
}

/** The place of the most urgent request of a queue ({request} each) that comes before `rank`; of equals the first; -1 where there is none. */
export function urgent(queue, rank = Infinity) {
  return queue.reduce((best, one, at) => (rankOf(one.request) < (best < 0 ? rank : rankOf(queue[best].request)) ? at : best), -1);
}

/** Milliseconds without a question of the reader before searches go on behind the page. */
const REST = 300;

/** `ask` by these rules; `start(request, heard, signal)` sends a question and resolves at its end. */
export function scheduled(start, rest = REST) {
  const waiting = [];
  let under = 0; // questions of the reader under way
  let running = null;
  let timer = 0;

  const later = () => {
    clearTimeout(timer);
    if (!under && !running && waiting.length) timer = setTimeout(goOn, rest);
  };
  const goOn = async () => {
    if (under || running || !waiting.length) return;
    const job = waiting.shift();
    const attempt = { job, controller: new AbortController() };
    running = attempt;
    await start(job.request, (message) => { if (running === attempt) job.heard(message); }, attempt.controller.signal);
    if (running !== attempt) return; // interrupted: it waits again, or nobody wants it any more
    running = null;
    job.resolve();
    later();
  };
  const interrupt = () => {
    clearTimeout(timer);
    if (!running) return;
    const { job, controller } = running;
    running = null;
    waiting.unshift(job);
    controller.abort();
  };
  const unwanted = (job) => {
    if (waiting.includes(job)) waiting.splice(waiting.indexOf(job), 1);
    if (running && running.job === job) {
      const { controller } = running;
      running = null;
      controller.abort();
    }
    job.resolve();
    later();
  };

  return async (request, heard, signal) => {
    if (signal && signal.aborted) return;
    if (rankOf(request) === RANKS.behind) {
      await new Promise((resolve) => {
        const job = { request, heard, resolve };
        waiting.push(job);
        if (signal) signal.addEventListener("abort", () => unwanted(job), { once: true });
        later();
      });
      return;
    }
    interrupt();
    under += 1;
    try {
      await start(request, heard, signal);
    } finally {
      under -= 1;
      later();
    }
  };
}
