// The field for chips: search among them or type a slice. Picking another chip keeps how many there were.

import { Catalogue } from "./catalogue.js";
import { Combobox } from "./combobox.js";
import { html, useContext, useMemo, useState } from "./html.js";
import { keptCount } from "./slices.js";

/** Chips or a slice of them, for a command (train or serve: which slices there are); `onChange` hears what to ask for. `fewest` says that a chip without a
 * number of them means the fewest that will do, so that there is a way to ask for that. */
export function ChipField({ label, command, value, placeholder, fewest = true, onChange }) {
  const catalogue = useContext(Catalogue);
  const [kept, keep] = useState(null);
  const choices = useMemo(() => catalogue.slices.map((name) => {
    const chip = catalogue.chips.find((one) => one.name === name.split(":")[0]);
    return { value: name, about: chip ? chip.title : "" };
  }), [catalogue]);
  const take = (text) => {
    const found = keptCount(catalogue.chips, command, value, text);
    keep(found && { ...found, chip: text });
    onChange(found ? found.on : text);
  };
  const about = kept && kept.on === value && html`<span role="status">${kept.note}</span> ${fewest && html`<button type="button" class="link"
    onClick=${() => onChange(kept.chip)}>Take the fewest that fit</button>`}`;
  return html`<${Combobox} label=${label} name="on" value=${value} choices=${choices} placeholder=${placeholder} onChange=${take} about=${about || ""} />`;
}
