// Texts to the clipboard and into files.

/** Put a text on the clipboard; resolves to whether that worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const box = document.createElement("textarea");
  box.value = text;
  (document.querySelector("dialog[open]") || document.body).append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  return done;
}

/** Give the reader a text as a file. */
export function downloadText(name, text, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
