// Play: the visitor drafts, the target edits. Leads through a `Game` and has the server judge its turns.

import { element, rolesOf } from "./dom.js";
import { Game } from "./game.js";
import { Board } from "./play_board.js";
import { DraftBox } from "./play_draft.js";
import { TurnJob } from "./play_turn.js";

const OWN = "own";
const WELCOME = [
  "You are the draft model. Write the next few words; the target keeps what it would have written itself.",
  "You are two draft models. Both write the next few words for the same place, unseen by the other; the target edits both.",
];

let mounted = null;

/** Called once by the Gradio component. */
export function mountPlay({ element: host, props, watch, settings }) {
  mounted = new Play(host.querySelector(".sd-play"), settings);
  watch("value", () => mounted.job.feed(props.value ?? ""));
}

/** What the turn under way asks of the server; called by Gradio when it sends it. */
export function askedTurn() {
  return mounted.game.request();
}

class Play {
  constructor(root, { openings, mostTextChars, mostDraftChars }) {
    this.root = root;
    this.roles = rolesOf(root);
    this.openings = openings;
    this.roles["own-text"].maxLength = mostTextChars;
    this.box = new DraftBox(this.roles, mostDraftChars, () => this.submit());
    this.board = new Board(this.roles, this.box.pending);
    this.job = new TurnJob({ onEvent: (event) => this.take(event), onEnd: () => this.settle() });
    openings.forEach(({ label }, index) => this.offer(label, index));
    this.offer("Your own…", OWN);
    this.listen();
    this.begin();
  }

  offer(label, value) {
    const option = element("option", "", label);
    option.value = value;
    this.roles.opening.append(option);
  }

  listen() {
    const { roles, root } = this;
    roles.opening.addEventListener("change", () => this.choose());
    roles.again.addEventListener("click", () => this.begin());
    roles.most.addEventListener("change", () => this.bound());
    for (const radio of root.querySelectorAll("[name=sd-players]")) radio.addEventListener("change", () => this.begin());
    on(roles.own, "submit", () => this.begin());
    on(roles.form, "submit", () => this.submit());
    roles.stop.addEventListener("click", () => this.job.stop());
  }

  /** Another text: at once, or once it has been written. */
  choose() {
    const own = this.roles.opening.value === OWN;
    this.roles.own.hidden = !own;
    if (own) this.roles["own-text"].focus();
    else this.begin();
  }

  /** A new game with what is chosen. */
  begin() {
    if (this.job.busy) return;
    const { roles, root } = this;
    const { value } = roles.opening;
    const opening = value === OWN ? roles["own-text"].value : this.openings[value].text;
    if (!opening.trim()) return this.fail("The text is empty; write the beginning of one.");
    this.game = new Game(opening, Number(root.querySelector("[name=sd-players]:checked").value), this.most());
    root.dataset.players = this.game.players;
    this.board.begin(this.game);
    this.ask([]);
    this.say(WELCOME[this.game.players - 1]);
  }

  most() {
    const { most } = this.roles;
    const wanted = Math.round(Number(most.value)) || Number(most.defaultValue);
    most.value = Math.min(Math.max(wanted, Number(most.min)), Number(most.max));
    return Number(most.value);
  }

  /** Another number of turns, which may end the game or have it go on. */
  bound() {
    const { game } = this;
    const wasOver = game.over;
    game.most = this.most();
    if (game.over === wasOver) this.showNumber();
    else this.ask(game.giveBack());
  }

  showNumber() {
    const { game } = this;
    const count = game.turns.length;
    const end = `The end, after ${count} ${count === 1 ? "turn" : "turns"}`;
    this.roles.turn.textContent = game.over ? end : `Turn ${game.number} of ${game.most}`;
  }

  /** Have the next player draft, beginning with `drafts` where a turn came back, or show how the game ended. */
  ask(drafts) {
    const { roles, root, game } = this;
    this.returned = drafts;
    root.dataset.state = game.over ? "over" : "drafting";
    roles.form.hidden = game.over;
    roles.stop.disabled = true;
    this.hold(false);
    this.box.follow(game.text);
    this.showNumber();
    if (!game.over) return this.prompt();
    const { sentence, finish, closing } = game.turns.at(-1).end;
    this.say(`${sentence} ${finish ? "The text has ended. " : ""}`, closing);
  }

  /** An empty box for the player whose draft is next. */
  prompt() {
    const { roles, game } = this;
    const last = game.player === game.players - 1;
    const name = game.players === 1 ? "Your" : `Player ${game.player + 1}'s`;
    roles.who.textContent = `${name} next words${game.players === 1 ? "" : " (the other looks away)"}`;
    roles.send.textContent = last ? (game.players === 1 ? "Draft" : "Draft both") : "Pass on";
    this.box.open(this.returned[game.player] ?? "");
  }

  /** Nothing changes while the target reads. */
  hold(held) {
    this.box.hold(held);
    this.roles.bar.inert = held;
    this.roles.own.inert = held;
  }

  submit() {
    const { box, game } = this;
    if (this.job.busy || game.over) return;
    box.focus();
    if (box.isEmpty) return this.fail("The draft is empty; type the next few words.");
    this.say("");
    if (game.hand(box.words)) return this.send();
    this.prompt();
    this.say("Player 1's words are in and hidden. Player 2, your draft for the same place.");
  }

  send() {
    const { box, roles, root, game } = this;
    root.dataset.state = "judging";
    this.hold(true);
    roles.stop.disabled = false;
    if (game.players === 1) box.showVerifying();
    else box.hide();
    this.say("The target reads…");
    this.done = false;
    this.job.send();
  }

  take(event) {
    if (event.type === "progress") this.say(`${event.text}…`);
    else if (event.type === "error") this.failure = event.message;
    else {
      if (event.pieces) this.board.pieces.add(event.pieces, event.specials);
      this.done = this.game.take(event);
    }
  }

  /** The server is free again: the turn is over, or it was stopped or failed and can be had once more. */
  settle() {
    const { box, board, failure, game, roles } = this;
    this.failure = null;
    box.clear();
    if (this.done) {
      board.showTurn(game);
      this.say(game.turns.at(-1).end.sentence);
      this.ask([]);
    } else {
      this.say("Stopped; this turn does not count.");
      this.ask(game.giveBack());
      if (failure) this.fail(failure);
    }
    if (game.over) roles.again.focus();
    else box.focus();
  }

  /** A sentence in place of the last one, error included; the game's last words in bold. */
  say(words, closing = "") {
    const { notice, error } = this.roles;
    error.hidden = true;
    if (notice.textContent !== words + closing) notice.replaceChildren(words, ...(closing ? [element("b", "", closing)] : []));
  }

  fail(message) {
    this.say("");
    this.roles.error.textContent = message;
    this.roles.error.hidden = false;
  }
}

function on(form, event, act) {
  form.addEventListener(event, (happened) => {
    happened.preventDefault();
    act();
  });
}
