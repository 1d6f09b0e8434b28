// LoRA adapters over HTTP: a model of their own to clients, named in "model", listed with their parent, and with pages of
// their own in the cache.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, serve } from "./served.mjs";

const model = JSON.parse(readFileSync("models/scribe-3m/config.json", "utf8"));
const rank = 2;
let folder;
let server;

// Changes q_proj of every layer by numbers that `step` decides.
function writeAdapter(name, step) {
  const directory = join(folder, name);
  mkdirSync(directory);
  writeFileSync(join(directory, "adapter_config.json"), JSON.stringify({ peft_type: "LORA", r: rank, lora_alpha: 8, target_modules: ["q_proj"] }));
  const heads = model.num_attention_heads * (model.head_dim ?? model.hidden_size / model.num_attention_heads);
  const header = {};
  const parts = [];
  let offset = 0;
  for (let layer = 0; layer < model.num_hidden_layers; ++layer) {
    for (const [half, shape] of [["A", [rank, model.hidden_size]], ["B", [heads, rank]]]) {
      const values = Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => Math.sin(step * (i + layer + 1)) / 4);
      header[`base_model.model.model.layers.${layer}.self_attn.q_proj.lora_${half}.weight`] = { dtype: "F32", shape, data_offsets: [offset, offset + values.byteLength] };
      parts.push(Buffer.from(values.buffer));
      offset += values.byteLength;
    }
  }
  const text = JSON.stringify(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(directory, "adapter_model.safetensors"), Buffer.concat([length, Buffer.from(text), ...parts]));
  return `${name}=${directory}`;
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "stemma-adapters-"));
  const poet = writeAdapter("poet", 0.7);
  server = await serve("--adapter", poet, "--adapter", writeAdapter("sage", 1.9), "--lora-modules", poet.replace("poet=", "bard="), "--model-name", "scribe");
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true });
});

const prompt = "And it came to pass in those days, that there went out a decree that all the world should be taxed";
const complete = (fields) => json(server.url, "/v1/completions", { prompt, max_tokens: 8, temperature: 0, logprobs: 0, ...fields });
const cached = ({ body }) => body.usage.prompt_tokens_details.cached_tokens;

test("adapters are listed as models whose parent is the model", async () => {
  const { body } = await json(server.url, "/v1/models");
  assert.deepEqual(body.data.map(({ id, parent }) => [id, parent]), [["scribe", undefined], ["poet", "scribe"], ["sage", "scribe"], ["bard", "scribe"]]);
  const one = await json(server.url, "/v1/models/poet");
  assert.equal(one.body.id, "poet");
  assert.equal(one.body.parent, "scribe");
});

test("the name of a model chooses an adapter, whose pages are its own", async () => {
  const plain = await complete({ model: "scribe" });
  const poet = await complete({ model: "poet" });
  const sage = await complete({ model: "sage" });
  assert.deepEqual([plain, poet, sage].map(({ body }) => body.model), ["scribe", "poet", "sage"]);
  assert.deepEqual([plain, poet, sage].map(cached), [0, 0, 0]);
  const chances = [plain, poet, sage].map(({ body }) => JSON.stringify(body.choices[0].logprobs.token_logprobs));
  assert.equal(new Set(chances).size, 3, "each says something else");
  const again = await complete({ model: "poet" });
  assert.ok(cached(again) > 0);
  assert.deepEqual(again.body.choices, poet.body.choices);
  const twin = await complete({ model: "bard" });
  assert.equal(cached(twin), cached(again), "the same adapter under another name");
  assert.deepEqual(twin.body.choices, poet.body.choices);
});

test("a prompt is warmed and explained under the adapter that is asked for", async () => {
  const text = "In the beginning was the word, and whoever heard it told it to the next one who would listen to it";
  assert.equal((await json(server.url, "/v1/cache/warm", { model: "sage", prompt: text })).status, 200);
  const device = async (name) => (await json(server.url, "/v1/cache/explain", { model: name, prompt: text })).body.cached_tokens.device;
  assert.ok((await device("sage")) > 0);
  assert.equal(await device("poet"), 0);
  assert.equal(await device("scribe"), 0);
});

test("a model that there is not is a 404 that names those there are", async () => {
  const { status, body } = await complete({ model: "nobody" });
  assert.equal(status, 404);
  assert.equal(body.error.code, "model_not_found");
  assert.match(body.error.message, /'scribe', 'poet', 'sage', 'bard'/);
  assert.equal((await json(server.url, "/v1/models/nobody")).status, 404);
});

test("a flag that is wrong ends the server with its name", async () => {
  await assert.rejects(serve("--adapter", join(folder, "poet")), /--adapter must be NAME=DIR/);
  await assert.rejects(serve("--model-name", "poet", "--adapter", `poet=${join(folder, "poet")}`), /what the model itself is called/);
});
