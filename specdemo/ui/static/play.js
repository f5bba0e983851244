// Play: the visitor drafts, the target edits. Shows a `Game` and has the server judge its turns.

import { element, rolesOf } from "./dom.js";
import { Game, isEmpty, joined, MODEL, wantsSpace } from "./game.js";
import { tokenSpan } from "./lanes.js";
import { GrowingLines } from "./ndjson.js";
import { fill, Pieces } from "./tokens.js";
import { percent } from "./words.js";

const OWN = "own";
const WELCOME = [
  "You are the draft model. Write the next few words; the target keeps what it would have written itself.",
  "You are two draft models. Both write the next few words for the same place, unseen by the other; the target edits both.",
];
const ROUND_UP_PX = 2; // borders of the box, which its own height does not count

let mounted = null;

/** Called once by the Gradio component. */
export function mountPlay({ element: host, props, watch, settings }) {
  mounted = new Play(host.querySelector(".sd-play"), settings);
  watch("value", () => mounted.feed(props.value ?? ""));
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
    this.lines = new GrowingLines();
    this.roles.draft.maxLength = mostDraftChars;
    this.roles["own-text"].maxLength = mostTextChars;
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
    roles.draft.addEventListener("input", () => this.preview());
    roles.draft.addEventListener("keydown", (event) => this.key(event));
    roles.space.addEventListener("click", () => this.setSpace(!this.space));
    roles.stop.addEventListener("click", () => hidden("play-stop").click());
  }

  get busy() {
    return this.root.dataset.state === "judging";
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
    if (this.busy) return;
    const { roles, root } = this;
    const { value } = roles.opening;
    const opening = value === OWN ? roles["own-text"].value : this.openings[value].text;
    if (!opening.trim()) return this.fail("The text is empty; write the beginning of one.");
    this.game = new Game(opening, Number(root.querySelector("[name=sd-players]:checked").value), this.most());
    this.pieces = new Pieces();
    this.tail = undefined;
    roles.turns.replaceChildren();
    roles.past.hidden = true;
    roles.text.replaceChildren(element("span", "sd-prompt"));
    fill(roles.text.firstChild, this.game.opening, false);
    this.pending = element("span", "sd-token");
    roles.text.append(this.pending);
    root.dataset.players = this.game.players;
    this.showScores();
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
    this.preview();
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
    roles.draft.value = this.returned[game.player] ?? "";
    delete this.pending.dataset.verifying;
    this.setSpace(true);
  }

  setSpace(space) {
    this.space = space;
    this.preview();
  }

  /** The draft as it would stand in the text. */
  preview() {
    const { roles, game, pending } = this;
    const draft = roles.draft.value;
    const open = wantsSpace(game.text, draft);
    roles.space.disabled = !open;
    roles.space.setAttribute("aria-pressed", String(open && this.space));
    pending.replaceChildren();
    fill(pending, draft && joined(game.text, draft, this.space), false);
    delete pending.dataset.partial;
    pending.dataset.status = "pending";
    pending.hidden = !draft;
    roles.draft.style.height = "auto";
    roles.draft.style.height = `${roles.draft.scrollHeight + ROUND_UP_PX}px`;
    roles.text.scrollTop = roles.text.scrollHeight;
  }

  key(event) {
    const { draft } = this.roles;
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "Backspace" && !draft.value) this.setSpace(false);
  }

  /** Nothing changes while the target reads; the box keeps the focus. */
  hold(held) {
    this.roles.draft.readOnly = held;
    this.roles.bar.inert = held;
    this.roles.own.inert = held;
  }

  submit() {
    const { roles, game } = this;
    if (this.busy || game.over) return;
    roles.draft.focus();
    if (isEmpty(roles.draft.value)) return this.fail("The draft is empty; type the next few words.");
    this.say("");
    if (game.hand(joined(game.text, roles.draft.value, this.space))) return this.send();
    this.prompt();
    this.say("Player 1's words are in and hidden. Player 2, your draft for the same place.");
  }

  send() {
    const { roles, root, game, pending } = this;
    root.dataset.state = "judging";
    this.hold(true);
    roles.stop.disabled = false;
    if (game.players === 1) pending.dataset.verifying = "true";
    else {
      roles.draft.value = "";
      pending.hidden = true;
    }
    this.say("The target reads…");
    this.lines.renew();
    this.done = false;
    const button = hidden("play-send");
    const watcher = new MutationObserver(() => {
      if (button.disabled) this.started = true;
      else if (this.started) {
        watcher.disconnect();
        this.settle();
      }
    });
    this.started = false;
    watcher.observe(button, { attributes: true });
    button.click();
  }

  /** Take in what is new in the live value; what comes behind the end of a turn counts for nothing. */
  feed(value) {
    for (const event of this.lines.read(value).events) if (this.busy) this.take(event);
  }

  take(event) {
    if (event.type === "progress") this.say(`${event.text}…`);
    else if (event.type === "error") this.failure = event.message;
    else {
      if (event.pieces) this.pieces.add(event.pieces, event.specials);
      this.done = this.game.take(event);
    }
  }

  /** The server is free again: the turn is over, or it was stopped or failed and can be had once more. */
  settle() {
    const { failure, game, roles } = this;
    this.failure = null;
    roles.draft.value = "";
    if (this.done) {
      this.showTurn(game.turns.at(-1));
      this.say(game.turns.at(-1).end.sentence);
      this.ask([]);
    } else {
      this.say("Stopped; this turn does not count.");
      this.ask(game.giveBack());
      if (failure) this.fail(failure);
    }
    if (game.over) roles.again.focus();
    else roles.draft.focus();
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

  showTurn(turn) {
    const { roles, game } = this;
    this.extendText(turn.judged.find(({ player }) => player === turn.end.best).round);
    roles.past.hidden = false;
    const drafts = turn.judged.map((event) => this.draftRow(event));
    roles.turns.prepend(element("li", "", element("h3", "", `Turn ${game.turns.length}`), ...drafts));
    this.showScores();
  }

  /** The tokens a round added, behind those that stand there. */
  extendText({ drafted, emission }) {
    for (const token of [...drafted.filter(({ status }) => status === "accepted"), ...(emission ? [emission] : [])]) {
      const { span, tail } = tokenSpan(token.id, this.tail, this.pieces);
      this.tail = tail;
      span.dataset.status = token.status;
      this.pending.before(span);
    }
  }

  /** One drafter's round: its tokens in reading order, each over its probabilities. */
  draftRow({ player, name, round, cut }) {
    const row = element("div", "sd-play-row", element("h4", "", name));
    const cells = element("p", "sd-play-cells");
    const ahead = round.drafted.filter((token) => token.status === "accepted" || token.rejected).length;
    const own = round.emission ? [round.emission] : [];
    const shown = [...round.drafted.slice(0, ahead), ...own, ...round.drafted.slice(ahead)];
    for (const token of shown) cells.append(this.cell(token, player === MODEL));
    if (cut) {
      const words = element("span", "sd-play-cut");
      fill(words, `cut: “${cut.trim()}”`, false);
      cells.append(words);
    }
    const kept = round.drafted.filter(({ status }) => status === "accepted").length;
    row.append(cells, element("p", "sd-play-count", round.drafted.length ? `${kept} of ${round.drafted.length}` : "nothing"));
    return row;
  }

  cell(token, byModel) {
    const { span } = tokenSpan(token.id, undefined, this.pieces);
    span.dataset.status = token.status;
    if (token.rejected) span.dataset.rejected = "true";
    const figures = [];
    if ("raw_prob" in token) figures.push(`p ${percent(token.raw_prob)}`);
    else if (token.compared) figures.push(`p ${percent(token.raw_p)}`);
    if (byModel && token.compared && token.raw_q !== null) figures.push(`q ${percent(token.raw_q)}`);
    return element("span", "sd-play-cell", span, ...figures.map((figure) => element("small", "", figure)));
  }

  showScores() {
    const rows = this.game.drafters().map(({ player, name, judged }) => {
      const head = element("th", "", name);
      head.scope = "row";
      const figures = judged ? [judged.alpha === null ? "–" : `${Math.round(100 * judged.alpha)}%`, judged.tau.toFixed(2), judged.score.best] : ["–", "–", "–"];
      const row = element("tr", "", head, ...figures.map((figure) => element("td", "", String(figure))));
      row.dataset.player = player;
      return row;
    });
    this.roles.scores.replaceChildren(...rows);
  }
}

// Gradio's own buttons, which start and end jobs on the server.
function hidden(id) {
  return document.getElementById(id);
}

function on(form, event, act) {
  form.addEventListener(event, (happened) => {
    happened.preventDefault();
    act();
  });
}
