// /v1/messages, as Anthropic's client reads it: blocks, streams, tools, and what its usage says of the cache.

import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json as jsonOf } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { json, serve } from "./served.mjs";
import { writeScriptedModel } from "./scripted_model.mjs";

const tools = [{ name: "look", description: "Looks.", input_schema: { type: "object", properties: { at: { type: "string" } } } }];
const scripts = {
  "<sea>": ["The", " sea.", " The end."],
  "<muse>": ["<think>I look", ".</think>", "It is."],
  "<ponder>": ["<think>On", " and", " on", " and on.", "</think>", "Done."],
  "<call>": ["I look.", '\n<tool_call>\n{"name": "look", "arg', 'uments": {"at": "sea"}}\n</tool_call>'],
  "<form>": ['{"a"', ": true}"],
};
const directory = mkdtempSync(join(tmpdir(), "stemma-messages-"));
const clients = {};
const servers = {};
const clientOf = (url, apiKey = "none") => new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });

before(async () => {
  const template = "{% if false %}<tool_call></think>{% endif %}{{ messages[-1]['content'] }}";
  writeScriptedModel(directory, { scripts, template });
  servers.scripted = await serve("--model", directory);
  servers.scribe = await serve("--context-tokens", "256");
  for (const name in servers) clients[name] = clientOf(servers[name].url);
});

after(async () => {
  for (const name in servers) assert.equal(await servers[name].stop(), 0);
  rmSync(directory, { recursive: true });
});

const modelOf = async (name) => (await json(servers[name].url, "/v1/models")).body.data[0].id;
const asked = async (script, fields) => ({
  model: await modelOf("scripted"), max_tokens: 50, temperature: 0, messages: [{ role: "user", content: script }], ...fields,
});
const whole = async (script, fields = {}) => clients.scripted.messages.create(await asked(script, fields));
// Put together by the client itself.
const streamed = async (script, fields = {}) => clients.scripted.messages.stream(await asked(script, fields)).finalMessage();
const story = "Tell me of the sea, and of the ships that go down to it in the morning and come home at night, all of them. ";

test("a text is one block, whole and streamed", async () => {
  for (const ask of [whole, streamed]) {
    const message = await ask("<sea>");
    assert.match(message.id, /^msg_/);
    assert.equal(message.type, "message");
    assert.equal(message.role, "assistant");
    assert.deepEqual(message.content, [{ type: "text", text: "The sea. The end." }]);
    assert.equal(message.stop_reason, "end_turn");
    assert.equal(message.stop_sequence, null);
    assert.equal(message.usage.output_tokens, 4);
  }
});

test("what stops an answer is said", async () => {
  for (const ask of [whole, streamed]) {
    const stopped = await ask("<sea>", { stop_sequences: [" The end"] });
    assert.deepEqual(stopped.content, [{ type: "text", text: "The sea." }]);
    assert.equal(stopped.stop_reason, "stop_sequence");
    assert.equal(stopped.stop_sequence, " The end");
    assert.equal((await ask("<sea>", { max_tokens: 1 })).stop_reason, "max_tokens");
  }
});

test("more tokens than the context has room for are as many as it has", async () => {
  const fields = { max_tokens: 1_000_000, messages: [{ role: "user", content: story }], ignore_eos: true };
  const message = await clients.scribe.messages.stream({ model: await modelOf("scribe"), ...fields }).finalMessage();
  assert.equal(message.stop_reason, "model_context_window_exceeded");
  assert.equal(message.usage.input_tokens + message.usage.cache_read_input_tokens + message.usage.output_tokens, 256);
});

test("thoughts are a block before the text", async () => {
  const blocks = [{ type: "thinking", thinking: "I look.", signature: "" }, { type: "text", text: "It is." }];
  assert.deepEqual((await whole("<muse>")).content, blocks);
  assert.deepEqual((await streamed("<muse>")).content, blocks);
  const hidden = { thinking: { type: "adaptive", display: "omitted" } };
  assert.deepEqual((await whole("<muse>", hidden)).content, blocks.slice(1));
});

test("thoughts have a budget", async () => {
  const { content } = await whole("<ponder>", { thinking: { type: "enabled", budget_tokens: 2 } });
  assert.deepEqual(content.map((block) => block.thinking ?? block.text), ["On and on", "Done."]);
});

test("a call of a tool is a block with its input, and its result goes on from it", async () => {
  for (const ask of [whole, streamed]) {
    const message = await ask("<call>", { tools });
    assert.equal(message.stop_reason, "tool_use");
    const [text, call] = message.content;
    assert.deepEqual(text, { type: "text", text: "I look." });
    assert.equal(call.type, "tool_use");
    assert.equal(call.name, "look");
    assert.deepEqual(call.input, { at: "sea" });
    const messages = [
      { role: "user", content: "<call>" },
      { role: "assistant", content: message.content },
      { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "<sea>" }] },
    ];
    assert.deepEqual((await ask("", { tools, messages })).content, [{ type: "text", text: "The sea. The end." }]);
  }
});

