// A purge that a store could not confirm outlives the server: Redis hangs while it is asked for, and has the pages still
// when the next server comes. Only one that knows of the purge does not find them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, metric, serve, until } from "./served.mjs";

const directory = mkdtempSync(join(tmpdir(), "stemma-purge-file-"));
const socket = join(directory, "redis.sock");
const purges = join(directory, "purges");
const prompt = (life) => `${life}: a purge is a promise that what was said is forgotten. `.repeat(12);
const servers = [];
let redis;

before(async () => {
  redis = spawn("redis-server", ["--port", "0", "--unixsocket", socket, "--save", ""], { stdio: "ignore" });
  await until(() => existsSync(socket));
});

after(async () => {
  for (const server of servers) await server.stop("SIGKILL");
  redis.kill("SIGKILL");
  rmSync(directory, { recursive: true });
});

async function start(...flags) {
  servers.push(await serve("--remote", `unix://${socket}`, "--write-policy", "write-through", "--load-wait-ms", "10000", ...flags));
  return servers.at(-1);
}

async function found(server, life) {
  const answer = await json(server.url, "/v1/completions", { prompt: prompt(life), max_tokens: 1, temperature: 0 });
  assert.equal(answer.status, 200, answer.text);
  return answer.body.usage.prompt_tokens_details.cached_tokens;
}

// A server's life in which the pages come to Redis, and Redis hangs when they are to be forgotten.
async function purgeInVain(life, ...flags) {
  const server = await start(...flags);
  await found(server, life);
  await until(async () => (await metric(server.url, "stemma_stored_pages_total")) > 0 && (await metric(server.url, "stemma_transfers_underway")) === 0);
  redis.kill("SIGSTOP");
  const purged = await (await fetch(`${server.url}/v1/cache`, { method: "DELETE" })).json();
  assert.deepEqual(purged.pending, ["remote"]);
  return server;
}

test("without a purge file the next server finds what was purged", async () => {
  const server = await purgeInVain("first");
  await server.stop("SIGKILL");
  redis.kill("SIGCONT");
  const next = await start();
  assert.ok((await found(next, "first")) > 0, "else the test below would show nothing");
  await next.stop();
});

for (const signal of ["SIGTERM", "SIGKILL"]) {
  test(`with one it does not, after ${signal}`, async () => {
    const server = await purgeInVain(signal, "--purge-file", purges);
    await server.stop(signal);
    redis.kill("SIGCONT");
    const next = await start("--purge-file", purges);
    assert.equal(await found(next, signal), 0);
    await until(async () => (await metric(next.url, "stemma_pending_purges")) === 0);
    assert.equal(await next.stop(), 0);
  });
}

test("one file is one server's, and nothing else is written over", async () => {
  const server = await start("--purge-file", purges);
  await assert.rejects(start("--purge-file", purges), /another process has it/);
  await server.stop();
  const letter = join(directory, "letter");
  writeFileSync(letter, "Dear all");
  await assert.rejects(start("--purge-file", letter), /not a file of purges/);
});

test("one of a disk tier that is damaged costs what is cached, not the start", async () => {
  const disk = join(directory, "pages");
  await (await serve("--disk", disk, "--disk-bytes", "64MiB")).stop();
  writeFileSync(join(disk, "purges"), "Dear all");
  const server = await serve("--disk", disk, "--disk-bytes", "64MiB");
  await until(async () => (await metric(server.url, "stemma_pending_purges")) === 0);
  assert.match(server.log(), /cache.purge_file.damaged/);
  assert.equal(await server.stop(), 0);
});
