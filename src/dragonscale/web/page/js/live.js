// Answers that follow the state: a question asked anew whenever it changes, the last answer shown until the next is there.

import { ask } from "./backend.js";
import { firstPanels } from "./first.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { notePaint, takeInput } from "./timings.js";

const IDLE = { panels: {}, error: null, busy: false, progress: null, notes: [], seconds: null };

/** The answer to a request (null: none, and what is under way is given up). While one quick question is under way the newest of those that follow waits; a slow one
 * is given up for it. `panels` keeps what earlier answers drew, so nothing jumps while the next one comes; `early`: they were worked out when the page was made.
 * @template {string} V
 * @param {{ view: V, [more: string]: any } | null | false | undefined} request
 * @returns {{ panels: import("../../types").Panels<V>, error: any, busy: boolean, progress: number | null, notes: string[], seconds: number | null, early?: boolean, asked?: any, retry: () => void }} */
export function useAnswer(request) {
  const [answer, setAnswer] = useState(IDLE);
  const run = useRef({ controller: null, next: null, brief: false, whole: null, seen: false });
  const key = request && JSON.stringify(request);
  const [again, setAgain] = useState(0);
  // a layout effect: the question goes out with the drawing of what caused it, not a frame later
  useLayoutEffect(() => {
    const own = run.current;
    if (!key) {
      if (own.controller && !own.brief) { own.controller.abort(); own.controller = null; setAnswer((old) => ({ ...old, busy: false, progress: null })); }
      return undefined;
    }
    if (own.whole === key && !own.controller) return undefined; // it was answered, and nothing else was asked since
    const input = takeInput();
    const start = (text, move) => {
      const asked = JSON.parse(text);
      const controller = new AbortController();
      Object.assign(own, { controller, brief: asked.brief === true, next: null, whole: null });
      let panels = {};
      // a quick one is there before anyone could see that it is under way
      if (!asked.brief) setAnswer((old) => ({ ...old, busy: true, progress: null, error: null }));
      if (!own.seen) {
        firstPanels(asked).then((early) => {
          if (early && own.controller === controller && !own.seen) setAnswer((old) => ({ ...old, panels: { ...early, ...old.panels }, early: true }));
        });
      }
      ask(asked, (message) => {
        if (own.controller !== controller) return;
        if (message.panel) {
          own.seen = true;
          panels = { ...panels, [message.panel]: message.data };
          if (!asked.brief) setAnswer((old) => ({ ...old, panels: { ...old.panels, ...panels }, early: false, asked }));
        }
        if (message.progress != null) setAnswer((old) => ({ ...old, progress: message.progress }));
        if (message.error) setAnswer((old) => ({ ...old, busy: false, error: message.error, progress: null, asked }));
        if (message.done) {
          own.whole = text;
          setAnswer((old) => ({
            ...old, panels: { ...old.panels, ...panels }, busy: false, progress: null, error: null, early: false, seconds: message.seconds, asked,
          }));
          notePaint(move);
        }
      }, controller.signal).then(() => {
        if (own.controller !== controller) return;
        own.controller = null;
        if (own.next) start(...own.next);
      });
    };
    if (own.controller && own.brief) own.next = [key, input];
    else {
      if (own.controller) own.controller.abort();
      own.controller = null;
      start(key, input);
    }
    return undefined;
  }, [key, again]);
  const lost = Boolean(answer.error) && answer.error.kind === "network";
  useEffect(() => {
    if (!lost) return undefined;
    const back = () => setAgain((old) => old + 1);
    window.addEventListener("online", back);
    return () => window.removeEventListener("online", back);
  }, [lost]);
  useEffect(() => () => { const { controller } = run.current; if (controller) controller.abort(); }, []);
  return { ...answer, retry: () => setAgain((old) => old + 1) };
}

/** Ask once, outside of any component: resolves to {panels, error}.
 * @template {string} V
 * @param {{ view: V, [more: string]: any }} request
 * @param {AbortSignal} [signal]
 * @returns {Promise<{ panels: import("../../types").Panels<V>, error: any }>} */
export async function askOnce(request, signal) {
  const found = { panels: /** @type {any} */ ({}), error: null };
  await ask(request, (message) => {
    if (message.panel) found.panels[message.panel] = message.data;
    if (message.error) found.error = message.error;
  }, signal);
  return found;
}
