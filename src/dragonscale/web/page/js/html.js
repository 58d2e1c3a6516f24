// Preact with tagged templates, from one vendored module; everything that draws imports it from here.
import { useState } from "./vendor/htm-preact.js";

export {
  html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, createContext, useErrorBoundary,
} from "./vendor/htm-preact.js";

let last = 0;

/** A name for an element of a component, its own and the same at every drawing. */
export const useId = () => useState(() => `id${(last += 1)}`)[0];
