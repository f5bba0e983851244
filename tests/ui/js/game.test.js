import assert from "node:assert/strict";
import { test } from "node:test";
import { Game, isEmpty, joined, wantsSpace } from "../../../specdemo/ui/static/game.js";

const judged = (player, name = player) => ({ type: "judged", player, name, score: { rounds: 1 }, alpha: 0.5, tau: 2, round: {} });
const ended = (text, written, more = {}) => ({ type: "turn", text, written, finish: null, best: "one", ...more });

/** One turn of `game` for each list of drafts, which end with the events of `ends`. */
function play(game, drafts, ...events) {
  for (const draft of drafts) game.hand(draft);
  return events.map((event) => game.take(event)).at(-1);
}

test("a space is added where a word begins", () => {
  assert.equal(joined("The capital of France is", "Paris", true), " Paris");
  assert.equal(joined("The light", "house", false), "house");
});

test("no second space is added, nor one before a mark that attaches to the last word", () => {
  for (const draft of [" Paris", "\nParis", ", Paris", ".", "’s", ")", "%", "?"]) assert.ok(!wantsSpace("is", draft), draft);
  for (const text of ["one ", "one\n", "(", "“", "and/"]) assert.ok(!wantsSpace(text, "two"), text);
  for (const draft of ["Paris", "(or", "“so", "12", "été", "日本", ""]) assert.ok(wantsSpace("is", draft), draft);
});

test("a draft of nothing but spaces is empty, one of a line break is not", () => {
  assert.ok(isEmpty("") && isEmpty("   "));
  assert.ok(!isEmpty("\n") && !isEmpty(" x"));
});

test("a game asks each player in turn, then waits for the target", () => {
  const game = new Game("It is ", 2, 1);
  assert.equal(game.text, "It is", "words begin with their spaces");
  assert.equal(game.player, 0);
  assert.equal(game.hand(" a"), false);
  assert.equal(game.player, 1);
  assert.equal(game.hand(" b"), true);
  assert.equal(game.player, null);
  assert.deepEqual(game.request(), ["It is", " a", " b", [], {}]);
});

test("the next request has the results of the last turn", () => {
  const game = new Game("It is", 1, 3);
  assert.equal(game.number, 1);
  assert.equal(play(game, [" a"], judged("one"), judged("model"), ended("It is so", [7])), true);
  game.hand(" b");
  assert.deepEqual(game.request(), ["It is", " b", "", [7], { one: { rounds: 1 }, model: { rounds: 1 } }]);
  assert.equal(game.text, "It is so");
  assert.equal(game.number, 2);
});

test("a game ends after its turns, or with the text", () => {
  const short = new Game("x", 1, 1);
  play(short, ["y"], ended("xy", [1]));
  assert.ok(short.over && short.player === null && short.number === 1);
  short.most = 2;
  assert.ok(!short.over && short.number === 2);
  const cut = new Game("x", 1, 9);
  play(cut, ["y"], ended("xy", [1], { finish: "eos" }));
  assert.ok(cut.over && cut.number === 1);
});

test("a stopped turn returns its drafts and leaves no trace", () => {
  const game = new Game("x", 2, 3);
  play(game, ["y", "z"], judged("one"));
  assert.deepEqual(game.giveBack(), ["y", "z"]);
  assert.equal(game.player, 0);
  play(game, ["y", "z"], judged("one"), judged("two"), judged("model"), ended("xy", [1]));
  assert.equal(game.turns[0].judged.length, 3);
});

test("the score board names every drafter from the start", () => {
  const names = (game) => game.drafters().map(({ name }) => name);
  assert.deepEqual(names(new Game("x", 1, 1)), ["You", "Draft model"]);
  const game = new Game("x", 2, 2);
  assert.deepEqual(names(game), ["Player 1", "Player 2", "Draft model"]);
  assert.equal(game.drafters()[0].judged, null);
  play(game, ["y", "z"], judged("one"), judged("two"), judged("model", "Copying"), ended("xy", [1]));
  assert.deepEqual(names(game), ["one", "two", "Copying"]);
  assert.equal(game.drafters()[2].judged.alpha, 0.5);
});
