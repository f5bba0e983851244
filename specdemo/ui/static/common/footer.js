// The last line of the page: how to cite the program, and the address of its source code if it has a public one.

import { rolesOf } from "./dom.js";

const OWN_ENTRY_END = "\n}"; // the end of the first entry, which is the program's own

/** Called once by the Gradio component. */
export function mountFooter({ element, settings: { source } }) {
  const { bibtex, "copy-bibtex": copy, copied, "source-code": link } = rolesOf(element);
  if (source) {
    link.href = source;
    link.hidden = false;
    bibtex.textContent = bibtex.textContent.replace(OWN_ENTRY_END, `,\n  url = {${source}}${OWN_ENTRY_END}`);
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(bibtex.textContent);
      copied.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(bibtex);
      copied.textContent = "This browser does not allow copying. Press Ctrl+C (on a Mac ⌘C) to copy the selected text.";
    }
  });
}
