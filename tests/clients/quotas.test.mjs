// Quotas: who floods the cache takes nothing of a tenant that is within its own. The server has about 400 pages.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { json, serve } from "./served.mjs";

const kTenants = ["quiet", "plain", "flood", "ops"];
const directory = mkdtempSync(join(tmpdir(), "stemma-quotas-"));
const keys = join(directory, "keys");
let server;

const hashed = (key) => createHash("sha256").update(key).digest("hex");
const as = (tenant) => ({ authorization: `Bearer ${tenant}-key` });

// The words of each tenant's line, behind its key.
function writeKeys(words) {
  const lines = kTenants.map((tenant) => `${tenant} ${hashed(`${tenant}-key`)} ${words[tenant] ?? ""}`);
  writeFileSync(keys, `${lines.join("\n")}\n`);
}

before(async () => {
  writeKeys({ quiet: "pages=100", ops: "admin" });
  server = await serve("--api-keys", keys, "--kv-bytes", "8MiB");
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(directory, { recursive: true });
});

// Tokens of the prompt that were found.
async function ask(tenant, prompt) {
  const answer = await json(server.url, "/v1/completions", { prompt, max_tokens: 1, temperature: 0 }, as(tenant));
  assert.equal(answer.status, 200, answer.text);
  return answer.body.usage.prompt_tokens_details.cached_tokens;
}

test("of two tenants' prompts the one within a quota outlives a flood", async () => {
  const prompt = "The lighthouse keeper counts the ships, and the ships count the lighthouse keeper's lamps. ".repeat(6);
  for (const tenant of ["quiet", "plain"]) {
    assert.equal(await ask(tenant, prompt), 0);
    assert.ok((await ask(tenant, prompt)) > 0);
  }
  for (let i = 0; i < 24; ++i) await ask("flood", `${i} ships went by, and nobody counted any of them. `.repeat(30));
  assert.ok((await ask("quiet", prompt)) > 0);
  assert.equal(await ask("plain", prompt), 0);
});

test("an admin sees what tenants have of their quotas, and nobody else does", async () => {
  const { body } = await json(server.url, "/debug/kv", undefined, as("ops"));
  assert.equal(body.quotas.length, 1);
  const [{ tenant, pages, quota_pages }] = body.quotas;
  assert.deepEqual({ tenant, quota_pages }, { tenant: "quiet", quota_pages: 100 });
  assert.ok(pages > 0 && pages <= 100, `${pages}`);
  assert.equal((await json(server.url, "/debug/kv", undefined, as("quiet"))).status, 403);
});

test("quotas that the device cannot keep are refused at start", async () => {
  const promised = join(directory, "promised");
  writeFileSync(promised, `ann ${hashed("1")} pages=300\nbert ${hashed("2")}\n`);
  const program = process.env.STEMMA_PROGRAM ?? "build/release/stemma";
  const flags = ["serve", "--port", "0", "--kv-bytes", "8MiB", "--api-keys", promised, "--tenant-pages", "200"];
  const refused = await promisify(execFile)(program, flags).catch((error) => error);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /tenant bert: a quota of 200 pages, but the others' quotas leave \d+ of the device's \d+/);
});