test("an answer has the form that was asked for", async () => {
  const format = { type: "json_schema", schema: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false } };
  const message = await whole("<form>", { output_config: { format } });
  assert.deepEqual(JSON.parse(message.content[0].text), { a: true });
});

test("usage says what of a prompt was found in the cache", async () => {
  const ask = async (system) =>
    (await clients.scribe.messages.create({ model: await modelOf("scribe"), max_tokens: 1, system, messages: [{ role: "user", content: "Go on." }] })).usage;
  const text = `${story}${story}In the usage test.`;
  const cold = await ask(text);
  assert.equal(cold.cache_read_input_tokens, 0);
  assert.ok(cold.input_tokens > 32);
  const warm = await ask([{ type: "text", text, cache_control: { type: "ephemeral" } }]);
  assert.ok(warm.cache_read_input_tokens >= 32);
  assert.equal(warm.cache_creation_input_tokens, 0);
  assert.equal(warm.input_tokens + warm.cache_read_input_tokens, cold.input_tokens);
});

test("what an agent writes for its bills does not keep prompts apart", async () => {
  const ask = async (hash) =>
    (await clients.scribe.messages.create({
      model: await modelOf("scribe"), max_tokens: 1, messages: [{ role: "user", content: "Go on." }],
      system: [{ type: "text", text: `x-anthropic-billing-header: cc_version=2.1; cch=${hash};` }, { type: "text", text: `For the bills. ${story}` }],
    })).usage;
  const first = await ask("eb6c6");
  const second = await ask("0a1b2");
  assert.ok(first.input_tokens > 16);
  assert.ok(second.cache_read_input_tokens >= 16);
  assert.equal(second.input_tokens + second.cache_read_input_tokens, first.input_tokens + first.cache_read_input_tokens);
});

test("tokens are counted without an answer", async () => {
  const model = await modelOf("scribe");
  const messages = [{ role: "user", content: story }];
  const { input_tokens } = await clients.scribe.messages.countTokens({ model, messages });
  const { usage } = await clients.scribe.messages.create({ model, messages, max_tokens: 1 });
  assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test("models are listed as its client reads them", async () => {
  const models = [];
  for await (const each of clients.scripted.models.list()) models.push(each);
  assert.equal(models.length, 1);
  const [{ id, type, created_at }] = models;
  assert.deepEqual({ id, type }, { id: await modelOf("scripted"), type: "model" });
  assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 3_600_000);
  assert.equal((await clients.scripted.models.retrieve(id)).display_name, id);
});

test("a receipt comes with whole answers and streams", async () => {
  const message = await whole("<sea>", { cache_receipt: true });
  assert.equal(message.cache_receipt.prompt_tokens, message.usage.input_tokens + message.usage.cache_read_input_tokens);
});

test("an error has the client's own class, and the request's id", async () => {
  const message = { role: "user", content: "hi" };
  const model = await modelOf("scripted");
  await assert.rejects(clients.scripted.messages.create({ model, messages: [message] }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.error.type, "error");
    assert.deepEqual(error.error.error, { type: "invalid_request_error", message: "max_tokens: missing" });
    assert.equal(error.requestID, error.error.request_id);
    return true;
  });
  await assert.rejects(clients.scripted.messages.create({ model: "no-such-model", max_tokens: 1, messages: [message] }), Anthropic.NotFoundError);
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
  await assert.rejects(clients.scripted.messages.create({ model, max_tokens: 1, messages: [{ role: "user", content: [image] }] }), /messages\[0\]\.content\[0\]\.type/);
});

test("what HTTP itself refuses is told in the same shape", async () => {
  const sent = request(`${servers.scripted.url}/v1/messages`, { method: "POST", headers: { "content-length": 1e12 } });
  sent.flushHeaders();
  const [answer] = await once(sent, "response");
  const body = await jsonOf(answer);
  sent.destroy();
  assert.equal(answer.statusCode, 413);
  assert.deepEqual([body.type, body.error.type], ["error", "request_too_large"]);
  assert.equal(body.request_id, answer.headers["request-id"]);
});

test("a count has the request's id, too", async () => {
  const messages = [{ role: "user", content: "hi" }];
  const counted = await clients.scripted.messages.countTokens({ model: await modelOf("scripted"), messages });
  assert.match(counted._request_id, /^req-/);
});

test("a key may come as its clients send it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "stemma-message-keys-"));
  writeFileSync(join(folder, "keys"), `alice ${createHash("sha256").update("alice-key").digest("hex")}`);
  const server = await serve("--api-keys", join(folder, "keys"));
  try {
    const fields = { max_tokens: 1, messages: [{ role: "user", content: "hi" }] };
    const status = async (headers) => (await json(server.url, "/v1/messages", fields, headers)).status;
    assert.equal(await status({ "x-api-key": "alice-key" }), 200);
    assert.equal(await status({ authorization: "Bearer alice-key" }), 200);
    assert.equal(await status({ "x-api-key": "another" }), 401);
    assert.equal(await status({}), 401);
    await assert.rejects(clientOf(server.url, "another").messages.create({ model: "", ...fields }), Anthropic.AuthenticationError);
  } finally {
    assert.equal(await server.stop(), 0);
    rmSync(folder, { recursive: true });
  }
});
