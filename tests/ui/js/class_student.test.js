import assert from "node:assert/strict";
import { test } from "node:test";

import { codeIn } from "../../../specdemo/ui/static/class_student.js";

test("the path of an address names a class, or none", () => {
  assert.equal(codeIn("/specdemo-class/bcdfg"), "BCDFG");
  assert.equal(codeIn("/behind/a/proxy/specdemo-class/BCDFG"), "BCDFG");
  assert.equal(codeIn("/specdemo-class/a%201"), "A 1"); // the server says that there is none
  for (const other of ["/", "/specdemo-class", "/specdemo-class/", "/specdemo-class/a/b"]) {
    assert.equal(codeIn(other), null, other);
  }
});
