// What is shown before the planner answers: the answer to the question that a tab opens with, worked out when the page was made.

import { START } from "./state.js";

let file = null;

/** The panels of a request that a tab opens with; null for any other. */
export async function firstPanels({ view, fields, brief }) {
  if (brief || !fields || !["train", "serve"].includes(view) || JSON.stringify(fields) !== JSON.stringify(START[view])) return null;
  try {
    file ||= fetch("first.json").then((response) => response.json());
    return (await file)[view].panels;
  } catch {
    return null;
  }
}
