// Pages in browsers: a server without keys answers its own and those of allowed origins; no other site's, whatever a
// browser can be made to send.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, noBrowser } from "./browser.mjs";
import { serve } from "./served.mjs";

let site;  // of somebody else
let chat;  // of a site that is allowed
let server;

async function siteOf(text) {
  const its = createServer((_, response) => response.setHeader("content-type", "text/html").end(text));
  its.listen(0, "127.0.0.1");
  await once(its, "listening");
  return { origin: `http://127.0.0.1:${its.address().port}`, close: () => its.close() };
}

before(async () => {
  [site, chat] = [await siteOf("another"), await siteOf("allowed")];
  server = await serve("--allowed-origins", `https://chat.example,${chat.origin}`);
});

after(async () => {
  assert.equal(await server.stop(), 0);
  site.close();
  chat.close();
});

// Sends what fetch does not let a page choose.
async function ask(path, { method = "POST", headers = {}, body = "" } = {}) {
  const sent = request(`${server.url}${path}`, { method, headers });
  sent.end(body);
  const [answer] = await once(sent, "response");
  answer.resume();
  await once(answer, "end");
  return answer;
}

const body = JSON.stringify({ prompt: "Once", max_tokens: 1 });

test("a page of another site may not ask a server without keys", async () => {
  for (const origin of [site.origin, "null", "https://evil.example"]) {
    for (const path of ["/v1/completions", "/flush_cache"]) {
      const answer = await ask(path, { headers: { origin, "content-type": "text/plain" }, body });
      assert.equal(answer.statusCode, 403);
      assert.equal(answer.headers["access-control-allow-origin"], undefined);
    }
  }
  assert.equal((await ask("/v1/completions", { headers: { origin: server.url }, body })).statusCode, 200);
});

test("nor one whose name was pointed at this machine", async () => {
  for (const host of ["evil.example:8080", "127.0.0.1.evil.example"]) {
    assert.equal((await ask("/v1/cache/tree", { method: "GET", headers: { host } })).statusCode, 403);
    assert.equal((await ask("/health", { method: "GET", headers: { host } })).statusCode, 200, "which everybody may ask");
  }
  for (const host of ["localhost:9", "chat.example"]) assert.equal((await ask("/v1/cache/tree", { method: "GET", headers: { host } })).statusCode, 200);
});

test("a preflight is answered before its body has come", async () => {
  const headers = { origin: chat.origin, "access-control-request-method": "POST", "content-length": 10 };
  const sent = request(`${server.url}/v1/completions`, { method: "OPTIONS", headers });
  sent.flushHeaders();
  const [answer] = await once(sent, "response");
  assert.equal(answer.statusCode, 204);
  assert.equal(answer.headers["access-control-allow-origin"], chat.origin);
  sent.destroy();
});

test("a page that may ask is told what HTTP itself says", async () => {
  const headers = { origin: chat.origin, "content-length": 1e12 };
  const sent = request(`${server.url}/v1/completions`, { method: "POST", headers });
  sent.flushHeaders();
  const [answer] = await once(sent, "response");
  assert.equal(answer.statusCode, 413);
  assert.equal(answer.headers["access-control-allow-origin"], chat.origin);
  sent.destroy();
});

test("every address of this machine alone is one", async () => {
  const mapped = await serve("--host", "::ffff:127.0.0.1");
  const url = mapped.url.replace("[::ffff:127.0.0.1]", "127.0.0.1");
  const sent = request(`${url}/v1/models`, { headers: { host: "evil.example" } });
  sent.end();
  const [answer] = await once(sent, "response");
  answer.resume();
  assert.equal(answer.statusCode, 403);
  assert.equal(await mapped.stop(), 0);
});

test("keys keep pages out where there are any, and origins are not asked for", async () => {
  const folder = mkdtempSync(join(tmpdir(), "stemma-origins-"));
  writeFileSync(join(folder, "keys"), `all ${createHash("sha256").update("key").digest("hex")} admin`);
  const keyed = await serve("--api-keys", join(folder, "keys"));
  const asked = async (headers) => (await fetch(`${keyed.url}/v1/models`, { headers: { origin: site.origin, ...headers } })).status;
  assert.equal(await asked({}), 401);
  assert.equal(await asked({ authorization: "Bearer key" }), 200);
  assert.equal(await keyed.stop(), 0);
  rmSync(folder, { recursive: true });
});

test("an origin that is none ends the server with its name", async () => {
  await assert.rejects(serve("--allowed-origins", "chat.example"), /chat\.example: no origin/);
});

test("in a browser a page of an allowed origin reads answers, streams and refusals, another does not", { skip: noBrowser }, async () => {
  // What the page's script reads of this request: status and text, or that the browser keeps them from it.
  const read = async ([url, stream]) => {
    try {
      const response = await fetch(`${url}/v1/completions`, {
        method: "POST", headers: { "content-type": "application/json", authorization: "Bearer any" },
        body: JSON.stringify({ prompt: "Once", max_tokens: stream === null ? -1 : 2, stream: stream === true }),
      });
      return [response.status, (await response.text()).slice(0, 6), response.headers.has("x-request-id")];
    } catch (error) {
      return String(error);
    }
  };
  for (const [origin, told] of [[chat.origin, [[200, '{"id":', true], [200, "data: ", true], [400, '{"erro', true]]], [site.origin, Array(3).fill("TypeError: Failed to fetch")]]) {
    const browser = await browse(origin);
    const { page } = await browser.open({ width: 400, height: 400 });
    const all = [];
    for (const stream of [false, true, null]) all.push(await page.evaluate(read, [server.url, stream]));
    await browser.close();
    assert.deepEqual(all, told);
  }
});
