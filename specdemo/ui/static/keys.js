// Keys of the whole page: the run plays, pauses and steps wherever the focus is, but where a key has work of its own.

import { element } from "./dom.js";

const LIST = [
  ["Space", "play or pause"],
  ["← →", "one phase back or on: draft, verify, verdict"],
  ["Shift + ← →", "one round back or on"],
  ["Home, End", "to the start, to the end"],
  ["Tab", "to the next lane or control; in a lane ← → walk its tokens, on the strip its rounds"],
  ["Enter", "in a lane, pin a token's story; on the strip, open the round"],
  ["Esc", "close what is open"],
  ["?", "this list"],
];
const COMMANDS = { " ": "play", ArrowLeft: "phase-back", ArrowRight: "phase-on", Home: "to-start", End: "to-end", "?": "help" };
const SHIFTED = { ArrowLeft: "round-back", ArrowRight: "round-on", "?": "help" };

const PLAIN_INPUTS = ":not([type=checkbox], [type=radio], [type=range], [type=button], [type=submit])";
const WRITTEN_IN = `textarea, select, input${PLAIN_INPUTS}, [contenteditable]:not([contenteditable=false]), dialog`;
const PRESSED = "button, summary, a[href], input[type=checkbox], input[type=radio]:not(:checked), [role=button], [role=tab], [role=option]";
const WALKED = "input[type=range]:not([data-role=scrub]), input[type=radio], [role=slider], [role=tab], [role=listbox], .sd-text, .sd-cards";

/** What a key press asks of the run; undefined where it asks nothing, or means something else where it fell. */
export function commandOf({ key, shiftKey, ctrlKey, altKey, metaKey, target }) {
  if (ctrlKey || altKey || metaKey) return undefined;
  const command = (shiftKey ? SHIFTED : COMMANDS)[key];
  const taken = { play: PRESSED, help: null }[command];
  const native = taken === undefined ? WALKED : taken;
  const isTaken = [WRITTEN_IN, native].some((places) => places && target.closest?.(places));
  return isTaken ? undefined : command;
}

export class PageKeys {
  /** `stage` has the run at hand: root, roles, trace, selection. */
  constructor(stage) {
    this.stage = stage;
    document.addEventListener("keydown", (event) => this.key(event));
    stage.roles.help.addEventListener("click", () => this.showList());
  }

  key(event) {
    const { root, trace } = this.stage;
    const command = event.defaultPrevented ? undefined : commandOf(event);
    const isSeen = root.getClientRects().length > 0; // some tabs are about other things
    if (!command || !isSeen || (command !== "help" && !trace.start)) return;
    event.preventDefault();
    if (command === "help") this.showList();
    else this.obey(command);
  }

  obey(command) {
    const { roles, selection } = this.stage;
    const direction = { "phase-back": -1, "round-back": -1, "phase-on": 1, "round-on": 1 }[command];
    // Under the microscope lies one round; a step puts the next one there.
    if (direction && selection.microscope.open) selection.openNeighbour(direction);
    else roles[command].click();
  }

  showList() {
    this.list ??= this.makeList();
    this.list.showModal();
  }

  makeList() {
    const rows = LIST.map(([keys, words]) => element("div", "", element("dt", "", element("kbd", "", keys)), element("dd", "", words)));
    const close = element("button", "sd-button", "Close");
    close.type = "button";
    const list = element("dialog", "sd-keys", element("h2", "", "Keys"), element("dl", "", ...rows), close);
    list.setAttribute("aria-label", "Keys");
    close.addEventListener("click", () => list.close());
    this.stage.root.append(list);
    return list;
  }
}
