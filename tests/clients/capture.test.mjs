// serve --capture: a replay of the file finds what the server found, and the file tells nothing of what was said.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, serve } from "./served.mjs";

const program = process.env.STEMMA_PROGRAM ?? "build/release/stemma";
const digest = (key) => createHash("sha256").update(key).digest("hex");
const rules = "The house rules: nobody speaks of the sea before noon, and nobody leaves the table alone. ".repeat(3);
const system = { role: "system", content: rules };

let folder;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "stemma-capture-"));
  writeFileSync(join(folder, "keys"), ["alice", "bob"].map((name) => `${name} ${digest(name)}`).join("\n"));
  writeFileSync(join(folder, "shared"), `${JSON.stringify({ messages: [system] })}\n`);
});

after(() => rmSync(folder, { recursive: true }));

// Tokens of every answer's prompt, and those of them that were found.
async function ask(server, name, content, fields = {}) {
  const asked = { messages: [system, { role: "user", content }], max_tokens: 20, temperature: 0, ...fields };
  const { status, body } = await json(server.url, "/v1/chat/completions", asked, { authorization: `Bearer ${name}` });
  assert.equal(status, 200);
  return { prompt: body.usage.prompt_tokens, cached: body.usage.prompt_tokens_details.cached_tokens };
}

test("a replay finds what the server found", async () => {
  const file = join(folder, "capture.jsonl");
  const server = await serve("--api-keys", join(folder, "keys"), "--shared-prefixes", join(folder, "shared"), "--capture", file);
  const answers = [];
  for (const [name, content] of [
    ["alice", "May I speak of the sea at eleven, if it is raining and nobody else is listening to me?"],
    ["alice", "May I speak of the sea at eleven, if it is raining and nobody else is listening to me?"],
    ["bob", "May I speak of the sea at eleven, if it is raining and nobody else is listening to me?"],
    ["bob", "Who may leave the table?"],
  ]) {
    answers.push(await ask(server, name, content));
  }
  assert.equal((await json(server.url, "/v1/chat/completions", { messages: [] }, { authorization: "Bearer bob" })).status, 400);
  assert.equal(await server.stop(), 0);
  const cached = answers.map((answer) => answer.cached);
  assert.ok(cached[0] === 0 && 0 < cached[2] && cached[2] < cached[1], `${cached}`);
  const text = readFileSync(file, "utf8");
  assert.equal(text.split("\n").length, 1 + answers.length + 1);
  for (const told of ["alice", "bob", "sea", "table"]) assert.ok(!text.includes(told), told);
  const replayed = JSON.parse(execFileSync(program, ["replay", "--format", "capture", "--json", "--trace", file]).toString().split("\n")[0]);
  assert.equal(replayed.requests, answers.length);
  assert.equal(
    replayed.hit_pages * replayed.page_size,
    cached.reduce((sum, tokens) => sum + tokens, 0),
  );
});

test("requests at once, some given up, are in the order in which they came", async () => {
  const file = join(folder, "many.jsonl");
  const server = await serve("--capture", file);
  const leaving = new AbortController();
  const gone = fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ messages: [system], max_tokens: 3000, ignore_eos: true }),
    signal: leaving.signal,
  }).catch(() => "gone");
  const some = Array.from({ length: 8 }, (_, i) => ask(server, "nobody", `Question ${i}`, { max_tokens: 1 + 7 * i, n: 1 + (i % 2) }));
  await Promise.all(some);
  leaving.abort();
  assert.equal(await gone, "gone");
  assert.equal(await server.stop(), 0);
  const lines = readFileSync(file, "utf8").trimEnd().split("\n").slice(1).map(JSON.parse);
  assert.equal(lines.length, 1 + 8 + 4);
  assert.equal(lines.filter((line) => line.finish_reason === "cancelled").length, 1);
  for (let i = 1; i < lines.length; ++i) assert.ok(lines[i - 1].timestamp_ms <= lines[i].timestamp_ms);
});

test("a file that cannot be made is an error, and a server that cannot start leaves the file", async () => {
  await assert.rejects(serve("--capture", "/nonexistent/file"), /--capture: cannot write \/nonexistent\/file/);
  const file = join(folder, "kept.jsonl");
  writeFileSync(file, "before");
  await assert.rejects(serve("--capture", file, "--host", "203.0.113.7"));
  assert.equal(readFileSync(file, "utf8"), "before");
});
