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

async function whole(script, fields = {}, by = client) {
  return (await by.chat.completions.create(asked(script, fields))).choices[0];
}

// The pieces of a stream put together, as clients do.
async function streamed(script, fields = {}, by = client) {
  const stream = await by.chat.completions.create({ ...asked(script, fields), stream: true });
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

// Of models that write arguments as texts between marks, as Qwen3-Coder and GLM-4.5 do.
const writers = {
  functions: {
    template: `{% for message in messages %}{{ message.content or "" }}{% for call in message.tool_calls or [] %}{{ "\\n" }}<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
{{ value | string }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}{% endfor %}`,
    call: [
      "<tool_call>\n<func", "tion=look>\n<parameter=at>\nthe <sea>\n\n</parameter>\n<parameter=", "depth>\n12\n</parameter>\n<parameter=far>\n",
      "True\n</parameter>\n</function>\n</tool", "_call>",
    ],
  },
  keys: {
    template: `{% for message in messages %}{{ message.content or "" }}{% for call in message.tool_calls or [] %}{{ "\\n" }}<tool_call>{{ call.function.name }}
{% for name, value in call.function.arguments.items() %}<arg_key>{{ name }}</arg_key>
<arg_value>{{ value | tojson if value is not string else value }}</arg_value>
{% endfor %}</tool_call>{% endfor %}{% endfor %}`,
    call: [
      "<tool_call>lo", "ok\n<arg_key>at</arg_key>\n<arg_value>the <sea>\n</arg_value>\n<arg_key>dep", "th</arg_key>\n<arg_value>12",
      "</arg_value>\n<arg_key>far</arg_key>\n<arg_value>true</arg_value>\n</tool", "_call>",
    ],
  },
};
const typed = {
  model: undefined,
  tools: [{ type: "function", function: { name: "look", parameters: {
    type: "object", properties: { at: { type: "string" }, depth: { type: "integer" }, far: { type: ["boolean", "null"] } },
  } } }],
};

// Serves a scripted model of its own to `use`, which is given its client and its URL.
async function withModel(model, use) {
  const place = mkdtempSync(join(tmpdir(), "stemma-tools-"));
  writeScriptedModel(place, model);
  const other = await serve("--model", place);
  try {
    await use(new OpenAI({ baseURL: `${other.url}/v1`, apiKey: "none", maxRetries: 0 }), other.url);
  } finally {
    assert.equal(await other.stop(), 0);
    rmSync(place, { recursive: true });
  }
}

for (const [name, { template, call }] of Object.entries(writers)) {
  test(`${name}: arguments are JSON of their parameters' types, and go back as the model writes them`, async () => {
    const scripts = { "<call>": ["I look.", "\n", ...call], "<broken>": ["Write <tool_call>", "\n{}", "\n</tool_call>"] };
    await withModel({ scripts, template }, async (by, url) => {
      for (const ask of [whole, streamed]) {
        const { message, finish_reason } = await ask("<call>", typed, by);
        assert.equal(message.content, "I look.");
        assert.deepEqual(called(message), [["look", '{"at": "the <sea>\\n", "depth": 12, "far": true}']]);
        assert.equal(finish_reason, "tool_calls");
        const broken = await ask("<broken>", typed, by);
        assert.equal(broken.message.content, scripts["<broken>"].join(""));
        assert.equal(broken.finish_reason, "stop");
      }
      const far = { type: "object", properties: { far: { type: "boolean" } }, required: ["far"], additionalProperties: false };
      const forced = await whole("<call>", {
        model: undefined, tool_choice: "required", parallel_tool_calls: false,
        tools: [{ type: "function", function: { name: "go", strict: true, parameters: far } }],
      }, by);
      assert.equal(called(forced.message)[0][0], "go");
      assert.equal(typeof JSON.parse(called(forced.message)[0][1]).far, "boolean");
      const { message } = await whole("<call>", typed, by);
      const { body } = await json(url, "/tokenize", { messages: [{ role: "user", content: "so: " }, message], add_generation_prompt: false });
      const { body: { prompt } } = await json(url, "/detokenize", { tokens: body.tokens });
      assert.equal(prompt, `so: I look.\n${call.join("")}`);
    });
  });
}

test("functions: a call whose first mark the model left out is one, what looks like one is text", async () => {
  const [mark, ...rest] = writers.functions.call;
  const scripts = {
    "<call>": ["I look.", "\n", mark.replace("<tool_call>\n", ""), ...rest],
    "<other>": ["As in ", "<function=", "stay>", "\n</function> so."],
  };
  await withModel({ scripts, template: writers.functions.template }, async (by) => {
    for (const ask of [whole, streamed]) {
      const { message, finish_reason } = await ask("<call>", typed, by);
      assert.equal(message.content, "I look.");
      assert.deepEqual(called(message), [["look", '{"at": "the <sea>\\n", "depth": 12, "far": true}']]);
      assert.equal(finish_reason, "tool_calls");
      const other = await ask("<other>", typed, by);
      assert.equal(other.message.content, scripts["<other>"].join(""));
      assert.equal(other.finish_reason, "stop");
    }
  });
});

// As Llama 3's: nothing but its own form tells a call from an answer that is JSON.
test("bare: an answer that begins as an object is held back only as long as it may be a call", async () => {
  const template = `{{ messages[-1]["content"] }}{% if false %}{"name": function name, "parameters": {% endif %}`;
  const scripts = {
    "<call>": ['{"na', 'me": "look", "para', 'meters": {"at": "', 'sea"}}'],
    "<json>": ['{"sea"', ': "wide",', ' "land": "', 'far"}'],
    "<named>": ['{"name"', ': "Bob", ', '"age"', ": 7}"],
  };
  await withModel({ scripts, template }, async (by) => {
    for (const ask of [whole, streamed]) {
      assert.deepEqual(called((await ask("<call>", { model: undefined }, by)).message), [["look", '{"at": "sea"}']]);
      for (const name of ["<json>", "<named>"]) {
        assert.equal((await ask(name, { model: undefined }, by)).message.content, scripts[name].join(""));
      }
    }
    const pieces = async (name) => {
      const said = [];
      for await (const { choices: [choice] } of await by.chat.completions.create({ ...asked(name, { model: undefined }), stream: true })) {
        if (choice.delta.content) said.push(choice.delta.content);
      }
      return said;
    };
    assert.deepEqual(await pieces("<json>"), scripts["<json>"]);
    assert.deepEqual(await pieces("<named>"), ['{"name": "Bob", "age"', ": 7}"]);
  });
});

// As Mistral's: the marks are special tokens, and identifiers of calls have nine letters and digits.
test("listed: calls behind special tokens are told, and go back to a template that refuses long identifiers", async () => {
  const template = `{% for message in messages %}{{ message.content or "" }}{% for call in message.tool_calls or [] %}
{%- if call.id is not string or call.id | length != 9 %}{{ raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{% endif %}
{{- "[TOOL_CALLS]" + call.function.name + "[ARGS]" + call.function.arguments | tojson }}{% endfor %}{% endfor %}`;
  const special = ["[TOOL_CALLS]", "[ARGS]"];
  const scripts = { "<call>": ["I look.", "[TOOL_CALLS]", "look", "[ARGS]", '{"at": ', '"sea"}'], "<text>": ["No call."] };
  const fields = { model: undefined };
  await withModel({ scripts, template, special }, async (by, url) => {
    for (const ask of [whole, streamed]) {
      const { message, finish_reason } = await ask("<call>", fields, by);
      assert.equal(message.content, "I look.");
      assert.deepEqual(called(message), [["look", '{"at": "sea"}']]);
      assert.equal(finish_reason, "tool_calls");
      assert.match(message.tool_calls[0].id, /^[a-z0-9]{9}$/);
    }
    const forced = await whole("<call>", { ...fields, tool_choice: "required", parallel_tool_calls: false }, by);
    assert.deepEqual(called(forced.message), [["look", "{}"]]);
    const { message } = await whole("<call>", fields, by);
    message.tool_calls[0].id = "call_of_another_server_1";
    const messages = [{ role: "user", content: "so: " }, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "!" }];
    const { body } = await json(url, "/tokenize", { messages, tools, add_generation_prompt: false });
    const { body: { prompt } } = await json(url, "/detokenize", { tokens: body.tokens });
    assert.equal(prompt, 'so: I look.[TOOL_CALLS]look[ARGS]{"at": "sea"}!');
  });
});
