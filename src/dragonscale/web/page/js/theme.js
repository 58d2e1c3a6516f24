// Light and dark: the system's wish unless the reader chose, and the planner's own colours by meaning as CSS variables.

import { useLayoutEffect, useState } from "./html.js";

const KEY = "dragonscale-theme";

// a browser may forbid a page to keep anything; then the choice lasts until it is closed
function kept() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function keep(theme) {
  try { localStorage.setItem(KEY, theme); } catch { /* not kept */ }
}

function wished() {
  const chosen = kept();
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** The name of a role's variable: `compute:-1` is `--role-compute--1`. */
export const roleVariable = (role) => `--role-${role.replace(":", "-")}`;

/** The colour of a role, for `fill` and `stroke`. */
export const colourOf = (role) => `var(${roleVariable(role || "overhead")})`;

/** The black or white that can be read on a role's colour. */
export const colourOn = (role) => `var(${roleVariable(`on-${role || "overhead"}`)})`;

function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function readableOn(colour) {
  const light = luminance(colour);
  return 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? "#fff" : "#000";
}

/** The theme in use, and a function that changes it. `colours` are the planner's, null until they are known; `given` is the theme around it. */
export function useTheme(colours, given = "") {
  const [theme, set] = useState(() => given || wished());
  useLayoutEffect(() => {
    const root = document.documentElement;
    root.dataset.theme = theme;
    if (!colours) return;
    for (const [role, colour] of Object.entries(colours[theme])) {
      root.style.setProperty(roleVariable(role), colour);
      root.style.setProperty(roleVariable(`on-${role}`), readableOn(colour));
    }
  }, [theme, colours]);
  const toggle = () => set((old) => {
    const next = old === "dark" ? "light" : "dark";
    keep(next);
    return next;
  });
  return [theme, toggle];
}
