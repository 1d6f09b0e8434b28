// What the documents name is there: flags, metrics and paths.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { serve } from "./served.mjs";

const program = process.env.STEMMA_PROGRAM ?? "build/release/stemma";
const help = (...words) => execFileSync(program, [...words, "--help"], { encoding: "utf8" });
const pages = ["README.md", ...readdirSync("docs").filter((name) => name.endsWith(".md")).map((name) => join("docs", name))];
const text_of = (page) => readFileSync(page, "utf8");

// Of other programs that the documents have people run, by the first of them that has it.
const others = new Set([
  ...["--build", "--component", "--install", "--prefix", "--preset", "--target"], // cmake
  ...["--no-build-isolation", "--no-index", "--system-site-packages"], // pip, venv
  ...["--cflags", "--libs"], // pkg-config
  ...["--bind-to", "--oversubscribe"], // mpirun
  ...["--cpunodebind", "--interleave", "--membind"], // numactl
  ...["--appendonly", "--cluster", "--cluster-enabled", "--cluster-yes", "--daemonize", "--dir", "--maxmemory", "--maxmemory-policy", "--save"], // Redis
  ...["--cache-type", "--enable-hierarchical-cache", "--hicache-storage-backend", "--radix-cache-backend"], // SGLang, mini-SGLang
  ...["--answers", "--gtest", "--pack", "--pools", "--run", "--runs", "--seeds", "--steps", "--write"], // tests/ and tools/
]);

const commands = [...help().matchAll(/^  (\w+) {2,}/gm)].map((found) => found[1]).filter((word) => word !== "help");
const flags_in = (text) => new Set([...text.matchAll(/(?<![\w-])--[a-z][a-z0-9-]*/g)].map((found) => found[0]));

test("every flag that the documents name is one of a command's", () => {
  const known = new Set([...others, ...flags_in(help())]);
  for (const command of commands) for (const flag of flags_in(help(command))) known.add(flag);
  assert.ok(commands.length >= 8 && known.size > 60, `${commands}`);
  for (const page of pages) {
    for (const flag of flags_in(text_of(page))) assert.ok(known.has(flag), `${page}: ${flag}`);
  }
});

test("every metric that the documents name is exported", async () => {
  const folder = mkdtempSync(join(tmpdir(), "stemma-docs-"));
  const server = await serve("--host-bytes", "8MiB", "--disk", join(folder, "disk"), "--disk-bytes", "16MiB", "--shadow-audit", "50", "--events", "tcp://127.0.0.1:*");
  const exported = await (await fetch(`${server.url}/metrics`)).text();
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true });
  // Names of the C ABI begin alike.
  const headers = readdirSync("include/stemma").map((name) => text_of(join("include/stemma", name))).join("\n");
  let named = 0;
  for (const page of pages) {
    for (const [, name] of text_of(page).matchAll(/`(stemma_\w+_(?:total|seconds|bytes|pages|purges|tokens))`/g)) {
      if (new RegExp(`\\b${name}\\b`).test(headers)) continue;
      named += 1;
      assert.ok(exported.includes(`\n# TYPE ${name} `), `${page}: ${name}`);
    }
  }
  assert.ok(named >= 3);
});

test("docs/SERVING.md names every path of the server", () => {
  const routes = [...readFileSync("src/server/api_service.cc", "utf8").matchAll(/Route\{"(\w+)", "([^"]+)"/g)].map((found) => found[2]).filter((path) => path !== "/page/");
  assert.ok(routes.length > 20);
  const page = text_of("docs/SERVING.md");
  for (const path of routes) assert.ok(page.includes(path === "/" ? "`GET /`" : path.replace(/\/$/, "")), path);
});

// Where a test is found that is run by its name.
test("docs/FAULTS.md names tests where they are", () => {
  const sources = (folder) => readdirSync(folder, { recursive: true }).filter((name) => /_test\.(cc|h)$/.test(name)).map((name) => join(folder, name));
  const homes = new Map();
  for (const file of [...sources("src"), ...sources("tests")]) {
    for (const [, suite, name] of text_of(file).matchAll(/^\w*TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)/gm)) homes.set(`${suite}.${name}`, file);
  }
  const rooms = new Set(readdirSync("src"));
  let checked = 0;
  for (const row of text_of("docs/FAULTS.md").split("\n")) {
    let room = null;
    for (const [, word] of row.matchAll(/`([^`]+)`/g)) {
      if (/^[A-Z]\w+\.[A-Z]\w+$/.test(word)) {
        const home = homes.get(word);
        assert.ok(home !== undefined, `${word} is no test`);
        if (room !== null) assert.ok(home.startsWith(`src/${room}/`), `${word} is in ${home}, not in ${room}`);
        checked += 1;
      } else if (!word.startsWith("STEMMA_") && !word.startsWith("--")) {
        room = rooms.has(word) ? word : null;
      }
    }
  }
  assert.ok(checked > 100);
});
