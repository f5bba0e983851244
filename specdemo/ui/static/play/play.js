// The tab "Play", in which visitors write the drafts and the server's target model verifies them turn by turn.

import { element, onSubmit, rolesOf } from "../common/dom.js";
import { GrowingLines } from "../common/ndjson.js";
import { counted } from "../common/words.js";
import { Board, DraftBox, MODEL } from "./play_board.js";

const OWN = "own";
const WELCOME = [
  "You are the draft model. Write the next few words; the target accepts words until one differs from the target's own.",
  "You are two draft models. Each player writes the next few words in secret; the target verifies both drafts.",
];

let mounted = null;

/** Called once by the Gradio component. */
export function mountPlay({ element: host, props, watch, settings }) {
  mounted = new Play(host.querySelector(".sd-play"), settings);
  watch("value", () => mounted.feed(props.value ?? ""));
}

/** The inputs of the endpoint for the current turn; Gradio calls this when it sends the request. */
export function askedTurn() {
  return mounted.game.request();
}

class Play {
  constructor(root, { openings, mostTextChars, mostDraftChars }) {
    this.root = root;
    this.roles = rolesOf(root);
    this.openings = openings;
    this.lines = new GrowingLines();
    this.isJudging = false;
    this.box = new DraftBox(this.roles, mostDraftChars, () => this.submit());
    this.board = new Board(this.roles, this.box.pending);
    this.roles["own-text"].maxLength = mostTextChars;
    openings.forEach(({ label }, index) => this.addOpening(label, index));
    this.addOpening("Your own…", OWN);
    this.listen();
    this.begin();
  }

  addOpening(label, value) {
    const option = element("option", "", label);
    option.value = value;
    this.roles.opening.append(option);
  }

  listen() {
    const { roles, root } = this;
    roles.opening.addEventListener("change", () => this.chooseOpening());
    roles.again.addEventListener("click", () => this.begin());
    roles.most.addEventListener("change", () => this.changeTurns());
    roles.stop.addEventListener("click", () => document.getElementById("play-stop").click());
    for (const radio of root.querySelectorAll("[name=sd-players]")) radio.addEventListener("change", () => this.begin());
    onSubmit(roles.own, () => this.begin());
    onSubmit(roles.form, () => this.submit());
  }

  chooseOpening() {
    const isOwn = this.roles.opening.value === OWN;
    this.roles.own.hidden = !isOwn;
    if (isOwn) this.roles["own-text"].focus();
    else this.begin();
  }

  /** Begin a new game with the chosen settings. */
  begin() {
    if (this.isJudging) return;
    const { roles, root } = this;
    const { value } = roles.opening;
    const opening = value === OWN ? roles["own-text"].value : this.openings[value].text;
    if (!opening.trim()) return this.fail("“Start of your own text” is empty; type the first words.");
    this.game = new Game(opening, Number(root.querySelector("[name=sd-players]:checked").value), this.turns());
    root.dataset.players = this.game.players;
    this.board.begin(this.game);
    this.ask([]);
    this.say(WELCOME[this.game.players - 1]);
  }

  /** The chosen number of turns, limited to the allowed range. */
  turns() {
    const { most } = this.roles;
    const wanted = Math.round(Number(most.value)) || Number(most.defaultValue);
    most.value = Math.min(Math.max(wanted, Number(most.min)), Number(most.max));
    return Number(most.value);
  }

  /** Apply a changed number of turns, which may end or resume the game. */
  changeTurns() {
    const { game } = this;
    const wasOver = game.over;
    game.most = this.turns();
    if (game.over === wasOver) this.showNumber();
    else this.ask(game.giveBack());
  }

  showNumber() {
    const { game } = this;
    const count = game.turns.length;
    const end = `Game over after ${counted(count, "turn")}`;
    this.roles.turn.textContent = game.over ? end : `Turn ${game.number} of ${game.most}`;
  }

  /**
   * Ask for the next draft, or show the end of the game. `drafts` of a turn that was not verified fill the box again.
   */
  ask(drafts) {
    const { roles, root, game } = this;
    this.returned = drafts;
    root.dataset.state = game.over ? "over" : "drafting";
    roles.form.hidden = game.over;
    this.freeze(false);
    this.box.follow(game.text);
    this.showNumber();
    if (!game.over) return this.prompt();
    const { sentence, finish, closing } = game.turns.at(-1).end;
    this.say(`${sentence} ${finish ? "The text has ended. " : ""}`, closing);
  }

  /** Empty the box, and ask the player whose draft is next. */
  prompt() {
    const { roles, game } = this;
    const isAlone = game.players === 1;
    const isLast = game.player === game.players - 1;
    roles.who.textContent = isAlone ? "Your next words" : `Player ${game.player + 1}'s next words (player ${2 - game.player} looks away)`;
    roles.send.textContent = isLast ? (isAlone ? "Verify" : "Verify both") : "Next player";
    this.box.open(this.returned[game.player] ?? "");
  }

