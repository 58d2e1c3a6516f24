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

/** The theme in use, and a function that changes it. `colours` are the planner's, null until they are known. */
export function useTheme(colours) {
  const [theme, set] = useState(wished);
  useLayoutEffect(() => {
    const root = document.documentElement;
    root.dataset.theme = theme;
    if (!colours) return;
    for (const [role, colour] of Object.entries(colours[theme])) root.style.setProperty(roleVariable(role), colour);
  }, [theme, colours]);
  const toggle = () => set((old) => {
    const next = old === "dark" ? "light" : "dark";
    keep(next);
    return next;
  });
  return [theme, toggle];
}
