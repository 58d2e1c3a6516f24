// Preact with tagged templates, from one vendored module; everything that draws imports it from here.
export {
  html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, createContext,
} from "./vendor/htm-preact.js";
