// The first thing that README.md has people try does what it says.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { serve } from "./served.mjs";

test("the example of README.md is computed, and asked again is found, as it says", async () => {
  const text = readFileSync("README.md", "utf8").replace(/\s+/g, " ");
  const body = /curl -i http:\/\/127\.0\.0\.1:8080\/v1\/chat\/completions -d '([^']+)'/.exec(text)[1];
  const promised = [...text.matchAll(/`(device=\d+; [^`]+)`/g)].map((found) => found[1]);
  assert.equal(promised.length, 2);
  const server = await serve();
  for (const [time, said] of promised.entries()) {
    const answer = await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body });
    assert.equal(answer.status, 200);
    const receipt = answer.headers.get("x-stemma-cache");
    if (time === 0) assert.equal(receipt, said);
    else assert.match(receipt, new RegExp(`^${said}; saved_ms=\\d`));
    await answer.text();
  }
  assert.equal(await server.stop(), 0);
});
