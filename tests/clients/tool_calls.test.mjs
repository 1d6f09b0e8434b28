// Calls of tools as OpenAI's client reads them, from a model that writes them as its chat template shows.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { json, serve } from "./served.mjs";
import { writeScriptedModel } from "./scripted_model.mjs";

const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
const scripts = {
  "<two>": [
    "I look", " for you.", "\n<tool", '_call>\n{"name": "look", "arg', 'uments": {"at": "sea", "depth": 1.0}}\n</tool_call>', "\n",
    '<tool_call>{"name": "go", "arguments": {}}</tool_call>',
  ],
  "<one>": ['<tool_call>{"name":"look","arguments":{"at":"land"}}', "</tool_call>"],
  "<cut>": ["See: <tool_call>", '{"name": "look", ', '"arguments": {"at"'],
  "<text>": ["No call", " here. "],
};
const directory = mkdtempSync(join(tmpdir(), "stemma-tools-"));

let server;
let client;
let model;

before(async () => {
  const template = "{% if false %}<tool_call>{% endif %}{{ messages[-1]['content'] }}";
  writeScriptedModel(directory, { scripts, template });
  server = await serve("--model", directory);
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  model = (await client.models.list()).data[0].id;
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(directory, { recursive: true });
});

const asked = (script, fields) => ({ model, temperature: 0, tools, messages: [{ role: "user", content: script }], ...fields });

async function whole(script, fields = {}) {
  return (await client.chat.completions.create(asked(script, fields))).choices[0];
}

// The pieces of a stream put together, as clients do.
async function streamed(script, fields = {}) {
  const stream = await client.chat.completions.create({ ...asked(script, fields), stream: true });
  const message = { content: "", tool_calls: [] };
  let finish_reason = null;
  for await (const { choices: [choice] } of stream) {
    message.content += choice.delta.content ?? "";
    for (const { index, id, function: called } of choice.delta.tool_calls ?? []) {
      message.tool_calls[index] ??= { id, function: { name: called.name, arguments: "" } };
      message.tool_calls[index].function.arguments += called.arguments;
    }
    finish_reason = choice.finish_reason ?? finish_reason;
  }
  return { message, finish_reason };
}

const called = (message) => (message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);

for (const [how, ask] of Object.entries({ whole, streamed })) {
  test(`${how}: calls come beside the text, with the bytes of their arguments`, async () => {
    const { message, finish_reason } = await ask("<two>");
    assert.equal(message.content, "I look for you.");
    assert.deepEqual(called(message), [["look", '{"at": "sea", "depth": 1.0}'], ["go", "{}"]]);
    assert.equal(finish_reason, "tool_calls");
    assert.equal(new Set(message.tool_calls.map((call) => call.id)).size, 2);
  });

  test(`${how}: without parallel calls there is one`, async () => {
    const { message, finish_reason } = await ask("<two>", { parallel_tool_calls: false });
    assert.deepEqual(called(message), [["look", '{"at": "sea", "depth": 1.0}']]);
    assert.equal(finish_reason, "tool_calls");
  });

  test(`${how}: a call that is cut off stays text`, async () => {
    const { message, finish_reason } = await ask("<cut>");
    assert.equal(message.content, 'See: <tool_call>{"name": "look", "arguments": {"at"');
    assert.deepEqual(called(message), []);
    assert.equal(finish_reason, "stop");
  });

  test(`${how}: text is text`, async () => {
    const { message, finish_reason } = await ask("<text>");
    assert.equal(message.content, "No call here. ");
    assert.equal(finish_reason, "stop");
  });

  test(`${how}: without tools nothing is read as a call`, async () => {
    for (const fields of [{ tools: undefined }, { tool_choice: "none" }]) {
      const { message, finish_reason } = await ask("<one>", fields);
      assert.equal(message.content, scripts["<one>"].join(""));
      assert.deepEqual(called(message), []);
      assert.equal(finish_reason, "stop");
    }
  });
}

test("a message that only calls has no content", async () => {
  const { message } = await whole("<one>");
  assert.equal(message.content, null);
  assert.deepEqual(called(message), [["look", '{"at":"land"}']]);
});

test("an answer's calls go back to the model", async () => {
  const first = await whole("<one>");
  const body = {
    model, tools, temperature: 0,
    messages: [
      { role: "user", content: "<one>" }, first.message,
      { role: "tool", tool_call_id: first.message.tool_calls[0].id, content: "<text>" },
    ],
  };
  const answer = await json(server.url, "/v1/chat/completions", body);
  assert.equal(answer.status, 200);
  assert.equal(answer.body.choices[0].message.content, "No call here. ");
});
