// Prefixes that the operator lets tenants share: found by everybody, while what goes on from them is a tenant's own; and
// receipts that name the field by which a text is another's.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, serve } from "./served.mjs";

const digest = (key) => createHash("sha256").update(key).digest("hex");
const rules = "The house rules: nobody speaks of the sea before noon, and nobody leaves the table alone. ".repeat(3);
const system = { role: "system", content: rules };
const question = { role: "user", content: "May I speak of the sea at eleven, if it is raining and nobody else is listening to me?" };

let folder;
let server;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "stemma-shared-"));
  writeFileSync(join(folder, "keys"), ["alice", "bob", "carol"].map((name) => `${name} ${digest(name)}`).concat(`root ${digest("root")} admin`).join("\n"));
  writeFileSync(join(folder, "shared"), `${JSON.stringify({ messages: [system] })}\n\n${JSON.stringify({ prompt: `Once ${rules}` })}\n`);
  server = await serve("--api-keys", join(folder, "keys"), "--shared-prefixes", join(folder, "shared"));
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true });
});

const as = (name) => ({ authorization: `Bearer ${name}` });
const chat = async (name, fields = {}) =>
  (await json(server.url, "/v1/chat/completions", { messages: [system, question], max_tokens: 4, temperature: 0, cache_receipt: true, ...fields }, as(name))).body;
const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;

test("every tenant finds what is shared, and only its own behind it", async () => {
  const first = await chat("alice");
  assert.equal(cached(first), 0);
  const other = await chat("bob");
  const again = await chat("alice");
  assert.ok(cached(other) > 0, "the system prompt is shared");
  assert.ok(cached(again) > cached(other), "the question is a tenant's own");
  assert.equal(cached(await chat("carol")), cached(other));
  for (const answer of [other, again]) assert.equal(answer.choices[0].message.content, first.choices[0].message.content);
});

test("a tenant's purge leaves what is shared", async () => {
  const before = cached(await chat("carol"));
  assert.equal((await fetch(`${server.url}/v1/cache`, { method: "DELETE", headers: as("carol") })).status, 200);
  const after = cached(await chat("carol"));
  assert.ok(after > 0 && after < before);
  assert.equal(cached(await chat("carol")), before);
});

test("explain sees through both parts", async () => {
  const { body } = await json(server.url, "/v1/cache/explain", { messages: [system, question] }, as("alice"));
  const stranger = await json(server.url, "/v1/cache/explain", { messages: [system, { role: "user", content: "Something else" }] }, as("root"));
  assert.ok(body.cached_tokens.device > stranger.body.cached_tokens.device);
  assert.ok(stranger.body.cached_tokens.device > 0);
  assert.equal(stranger.body.cached_goes_on, null, "nothing of others is shown");
});

test("a receipt names the field in which a namespace of one's own differs", async () => {
  await chat("bob", { extra_key: "a" });
  const other = await chat("bob", { extra_key: "b" });
  assert.deepEqual(other.cache_receipt.stopped, { reason: "other_namespace", differs: "extra_key" });
  await chat("bob", { cache_salt: "secret", extra_key: "c" });
  const kept = await chat("bob", { cache_salt: "guess", extra_key: "c" });
  assert.equal(kept.cache_receipt.stopped.reason, "cold", "a salt keeps its users apart");
  await chat("root", { cache_salt: "one" });
  const told = await chat("root", { cache_salt: "two" });
  assert.deepEqual(told.cache_receipt.stopped, { reason: "other_namespace", differs: "cache_salt" });
});

test("a file that is wrong is refused with its line", async () => {
  writeFileSync(join(folder, "wrong"), `${JSON.stringify({ prompt: "right" })}\n{"messages": 3}\n`);
  await assert.rejects(serve("--shared-prefixes", join(folder, "wrong")), /wrong:2: messages/);
});
