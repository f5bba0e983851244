import assert from "node:assert/strict";
import { test } from "node:test";

import { settingsLine } from "../../../specdemo/ui/static/settings_menu.js";

test("the line names the drafter as the menu does, or as it is called where the menu does not know it", () => {
  const labels = { "prompt-lookup": "prompt lookup" };
  assert.equal(settingsLine(labels, ["prompt-lookup", "greedy", 0, 64]), "prompt lookup · greedy · T 0 · 64 tokens");
  assert.equal(settingsLine(labels, ["other", "rejection", 0.8, 8]), "other · rejection · T 0.8 · 8 tokens");
});
