// /v1/responses as OpenAI's client reads it, whole and streamed, with the bundled model and one that calls functions.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { clientOf } from "./served.mjs";
import { writeScriptedModel } from "./scripted_model.mjs";

const tools = [{ type: "function", name: "look", description: "looks", strict: null, parameters: { type: "object", properties: {} } }];
const scripts = { "<between>": ["One ", '<tool_call>{"name": "look", "arguments": {}}</tool_call>', " two", " three"], "<call>": ["I look.", "<tool_call>", '{"name": "look", "arguments": {"at": "sea"}}', "</tool_call>"], "<said>": ["Blue", " sea."] };
const directory = mkdtempSync(join(tmpdir(), "stemma-responses-"));
let bundled;
let scripted;

before(async () => {
  writeScriptedModel(directory, { scripts, template: "{% if false %}<tool_call>{% endif %}{{ messages[-1]['content'] }}" });
  bundled = await clientOf();
  scripted = await clientOf("--model", directory);
});

after(async () => {
  for (const { server } of [bundled, scripted]) assert.equal(await server.stop(), 0);
  rmSync(directory, { recursive: true });
});

const ask = ({ client, model }, fields) => client.responses.create({ model, temperature: 0, max_output_tokens: 12, ...fields });

test("answers as a chat of the same messages does", async () => {
  const response = await ask(bundled, { instructions: "Be kind.", input: "Tell me of the sea." });
  const chat = await bundled.client.chat.completions.create({
    model: bundled.model, temperature: 0, max_tokens: 12,
    messages: [{ role: "system", content: "Be kind." }, { role: "user", content: "Tell me of the sea." }],
  });
  assert.equal(response.output_text, chat.choices[0].message.content);
  assert.equal(response.usage.input_tokens, chat.usage.prompt_tokens);
  assert.equal(response.usage.output_tokens, 12);
  assert.deepEqual([response.status, response.incomplete_details.reason], ["incomplete", "max_output_tokens"]);
});

test("goes on from what it said, and finds it in the cache", async () => {
  const input = [{ role: "user", content: "Tell me of the sea, and of those who go down to it in ships. ".repeat(4) }];
  const first = await ask(bundled, { input, max_output_tokens: 40 });
  const second = await ask(bundled, { input: [...input, ...first.output, { role: "user", content: "And then?" }] });
  assert.ok(second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 16);
});

test("streams what it answers whole", async () => {
  const whole = await ask(scripted, { input: "<said>" });
  const stream = scripted.client.responses.stream({ model: scripted.model, temperature: 0, max_output_tokens: 12, input: "<said>" });
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const final = await stream.finalResponse();
  assert.equal(final.status, "completed");
  assert.equal(final.output[0].content[0].text, "Blue sea.");
  assert.equal(text, "Blue sea.");
  assert.deepEqual(final.usage, whole.usage);
  assert.equal(whole.output_text, text);
});

test("a function that is called is answered in the next request", async () => {
  const stream = scripted.client.responses.stream({ model: scripted.model, temperature: 0, tools, input: "<call>" });
  const { output } = await stream.finalResponse();
  assert.deepEqual(output.map((item) => item.type), ["message", "function_call"]);
  const [message, call] = output;
  assert.equal(message.content[0].text, "I look.");
  assert.deepEqual([call.name, call.arguments], ["look", '{"at": "sea"}']);
  const whole = await ask(scripted, { tools, input: "<call>", max_output_tokens: null });
  assert.deepEqual(whole.output.map((item) => item.type), ["message", "function_call"]);
  const next = await ask(scripted, {
    tools,
    input: [{ role: "user", content: "<call>" }, message, call, { type: "function_call_output", call_id: call.call_id, output: "<said>" }],
  });
  assert.equal(next.output_text, "Blue sea.");
});

test("items come in their order, whole as streamed, also where an answer is cut off", async () => {
  for (const max_output_tokens of [null, 3]) {
    const request = { model: scripted.model, temperature: 0, tools, input: "<between>", max_output_tokens, include: ["message.output_text.logprobs"] };
    const whole = await scripted.client.responses.create(request);
    let last;
    for await (const event of await scripted.client.responses.create({ ...request, stream: true })) last = event;
    const items = ({ output }) => output.map(({ type, status, name, content }) => [type, status, name ?? content[0].text, content?.[0].logprobs.map(({ token }) => token)]);
    assert.deepEqual(items(whole), [
      ["message", "completed", "One", ["One "]],
      ["function_call", "completed", "look", undefined],
      max_output_tokens ? ["message", "incomplete", "two", [" two"]] : ["message", "completed", "two three", [" two", " three"]],
    ]);
    assert.deepEqual(items(last.response), items(whole));
  }
});

test("what nothing is stored for is refused with the field's path", async () => {
  for (const [fields, param] of [
    [{ input: "x", previous_response_id: "resp_1" }, "previous_response_id"],
    [{ input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] }, "input[0].content[0].type"],
    [{ input: "x", text: { format: { type: "grammar" } } }, "text.format.type"],
  ]) {
    await assert.rejects(ask(bundled, fields), (error) => error.status === 400 && error.param === param);
  }
});
