import assert from "node:assert/strict";
import { test } from "node:test";

import { commandOf } from "../../../specdemo/ui/static/player.js";

const PLAIN = { shiftKey: false, ctrlKey: false, altKey: false, metaKey: false };

/** A place on the page that only knows whether it is, or lies in, an element of this tag name or selector. */
function within(...kinds) {
  const lists = (places) => places.split(/,\s*(?![^(]*\))/);
  return { closest: (places) => (lists(places).some((place) => kinds.includes(place)) ? {} : null) };
}

const press = (key, target = within(), more = {}) => commandOf({ ...PLAIN, key, target, ...more });

test("keys play, step by phase and by round, and go to the ends", () => {
  assert.equal(press(" "), "play");
  assert.equal(press("ArrowLeft"), "phase-back");
  assert.equal(press("ArrowRight"), "phase-on");
  assert.equal(press("ArrowLeft", within(), { shiftKey: true }), "round-back");
  assert.equal(press("ArrowRight", within(), { shiftKey: true }), "round-on");
  assert.equal(press("Home"), "to-start");
  assert.equal(press("End"), "to-end");
  assert.equal(press("?", within(), { shiftKey: true }), "help");
  assert.equal(press("x"), undefined);
  assert.equal(press("Home", within(), { shiftKey: true }), undefined);
});

test("a modifier is somebody else's", () => {
  for (const modifier of ["ctrlKey", "altKey", "metaKey"]) {
    for (const key of [" ", "ArrowLeft", "?"]) assert.equal(press(key, within(), { [modifier]: true }), undefined);
  }
});

test("nothing happens while one types", () => {
  for (const field of ["textarea", "select", "dialog"]) {
    for (const key of [" ", "ArrowLeft", "Home", "?"]) assert.equal(press(key, within(field)), undefined, field);
  }
});

test("a key that has work where the focus is keeps it, others do theirs", () => {
  assert.equal(press(" ", within("button")), undefined);
  assert.equal(press("ArrowRight", within("button")), "phase-on");
  assert.equal(press("?", within("button")), "help");
  assert.equal(press("ArrowRight", within("[role=slider]")), undefined);
  assert.equal(press(" ", within("[role=slider]")), "play");
  assert.equal(press("ArrowRight", within(".sd-text")), undefined);
});
