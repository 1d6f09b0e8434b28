// The page at / in a browser: what it shows, with a mouse, a keyboard and a screen reader's eyes, on a desk and on a
// phone; and the paths that it asks.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { browse, noBrowser } from "./browser.mjs";
import { json, serve, until } from "./served.mjs";

const desk = { width: 1280, height: 800 };
const phone = { width: 375, height: 740 };
const story = "In the beginning the king sent his men over the hills to the sea, and they built a house there of stone. ".repeat(2);

async function ask(page, text) {
  const receipts = page.locator("#messages .receipt");
  const answered = await receipts.count();
  await page.fill("#question", text);
  await page.press("#question", "Enter");
  await receipts.nth(answered).waitFor();
  return receipts.nth(answered).textContent();
}

// Rules that need no eyes: every control has a name, ids are unique and what refers to one finds it, headings do not
// skip a level, roles have the parents that they need.
function unnamed() {
  const faults = [];
  const name = (each) =>
    each.getAttribute("aria-label") ?? each.labels?.[0]?.textContent ?? (document.getElementById(each.getAttribute("aria-labelledby")?.split(" ")[0])?.textContent || each.textContent);
  for (const each of document.querySelectorAll("input, textarea, button, select, a, [role=img], [role=tree], [role=treeitem], [role=region], section, img")) {
    if (each.closest("[hidden]") === null && name(each).trim() === "") faults.push(`no name: ${each.outerHTML.slice(0, 80)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) faults.push("an id is there twice");
  for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
    for (const each of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of each.getAttribute(attribute).split(" ")) if (document.getElementById(id) === null) faults.push(`${attribute}: no ${id}`);
    }
  }
  let level = 0;
  for (const each of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(each.tagName[1]);
    if (next > level + 1) faults.push(`${each.textContent}: a level is skipped`);
    level = next;
  }
  for (const each of document.querySelectorAll("[role=treeitem]")) if (each.closest("[role=tree]") === null) faults.push("an item outside of a tree");
  if (document.documentElement.lang === "" || document.title === "") faults.push("no language or title");
  return faults;
}

// Texts whose contrast with what is behind them is below WCAG's AA.
function faint() {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) && (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * (x || 0) + 0.7152 * (y || 0) + 0.0722 * (z || 0);
  };
  const behind = (each) => {
    for (let at = each; at !== null; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim() !== "");
    if (!own || each.closest("[hidden], .unseen, .skip, :disabled") !== null) continue;
    const [a, b] = [light(parse(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${each.outerHTML.slice(0, 60)}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return found;
}

describe("the page", { skip: noBrowser }, () => {
  let server;
  let browser;
  before(async () => {
    server = await serve("--host-bytes", "16MiB");
    browser = await browse(server.url);
  });
  after(async () => {
    await browser?.close();
    assert.equal(await server.stop(), 0);
  });

  test("answers a chat, says what came from the cache, and asks nobody else", async () => {
    const { page, faults } = await browser.open(desk);
    await page.locator("#state.well").waitFor();
    assert.match(await ask(page, `${story}Who built the house?`), /^0 of \d+ prompt tokens from the cache/);
    const second = await ask(page, "And where?");
    const [cached, prompt] = second.match(/^(\d+) of (\d+) prompt tokens from the cache/).slice(1).map(Number);
    assert.ok(cached > 0 && cached < prompt, second);
    assert.equal(await page.locator("#messages li").count(), 4);
    assert.match(await page.locator("#heard").textContent(), /prompt tokens from the cache/);
    await page.click("#clear");
    assert.equal(await page.locator("#messages li").count(), 0);
    const again = await ask(page, `${story}Who built the house?`);
    assert.doesNotMatch(again, /^0 of/);
    await page.waitForFunction(() => /\d %/.test(document.getElementById("rate-all").textContent));
    assert.match(await page.locator("#tiers").textContent(), /Device \d+ of [\d,]+ pages.*Host memory \d+ of [\d,]+ pages/);
    assert.deepEqual(faults, []);
    await page.close();
  });

  test("shows the tree, and a node's text by keyboard and by click", async () => {
    const { page, faults } = await browser.open(desk);
    for (const question of ["Who was the king?", "Where is the sea?"]) {
      await json(server.url, "/v1/chat/completions", { messages: [{ role: "user", content: story + question }], max_tokens: 4 });
    }
    const items = page.locator('[role="treeitem"]');
    const nodes = (await json(server.url, "/v1/cache/tree")).body.nodes.filter((node) => node.tier === "device").map((node) => node.id);
    await page.waitForFunction((names) => names.every((name) => document.querySelector(`[data-node="${name}"]`) !== null), nodes);
    assert.ok((await page.locator('[role="treeitem"][aria-level="2"]').count()) >= 2);
    assert.equal(await page.locator('[role="treeitem"][tabindex="0"]').count(), 1, "Tab finds one node");
    await items.first().focus();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("node-text").textContent.includes("the king sent his men"));
    assert.equal(await page.evaluate(() => document.activeElement.id), "node");
    assert.equal(await items.first().getAttribute("aria-selected"), "true");
    await page.click("#node-close");
    const focused = () => page.evaluate(() => document.activeElement.dataset.node);
    const first = await focused();
    await page.keyboard.press("ArrowRight");
    const second = await focused();
    assert.notEqual(second, first, "to its first child");
    await page.keyboard.press("ArrowUp");
    assert.equal(await focused(), first, "and back");
    const level = () => page.evaluate(() => Number(document.activeElement.getAttribute("aria-level")));
    await page.keyboard.press("End"); // a leaf: the last of all is never unfolded
    const leaf = await level();
    assert.ok(leaf > 1);
    await page.keyboard.press("ArrowLeft");
    assert.equal(await level(), leaf - 1, "to its parent");
    await page.keyboard.press("Home");
    assert.equal(await focused(), first);
    const before_folding = await items.count();
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction((count) => document.querySelectorAll('[role="treeitem"]').length < count, before_folding);
    await page.waitForFunction((node) => document.activeElement.dataset.node === node, first);
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction((count) => document.querySelectorAll('[role="treeitem"]').length === count, before_folding);
    await items.nth(1).locator(".facts").first().click();
    await page.waitForFunction(() => !document.getElementById("node").hidden && document.getElementById("node-text").textContent !== "");
    assert.deepEqual(faults, []);
    await page.close();
  });

  test("shows who runs and who waits", async () => {
    const { page } = await browser.open(desk);
    // Long enough to be seen.
    await page.route("**/v1/chat/completions", (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, max_tokens: 16000 }) }));
    await page.fill("#question", "A very long story.");
    await page.press("#question", "Enter");
    await page.waitForFunction(() => /running/.test(document.getElementById("requests").textContent));
    const { body } = await json(server.url, "/debug/kv");
    assert.equal(body.leases.length, 1);
    assert.equal(body.leases[0].path, "/v1/chat/completions");
    assert.match(body.leases[0].request_id, /^req-/);
    assert.ok(body.leases[0].pages > 0 && body.leases[0].age_ms >= 0 && body.locks >= 1);
    assert.ok(body.tiers.host.pages > 0);
    await page.click("#stop");
    await page.locator("#messages .receipt", { hasText: "Stopped." }).waitFor();
    await until(async () => (await json(server.url, "/debug/kv")).body.leases.length === 0);
    await page.close();
  });

  for (const colorScheme of ["light", "dark"]) {
    test(`is legible and named, in ${colorScheme} colours`, async () => {
      const { page, faults } = await browser.open(desk, { colorScheme });
      await ask(page, `${story}Is it ${colorScheme}?`);
      await page.locator('[role="treeitem"]').first().click();
      await page.locator("#node-text .before").waitFor({ state: "attached" });
      assert.deepEqual(await page.evaluate(unnamed), []);
      assert.deepEqual(await page.evaluate(faint), []);
      assert.deepEqual(faults, []);
      await page.close();
    });
  }

  test("Tab reaches everything, visibly", async () => {
    const { page } = await browser.open(desk);
    await page.locator('[role="treeitem"]').first().waitFor();
    const reached = new Set();
    for (let i = 0; i < 30; ++i) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const each = document.activeElement;
        const ring = getComputedStyle(each.matches("[role=treeitem]") ? each.firstElementChild : each).outlineStyle;
        return { name: each.id || each.getAttribute("role") || each.className, ring };
      });
      if (at.name === "") break; // back to the browser
      assert.notEqual(at.ring, "none", `${at.name} shows that it has the focus`);
      if (reached.has(at.name)) break;
      reached.add(at.name);
    }
    for (const name of ["skip", "messages", "question", "length", "send", "clear", "treeitem"]) {
      assert.ok(reached.has(name), `Tab does not reach ${name}: ${[...reached]}`);
    }
    await page.close();
  });

  test("fits a phone", async () => {
    const { page, faults } = await browser.open(phone);
    await ask(page, `${story}${"long".repeat(60)}?`);
    await page.locator('[role="treeitem"]').first().click();
    await page.locator("#node-text .before").waitFor({ state: "attached" });
    const { wide, small } = await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth - window.innerWidth,
      small: [...document.querySelectorAll("button, input, textarea")].filter((each) => each.closest("[hidden]") === null && each.offsetHeight < 24).map((each) => each.id),
    }));
    assert.ok(wide <= 0, `${wide} pixels too wide`);
    assert.deepEqual(small, [], "too small for a finger");
    assert.deepEqual(faults, []);
    await page.close();
  });

  test("begins a new chat without the answer that it stopped", async () => {
    const { page } = await browser.open(desk);
    const asked = [];
    await page.route("**/v1/chat/completions", (route) => {
      asked.push(route.request().postDataJSON().messages);
      const long = asked.length === 1 ? { ignore_eos: true, max_tokens: 16000 } : {};
      return route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...long }) });
    });
    await page.fill("#question", "A very long story.");
    await page.press("#question", "Enter");
    await page.waitForFunction(() => document.querySelector("#messages .theirs .said")?.textContent.length > 20);
    await page.click("#clear");
    await page.waitForFunction(() => !document.getElementById("send").disabled);
    await ask(page, "Hello");
    assert.deepEqual(asked.at(-1), [{ role: "user", content: "Hello" }]);
    await page.close();
  });
});

test("the page's paths, and what their answers allow", async () => {
  const server = await serve();
  const whole = await fetch(`${server.url}/`);
  assert.equal(whole.status, 200);
  assert.match(whole.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'/);
  const html = await whole.text();
  for (const [, path] of html.matchAll(/(?:src|href)="(\/[^"]*)"/g)) {
    assert.equal((await fetch(server.url + path)).status, 200, path);
  }
  assert.doesNotMatch(html, /https?:\/\//, "nothing is fetched from elsewhere");
  assert.equal((await fetch(`${server.url}/page/nothing.js`)).status, 404);
  assert.equal((await fetch(`${server.url}/page/../page.js`)).status, 404);
  assert.equal((await json(server.url, "/v1/cache/tree?nodes=0")).status, 400);
  assert.equal((await json(server.url, "/v1/cache/tree?nodes=x")).status, 400);
  assert.equal((await json(server.url, "/v1/cache/tree/d99999")).status, 404);
  assert.equal((await json(server.url, "/v1/cache/tree/x1")).status, 404);
  for (const question of ["one", "two", "three"]) await json(server.url, "/v1/completions", { prompt: story + question.repeat(30), max_tokens: 1 });
  const { body } = await json(server.url, "/v1/cache/tree?nodes=2");
  assert.equal(body.nodes.length, 2);
  assert.equal(body.nodes[1].parent, body.nodes[0].id);
  assert.equal(body.nodes[0].pages * body.page_size, body.nodes[0].tokens);
  assert.ok(body.total_nodes.device > 2);
  const node = await json(server.url, `/v1/cache/tree/${body.nodes[1].id}`);
  assert.equal(node.body.tokens, body.nodes[1].tokens);
  assert.ok(story.endsWith(node.body.text_before.slice(-8)) || story.includes(node.body.text_before.slice(-8)));
  assert.equal(await server.stop(), 0);
});

describe("with keys", () => {
  const keys = { admin: "k-admin-1", user: "k-user-1" };
  const digest = (key) => createHash("sha256").update(key).digest("hex");
  let folder;
  let server;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "stemma-keys-"));
    writeFileSync(join(folder, "keys"), `a ${digest(keys.admin)} admin\nb ${digest(keys.user)}\n`);
    server = await serve("--api-keys", join(folder, "keys"));
  });
  after(async () => {
    assert.equal(await server.stop(), 0);
    rmSync(folder, { recursive: true });
  });

  test("texts, requests and numbers are an admin's", async () => {
    for (const path of ["/debug/kv", "/v1/cache/tree", "/v1/cache/tree/d1", "/v1/cache/stats", "/metrics"]) {
      assert.equal((await json(server.url, path)).status, 401, path);
      assert.equal((await json(server.url, path, undefined, { authorization: `Bearer ${keys.user}` })).status, 403, path);
    }
    const as_admin = await json(server.url, "/debug/kv", undefined, { authorization: `Bearer ${keys.admin}` });
    assert.deepEqual(as_admin.body.leases, []);
  });

  test("the page asks for a key, and keeps it no longer than the tab", { skip: noBrowser }, async () => {
    const browser = await browse(server.url);
    const { page } = await browser.open(phone);
    await page.locator("#key-form:not([hidden])").waitFor();
    await page.fill("#key", keys.user);
    await page.press("#key", "Enter");
    await page.waitForFunction(() => document.getElementById("state").textContent === "no admin's key");
    assert.match(await ask(page, "Whoever may ask is answered."), /prompt tokens from the cache/);
    await page.fill("#key", keys.admin);
    await page.press("#key", "Enter");
    await page.locator("#state.well").waitFor();
    assert.equal(await page.inputValue("#key"), "");
    assert.equal(await page.evaluate(() => localStorage.length + document.cookie.length), 0);
    await browser.close();
  });
});
