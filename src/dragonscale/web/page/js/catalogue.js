// What can be chosen (models, chips, stacks, engines, fields of each command, colours), asked once.

import { askOnce } from "./live.js";
import { createContext } from "./html.js";

/** The catalogue, for every component. */
export const Catalogue = createContext(null);

/** Ask for it; rejects with the planner's sentence. */
export async function loadCatalogue() {
  const { panels, error } = await askOnce({ view: "catalogue" });
  if (error) throw new Error(error.text);
  return panels.catalogue;
}
