// Many clients at once: their answers are those they get alone, token for token, and no token of a prompt is computed
// twice, in whatever order they come.

import assert from "node:assert/strict";
import { test } from "node:test";
import { json, metric, serve } from "./served.mjs";

const kSeed = 20261122;

// mulberry32.
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function shuffled(list, draw) {
  const out = [...list];
  for (let i = out.length - 1; i > 0; --i) {
    const j = Math.floor(draw() * (i + 1));
    [out[i], out[j]] = [out[j], out[i]];
  }
  return out;
}

const tokens = (count, draw) => Array.from({ length: count }, () => Math.floor(draw() * 2000));

// 1,500 tokens that all share, 8 groups that share 500 more, 50 of their own.
function family(draw) {
  const system = tokens(1500, draw);
  const prompts = [];
  for (let group = 0; group < 8; ++group) {
    const shared = tokens(500, draw);
    for (let i = 0; i < 4; ++i) prompts.push([...system, ...shared, ...tokens(50, draw)]);
  }
  return prompts;
}

// As many clients as said, each asking for the next of the list once it has its answer; what was answered, in order.
async function answers(url, prompts, clients, fields) {
  const out = new Array(prompts.length);
  let next = 0;
  const one = async () => {
    while (next < prompts.length) {
      const i = next++;
      const { status, body, text } = await json(url, "/v1/completions", {
        prompt: prompts[i], temperature: 0, ignore_eos: true, return_token_ids: true, ...fields,
      });
      assert.equal(status, 200, text);
      out[i] = body.choices[0].token_ids;
    }
  };
  await Promise.all(Array.from({ length: clients }, one));
  return out;
}

test("64 chats at once that share 1,500 tokens are answered as they are one by one", async () => {
  const draw = random(kSeed);
  const system = tokens(1500, draw);
  const prompts = Array.from({ length: 64 }, () => [...system, ...tokens(5 + Math.floor(draw() * 60), draw)]);
  const fields = { max_tokens: 24, temperature: 0.8, seed: 7 };
  const alone = await serve("--cache", "none", "--concurrency", "1");
  const one_by_one = await answers(alone.url, prompts, 1, fields);
  assert.equal(await alone.stop(), 0);
  const together = await serve("--concurrency", "64");
  assert.deepEqual(await answers(together.url, prompts, 64, fields), one_by_one);
  assert.ok((await metric(together.url, "stemma_cached_tokens_total")) >= 63 * 1488);
  assert.equal(await together.stop(), 0);
});

for (const clients of [4, 16]) {
  test(`no token of 32 prompts is computed twice, ${clients} clients`, async () => {
    const draw = random(kSeed + clients);
    const server = await serve("--concurrency", "16", "--page-size", "16");
    await answers(server.url, shuffled(family(draw), draw), clients, { max_tokens: 16 });
    // 7,100 different tokens, and for each text that parts inside a page the part of that page that it shares.
    assert.equal(await metric(server.url, "stemma_computed_prompt_tokens_total"), 7184);
    assert.equal(await server.stop(), 0);
  });
}
