// The controls of the clock: buttons, scrub bar, pace.

import { recall, remember } from "./memory.js";

const PACE_KEY = "specdemo-pace";
const PACE_WORDS = {
  tokens: "shown at 10 tokens a second",
  0.05: "shown at 1/20 of real speed",
  0.25: "shown at 1/4 of real speed",
  1: "shown at real speed",
};
const NAMED_PACES = ["fit", "tokens"]; // the others are shares of real speed
const CONTROLS = ["to-start", "round-back", "phase-back", "play", "phase-on", "round-on", "to-end", "scrub"];

export class Transport {
  /** `stage` has the run at hand: trace, player, roles. */
  constructor(stage) {
    this.stage = stage;
    this.roles = stage.roles;
    this.paces = [...stage.root.querySelectorAll("input[name=sd-pace]")];
    this.wire();
    const isRemembered = (radio) => radio.value === recall(PACE_KEY);
    this.takePace(this.paces.find(isRemembered) ?? this.paces.find((radio) => radio.checked));
  }

  wire() {
    const { stage, roles } = this;
    const on = (role, act) => roles[role].addEventListener("click", () => act(stage.player, stage.trace));
    on("play", (player) => player.toggle());
    on("to-start", (player) => player.seek(0));
    on("to-end", (player) => player.seekEnd());
    on("round-back", (player, trace) => player.step(trace.roundStops(), -1));
    on("round-on", (player, trace) => player.step(trace.roundStops(), 1));
    on("phase-back", (player, trace) => player.step(trace.phaseStops(), -1));
    on("phase-on", (player, trace) => player.step(trace.phaseStops(), 1));
    roles.scrub.addEventListener("input", () => {
      stage.player.pause();
      stage.player.seek(Number(roles.scrub.value));
    });
    for (const radio of this.paces) {
      radio.addEventListener("change", () => {
        this.setPace(radio.value);
        remember(PACE_KEY, radio.value);
      });
    }
  }

  /** `value` is that of a pace button; not remembered. */
  setPace(value) {
    this.takePace(this.paces.find((radio) => radio.value === value));
    this.stage.player.pace = this.pace;
    this.showState();
  }

  takePace(radio) {
    radio.checked = true;
    this.pace = NAMED_PACES.includes(radio.value) ? radio.value : Number(radio.value);
  }

  /** Where the clock stands. */
  showTime() {
    const { scrub, clock } = this.roles;
    const { player, trace } = this.stage;
    const frontier = trace.frontier();
    if (scrub.max !== String(frontier)) scrub.max = frontier;
    scrub.value = player.time;
    clock.textContent = `${player.time.toFixed(2)} s`;
    scrub.setAttribute("aria-valuetext", `${clock.textContent} of ${frontier.toFixed(2)}`);
  }

  /** Whether it runs, and at which pace. */
  showState() {
    const { roles } = this;
    const { player, trace } = this.stage;
    roles.play.setAttribute("aria-label", player.playing ? "Pause" : "Play");
    roles.play.title = player.playing ? "pause" : "play";
    roles["pace-text"].textContent = player.stalled ? "waiting for the models" : paceWords(player);
    for (const name of CONTROLS) roles[name].disabled = !trace.start;
  }
}

function paceWords({ pace, slowness }) {
  if (pace !== "fit") return PACE_WORDS[pace];
  return slowness === 1 ? PACE_WORDS[1] : `shown at 1/${slowness} of real speed`;
}
