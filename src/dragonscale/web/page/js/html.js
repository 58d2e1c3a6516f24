// Preact with tagged templates, from one vendored module; everything that draws imports it from here.
import { html as drawn, useRef, useState } from "./vendor/htm-preact.js";

export {
  html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, createContext, useErrorBoundary,
} from "./vendor/htm-preact.js";

let last = 0;

/** A name for an element of a component, its own and the same at every drawing. */
export const useId = () => useState(() => `id${(last += 1)}`)[0];

const plain = (value) => value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;

function alike(one, other, deep = true) {
  if (one === other || (typeof one === "function" && typeof other === "function")) return true;
  if (!deep || !plain(one) || !plain(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => alike(one[key], other[key], false));
}

function same(one, other) {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => alike(one[key], other[key]));
}

/** A component that is drawn again only when what it is given changes: values, and records of values. Functions that it is given
 * may be new ones each time; it calls the newest. It has no children. */
export function memo(Body) {
  return function Memo(props) {
    const kept = useRef({ props: null, latest: props, stable: {}, shown: null }).current;
    kept.latest = props;
    if (kept.props && same(kept.props, props)) return kept.shown;
    const given = { ...props };
    for (const [name, value] of Object.entries(props)) {
      if (typeof value !== "function") continue;
      kept.stable[name] ||= (...all) => kept.latest[name](...all);
      given[name] = kept.stable[name];
    }
    kept.props = props;
    kept.shown = drawn`<${Body} ...${given} />`;
    return kept.shown;
  };
}
