import assert from "node:assert/strict";
import { test } from "node:test";

import { fileStem, frame, frameOf, linkTo, linkWords, offlinePage } from "../../../specdemo/ui/static/stage/share.js";
import { learnTables } from "../../../specdemo/ui/static/common/tables.js";
import { Pieces } from "../../../specdemo/ui/static/stage/tokens.js";

learnTables({ linked: ["prompt", "k", "drafter", "pair"] });

const CONFIG = { prompt: "a & b?", mode: "raw", k: "auto", temperature: 0.8, rule: "rejection", seed: 7, draft_alone: true, drafter: "combined", max_new_tokens: 33, top_k: 0, top_p: 1, baseline: true };
const RUN = { config: CONFIG, pair: { target: "A large one", draft: "A small one", name: "gpt2-large" } };

test("a link carries the settings of a run and nothing of the page it was made on", () => {
  const link = new URL(linkTo("https://host/app/?trace=old&k=3&__theme=dark#x", RUN, null));
  assert.equal(link.pathname, "/app/");
  assert.equal(link.hash, "");
  assert.equal(link.searchParams.get("trace"), null);
  assert.equal(link.searchParams.get("__theme"), "dark");
  assert.equal(link.searchParams.get("prompt"), "a & b?");
  assert.equal(link.searchParams.get("drafter"), "combined");
  assert.equal(link.searchParams.get("k"), "auto");
});

test("a link asks for the models of the run, and for none where they had no name", () => {
  const pairOf = (run) => new URL(linkTo("https://host/", run, null)).searchParams.get("pair");
  assert.equal(pairOf(RUN), "gpt2-large");
  assert.equal(pairOf({ config: CONFIG, pair: { target: "a", draft: "b" } }), null);
});

test("a link to a recording only names it", () => {
  assert.equal(linkTo("https://host/?k=3", RUN, "paris"), "https://host/?trace=paris");
  assert.equal(linkWords("paris"), "Link copied.");
});

test("the notice says that a link without a recording does not carry the text", () => {
  assert.equal(linkWords(null), "Link copied. It opens the page with this prompt and these settings, but without this run: press Run there.");
});

test("a frame shows the recording at the page's address, in the page's theme", () => {
  const source = frameOf("https://host/app/?k=3&__theme=dark#x", "paris").match(/^<iframe src="([^"]*)" [^>]*><\/iframe>$/)[1];
  assert.equal(source.replaceAll("&amp;", "&"), "https://host/app/?__theme=dark&embed=1&trace=paris");
  assert.ok(frame('a"><b&c').startsWith('<iframe src="a&quot;><b&amp;c" '));
});

test("events cannot end the script element they are put in", () => {
  const template = '<script type="application/x-ndjson" id="specdemo-events"></script><p>$&</p><a data-live hidden>Live</a>';
  const events = [{ type: "start", prompt: "</script><img src=x> $& $1" }, { type: "end" }];
  const page = offlinePage(template, events, 'https://host/?k=3&prompt=a$&b');
  assert.equal(page.match(/<\/script>/g).length, 1);
  assert.ok(!page.includes("<img"));
  assert.ok(page.includes('<a href="https://host/?k=3&amp;prompt=a$&amp;b">Live</a>'));
  const held = page.slice(page.indexOf(">") + 1, page.indexOf("</script>")).trim().split("\n");
  assert.deepEqual(held.map((line) => JSON.parse(line)), events);
});

test("a file is named after prompt and time, in plain letters", () => {
  const run = { config: { prompt: "../../ETC <passwd> of the whole world" }, started_at: "2026-11-21T05:34:49+00:00" };
  assert.equal(fileStem(run), "specdemo-etc-passwd-of-the-20261121053449");
});

test("bytes of a character that is split over tokens come out whole", () => {
  const pieces = new Pieces();
  pieces.add({ 1: Buffer.from([0xc3]).toString("base64"), 2: Buffer.from([0xa9, 0x21]).toString("base64") }, []);
  const first = pieces.decode(1);
  assert.equal(first.text, "");
  assert.equal(pieces.decode(2, first.tail).text, "é!");
  assert.equal(pieces.decode(2).text, "\ufffd!");
});