  /** Disable all controls except Stop while the target verifies; the box keeps the focus. */
  freeze(isFrozen) {
    const { roles } = this;
    roles.draft.readOnly = isFrozen;
    roles.bar.inert = isFrozen;
    roles.own.inert = isFrozen;
    roles.stop.disabled = !isFrozen;
  }

  submit() {
    const { box, game, roles } = this;
    if (this.isJudging || game.over) return;
    roles.draft.focus();
    if (box.isEmpty) return this.fail("The draft is empty; type the next few words.");
    this.say("");
    if (game.hand(box.words)) return this.send();
    this.prompt();
    this.say("Player 1's draft is hidden. Player 2, continue the same text with your own draft.");
  }

  /** Send the turn with a press of Gradio's hidden button, which is disabled while the server works. */
  send() {
    this.root.dataset.state = "judging";
    this.freeze(true);
    this.box.showVerifying(this.game.players);
    this.say(`The target is verifying ${this.game.players === 1 ? "your draft" : "both drafts"}…`);
    this.isJudging = true;
    this.isDone = false;
    this.failure = null;
    this.lines.renew();
    const sender = document.getElementById("play-send");
    let hasStarted = false;
    const watcher = new MutationObserver(() => {
      if (sender.disabled) hasStarted = true;
      else if (hasStarted) {
        watcher.disconnect();
        this.isJudging = false;
        this.settle();
      }
    });
    watcher.observe(sender, { attributes: true });
    sender.click();
  }

  /** Take the new events of the growing value; events after the end of a turn are ignored. */
  feed(value) {
    for (const event of this.lines.read(value).events) if (this.isJudging) this.take(event);
  }

  take(event) {
    if (event.type === "progress") this.say(`${event.text}…`);
    else if (event.type === "error") this.failure = event.message;
    else {
      if (event.pieces) this.board.pieces.add(event.pieces, event.specials);
      this.isDone = this.game.take(event);
    }
  }

  /** End the turn when the server is free again. If the turn was stopped or failed, it can be sent again. */
  settle() {
    const { board, failure, game, roles } = this;
    roles.draft.value = "";
    if (this.isDone) {
      board.showTurn(game);
      this.say(game.turns.at(-1).end.sentence);
      this.ask([]);
    } else {
      this.say("The stopped turn does not count; you can send the draft again.");
      this.ask(game.giveBack());
      if (failure) this.fail(failure);
    }
    (game.over ? roles.again : roles.draft).focus();
  }

  /** Show a notice, with the game's closing words in bold; it replaces the last notice or error. */
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

const PLAYERS = ["one", "two"];

/** The state of a game: its drafts, turns and scores. The server computes all figures. */
class Game {
  /** `players` is 1 or 2. The game ends after `most` turns, or when the target ends the text. */
  constructor(opening, players, most) {
    this.opening = opening.replace(/ +$/, ""); // drafts begin with their own space
    this.players = players;
    this.most = most;
    this.text = this.opening;
    this.turns = []; // the turns so far, each as { judged: [event of each drafter], end: the `turn` event }
    this.drafts = []; // the drafts of the current turn
    this.judged = [];
  }

  /** The player who drafts next, 0 or 1; null while the target verifies and after the end of the game. */
  get player() {
    return this.over || this.drafts.length === this.players ? null : this.drafts.length;
  }

  get over() {
    return this.turns.length >= this.most || Boolean(this.turns.at(-1)?.end.finish);
  }

  /** The number of the current turn, or of the last one. */
  get number() {
    return this.turns.length + (this.over ? 0 : 1);
  }

  /** Take the next player's draft; return true if the turn now has all drafts and can be verified. */
  hand(draft) {
    this.drafts.push(draft);
    return this.drafts.length === this.players;
  }

  /** The arguments of the API endpoint `play`, in order. */
  request() {
    const [first, second = ""] = this.drafts;
    const { judged = [], end } = this.turns.at(-1) ?? {};
    const scores = Object.fromEntries(judged.map(({ player, score }) => [player, score]));
    return [this.opening, first, second, end?.written ?? [], scores];
  }

  /** Take an event of the current turn; return true if it completes the turn. */
  take(event) {
    if (event.type === "judged") this.judged.push(event);
    if (event.type !== "turn") return false;
    this.turns.push({ judged: this.judged, end: event });
    this.text = event.text;
    this.giveBack();
    return true;
  }

  /** Discard the current turn and return its drafts. */
  giveBack() {
    const { drafts } = this;
    this.drafts = [];
    this.judged = [];
    return drafts;
  }

  /** The rows of the score board, `{ player, name, judged }`; `judged` is null before the first turn. */
  drafters() {
    const names = this.players === 1 ? ["You"] : ["Player 1", "Player 2"];
    const rows = [...names.map((name, index) => [PLAYERS[index], name]), [MODEL, "Draft model"]];
    return rows.map(([player, name]) => {
      const judged = this.turns.at(-1)?.judged.find((event) => event.player === player) ?? null;
      return { player, name: judged?.name ?? name, judged };
    });
  }
}
