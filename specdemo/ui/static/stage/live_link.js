// The link to the server's live copy, which runs the visitor's settings in the visitor's browser.

import { tables } from "../common/tables.js";

const BUILT_IN = "built-in"; // the only pair of the copy
const READ = ["prompt", "mode", "k", "max_new_tokens"]; // the settings that the copy has
let isThere = false; // whether the copy is complete; until then its address answers 404

/**
 * Show `link` if the server has a live copy, else hide it. `base` is the address of the static files; `settings` are
 * parameters as in links to the page, or null to hide the link.
 */
export async function showLiveLink(link, base, settings) {
  link.hidden = true;
  link.removeAttribute("href"); // an earlier call that still waits shows nothing
  if (!tables.has_live_copy || !settings || (settings.get("pair") ?? BUILT_IN) !== BUILT_IN) return;
  const address = new URL("../live/", base);
  for (const name of READ) if (settings.has(name)) address.searchParams.set(name, settings.get(name));
  link.href = address;
  isThere ||= await fetch(new URL("../live/", base), { method: "HEAD" }).then(({ ok }) => ok, () => false);
  link.hidden = !isThere || link.href !== address.href;
}
