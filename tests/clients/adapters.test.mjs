// LoRA adapters over HTTP: a model of their own to clients, named in "model", listed with their parent, and with pages of
// their own in the cache.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
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
  mkdirSync(directory, { recursive: true });
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
  mkdirSync(join(folder, "later"));
  const poet = writeAdapter("poet", 0.7);
  server = await serve("--adapter", poet, "--adapter", writeAdapter("sage", 1.9), "--lora-modules", poet.replace("poet=", "bard="), "--model-name", "scribe",
    "--metrics-compat", "vllm", "--adapters-from", join(folder, "later"));
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
  assert.deepEqual(body.data.map(({ id, parent }) => [id, parent]), [["scribe", null], ["poet", "scribe"], ["sage", "scribe"], ["bard", "scribe"]]);
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

const load = (fields) => json(server.url, "/v1/load_lora_adapter", fields);
const unload = (name) => json(server.url, "/v1/unload_lora_adapter", { lora_name: name });
const names = async () => (await json(server.url, "/v1/models")).body.data.map(({ id }) => id);
const chancesOf = ({ body }) => body.choices[0].logprobs.token_logprobs;

// An answer whose first token has come: nothing that is sent from here on is before it.
async function begun(fields) {
  const body = JSON.stringify({ prompt, temperature: 0, logprobs: 0, stream: true, ...fields });
  const response = await fetch(`${server.url}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" }, body });
  const pieces = response.body.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
  let text = "";
  while (!text.includes("\n\n")) text += (await pieces.next()).value;
  const chances = async () => {
    for await (const piece of pieces) text += piece;
    const events = text.split("\n\n").filter((each) => each.startsWith("data: {")).map((each) => JSON.parse(each.slice(6)));
    return events.flatMap(({ choices: [choice] }) => choice?.logprobs?.token_logprobs ?? []);
  };
  return { chances };
}

test("an adapter is loaded while the server runs, and is the one that a server begins with", async () => {
  writeAdapter("later/poet", 0.7);
  const loaded = await load({ lora_name: "late", lora_path: "poet" });
  assert.equal(loaded.status, 200);
  assert.deepEqual(loaded.body, { success: true, loaded_adapters: ["poet", "sage", "bard", "late"] });
  const late = await complete({ model: "late" });
  const poet = await complete({ model: "poet" });
  assert.deepEqual(late.body.choices, poet.body.choices);
  assert.ok(cached(late) > 0, "pages are those of what is computed, not of a name");
  assert.equal((await load({ lora_name: "late", lora_path: "poet" })).body.error.param, "lora_name");
  assert.equal((await unload("late")).status, 200);
  assert.deepEqual(await names(), ["scribe", "poet", "sage", "bard"]);
  assert.equal((await complete({ model: "late" })).status, 404);
  assert.equal((await unload("late")).status, 404);
});

test("another one in its place has pages of its own; answers that run go on with the one before", async () => {
  writeAdapter("later/first", 0.4);
  writeAdapter("later/second", 2.3);
  await load({ lora_name: "late", lora_path: join(folder, "later", "first") });
  const whole = await complete({ model: "late", max_tokens: 300, ignore_eos: true });
  const running = await begun({ model: "late", max_tokens: 300, ignore_eos: true });
  const replaced = await load({ lora_name: "late", lora_path: "second", load_inplace: true });
  assert.equal(replaced.status, 200);
  const [before, other] = [await running.chances(), await complete({ model: "late" })];
  assert.deepEqual(before, chancesOf(whole));
  assert.equal(cached(other), 0);
  assert.notDeepEqual(chancesOf(other), chancesOf(whole).slice(0, 8));
  for (let round = 0; round < 3; ++round) {
    assert.equal((await unload("late")).status, 200);
    await load({ lora_name: "late", lora_path: round % 2 ? "second" : "first" });
    const again = await complete({ model: "late" });
    assert.deepEqual(chancesOf(again), round % 2 ? chancesOf(other) : chancesOf(whole).slice(0, 8));
  }
  await unload("late");
});

test("adapters come from below one directory, and are refused by what is wrong with them", async () => {
  symlinkSync(join(folder, "sage"), join(folder, "later", "link"));
  for (const path of ["../sage", join(folder, "sage"), "link", "nothing", ""]) {
    const { status, body } = await load({ lora_name: "late", lora_path: path });
    assert.equal(status, 400);
    assert.equal(body.error.param, "lora_path", path);
  }
  mkdirSync(join(folder, "later", "empty"));
  const empty = await load({ lora_name: "late", lora_path: "empty" });
  assert.equal(empty.status, 404);
  assert.match(empty.body.error.message, /adapter_config\.json/);
  assert.equal((await load({ lora_name: "scribe", lora_path: "poet" })).body.error.message, "lora_name: is what the model itself is called");
  assert.equal((await load({ lora_path: "poet" })).body.error.param, "lora_name");
  assert.deepEqual(await names(), ["scribe", "poet", "sage", "bard"]);
  const other = await serve();
  for (const path of ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]) {
    const refused = await json(other.url, path, { lora_name: "late", lora_path: "poet" });
    assert.equal(refused.status, 403);
    assert.match(refused.body.error.message, /--adapters-from/);
  }
  assert.equal(await other.stop(), 0);
});

test("a flag that is wrong ends the server with its name", async () => {
  await assert.rejects(serve("--adapter", join(folder, "poet")), /--adapter must be NAME=DIR/);
  await assert.rejects(serve("--model-name", "poet", "--adapter", `poet=${join(folder, "poet")}`), /what the model itself is called/);
});

test("who reads vLLM's metrics sees which adapters are at work", async () => {
  const stream = await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "sage", prompt, max_tokens: 400, ignore_eos: true, stream: true }),
  });
  await stream.body.getReader().read();
  const lines = (await (await fetch(`${server.url}/metrics`)).text()).split("\n");
  const line = lines.find((each) => each.startsWith("vllm:lora_requests_info{"));
  assert.match(line, /running_lora_adapters="sage",waiting_lora_adapters=""} \d{10}/);
  const { body } = await json(server.url, "/debug/kv");
  assert.equal(body.leases[0].adapter, "sage");
});
