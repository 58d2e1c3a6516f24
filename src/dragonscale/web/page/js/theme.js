// Light and dark: the system's wish unless the reader chose, and the planner's own colours by meaning as CSS variables.

import { useLayoutEffect, useState } from "./html.js";

const KEY = "dragonscale-theme";

function wished() {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** The name of a role's variable: `compute:-1` is `--role-compute--1`. */
export const roleVariable = (role) => `--role-${role.replace(":", "-")}`;

/** The colour of a role, for `fill` and `stroke`. */
export const colourOf = (role) => `var(${roleVariable(role || "overhead")})`;

/** The theme in use, and a function that changes it. */
export function useTheme(colours) {
  const [theme, set] = useState(wished);
  useLayoutEffect(() => {
    const root = document.documentElement;
    root.dataset.theme = theme;
    for (const [role, colour] of Object.entries(colours[theme])) root.style.setProperty(roleVariable(role), colour);
  }, [theme, colours]);
  const toggle = () => set((old) => {
    const next = old === "dark" ? "light" : "dark";
    localStorage.setItem(KEY, next);
    return next;
  });
  return [theme, toggle];
}
