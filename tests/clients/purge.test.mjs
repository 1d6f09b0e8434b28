// A tenant's pages are forgotten in every tier when it says so, also those of an earlier life and of every salt; the others
// keep theirs.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, serve, until } from "./served.mjs";

const kKeys = { ada: "ada-key", bob: "bob-key", root: "root-key" };
const directory = mkdtempSync(join(tmpdir(), "stemma-purge-"));
const keys = join(directory, "keys");
const disk = join(directory, "pages");
let server;

const hashed = (key) => createHash("sha256").update(key).digest("hex");
const start = async () => {
  // A request waits for what the disk has, however busy the machine is.
  const tiers = ["--disk", disk, "--disk-bytes", "256MiB", "--write-policy", "write-through", "--load-wait-ms", "10000"];
  server = await serve("--api-keys", keys, ...tiers);
};

before(async () => {
  const lines = Object.entries(kKeys).map(([tenant, key]) => `${tenant} ${hashed(key)}${tenant === "root" ? " admin" : ""}`);
  writeFileSync(keys, `${lines.join("\n")}\n`);
  await start();
});

after(async () => {
  await server.stop();
  rmSync(directory, { recursive: true });
});

const as = (tenant) => ({ authorization: `Bearer ${kKeys[tenant]}` });
const prompt = "A purge is a promise that what was said is forgotten. ".repeat(12);

// Tokens of the prompt that were found in any tier.
async function found(tenant, salt = "") {
  const body = { prompt, max_tokens: 1, temperature: 0, ...(salt === "" ? {} : { cache_salt: salt }) };
  const answer = await json(server.url, "/v1/completions", body, as(tenant));
  assert.equal(answer.status, 200, answer.text);
  return answer.body.usage.prompt_tokens_details.cached_tokens;
}

async function purge(tenant, query = "") {
  const response = await fetch(`${server.url}/v1/cache${query}`, { method: "DELETE", headers: as(tenant) });
  return { status: response.status, body: await response.json() };
}

async function restart() {
  assert.equal(await server.stop(), 0);
  await start();
}

test("a tenant's own pages go, of every salt and every life; the others' stay", async () => {
  for (const [tenant, salt] of [["ada", ""], ["ada", "s"], ["bob", ""]]) {
    await found(tenant, salt);
    assert.ok((await found(tenant, salt)) > 0);
  }
  await restart();
  const purged = await purge("ada");
  assert.equal(purged.status, 200);
  assert.deepEqual(purged.body.pending, []);
  assert.ok(purged.body.purged.disk > 0, JSON.stringify(purged.body));
  assert.equal(await found("ada"), 0);
  assert.equal(await found("ada", "s"), 0);
  assert.ok((await found("bob")) > 0);
  assert.ok((await purge("ada")).body.purged.device > 0);
  await restart();
  assert.equal(await found("ada"), 0);
  assert.ok((await found("bob")) > 0);
});

test("only an admin names another tenant, or all", async () => {
  await found("ada");
  await found("bob");
  assert.equal((await purge("ada", "?tenant=bob")).status, 403);
  assert.equal((await purge("ada", "?tenant=ada")).status, 200);
  assert.ok((await found("bob")) > 0);
  assert.equal((await purge("root", "?tenant=bob")).status, 200);
  assert.equal(await found("bob"), 0);
  // A disk that takes its time to remove a file (discards) may confirm it to a later call.
  await until(async () => (await json(server.url, "/flush_cache", {}, as("root"))).body.success);
  await restart();
  assert.equal(await found("ada"), 0);
  assert.equal(await found("bob"), 0);
});

// Taken for none, it would be every tenant that an admin purges.
test("a tenant that cannot be read is refused, and nobody loses a page", async () => {
  await found("ada");
  assert.ok((await found("ada")) > 0);
  for (const name of ["50%", "%zz", "ada%2"]) {
    const refused = await purge("root", `?tenant=${name}`);
    assert.equal(refused.status, 400, name);
    assert.equal(refused.body.error.param, "tenant");
  }
  assert.ok((await found("ada")) > 0);
});

// A variable of a script that is empty says no tenant.
test("a tenant without a name is refused, whoever asks", async () => {
  for (const asker of ["root", "ada"]) {
    for (const query of ["?tenant=", "?tenant"]) {
      const refused = await purge(asker, query);
      assert.equal(refused.status, 400, query);
      assert.equal(refused.body.error.param, "tenant");
    }
  }
});

// It may be one that has had a key, and has pages on the disk still.
test("a tenant that no key has is purged, and told apart", async () => {
  assert.equal((await purge("root", "?tenant=adda")).body.known_tenant, false);
  assert.equal((await purge("root", "?tenant=ada")).body.known_tenant, true);
  assert.equal((await purge("ada", "?tenant=ada")).body.known_tenant, true);
  assert.equal("known_tenant" in (await purge("ada")).body, false);
  assert.equal((await purge("ada", "?tenant=adda")).status, 403, "who has a key is no other tenant's business");
});

test("what might have been meant to say how little goes is refused, and nobody loses a page", async () => {
  await found("ada");
  assert.ok((await found("ada")) > 0);
  for (const query of ["?tennant=bob", "?tenant=bob&salt=s", "?tenant=bob&tenant=ada"]) {
    assert.equal((await purge("root", query)).status, 400, query);
  }
  const body = JSON.stringify({ tenant: "bob" });
  assert.equal((await fetch(`${server.url}/v1/cache`, { method: "DELETE", headers: as("root"), body })).status, 400);
  assert.ok((await found("ada")) > 0);
});

test("a key is wanted", async () => {
  const response = await fetch(`${server.url}/v1/cache`, { method: "DELETE" });
  assert.equal(response.status, 401);
});
