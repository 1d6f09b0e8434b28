// Answers that have a form, judged by a validator of JSON Schema that others wrote: OpenAI's response_format and tool_choice,
// and the fields that vLLM and SGLang have for it.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Ajv from "ajv/dist/2020.js";
import EarlierAjv from "ajv"; // draft-07
import OpenAI from "openai";
import { clientOf } from "./served.mjs";
import { writeScriptedModel } from "./scripted_model.mjs";

const word = { type: "string", minLength: 1, maxLength: 12 };
const strict = (properties, more = {}) =>
  ({ type: "object", properties, required: Object.keys(properties), additionalProperties: false, ...more });
const schemas = {
  values: strict({ name: word, age: { type: "integer", minimum: 0, maximum: 130 }, tall: { type: "boolean" }, none: { type: "null" } }),
  choices: strict({ colour: { enum: ["red", "green", "dark blue"] }, size: { enum: [1, 2.5, null] }, kind: { const: "thing" } }),
  lists: strict({ tags: { type: "array", items: word, minItems: 1, maxItems: 3 }, pair: { prefixItems: [{ type: "boolean" }, word], items: false, minItems: 2 } }),
  optional: { type: "object", properties: { a: word, b: { type: "boolean" }, c: { type: "null" } }, required: ["b"], additionalProperties: false },
  others: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: { type: "boolean" } },
  either: strict({ it: { anyOf: [{ type: "boolean" }, word, strict({ deep: { type: "boolean" } })] } }),
  tree: strict({ root: { $ref: "#/$defs/node" } }, {
    $defs: { node: strict({ label: { enum: ["leaf", "fork"] }, below: { type: "array", items: { $ref: "#/$defs/node" }, maxItems: 1 } }) },
  }),
  patterns: strict({ code: { type: "string", pattern: "^[A-Z]{2}-\\d{1,4}$" }, when: { type: "string", pattern: "^(19|20)\\d\\d$" } }),
  numbers: strict({
    share: { type: "number", minimum: 0, exclusiveMaximum: 1 }, degrees: { type: "number", exclusiveMinimum: -40.5, maximum: 55.25 },
    third: { type: "number", minimum: 0.3333333333333333, maximum: 0.34 },
  }),
  negative: { type: "integer", minimum: -1200, exclusiveMaximum: -7 },
  several: {
    $defs: { named: { type: "object", properties: { name: word }, required: ["name"] }, tagged: { type: "object", properties: { tag: { enum: ["a", "b"] } } } },
    allOf: [{ $ref: "#/$defs/named" }, { $ref: "#/$defs/tagged" }, { properties: { name: { maxLength: 5 }, age: { type: "integer", minimum: 3, maximum: 99 } } }],
    required: ["age"],
  },
  beside: {
    type: "object", properties: { a: word, b: { type: "boolean" } }, additionalProperties: false,
    anyOf: [{ required: ["a"] }, { required: ["b"], properties: { b: { const: true } } }],
  },
  places: strict({
    row: { allOf: [{ type: "array", prefixItems: [{ type: ["integer", "string"] }, {}], minItems: 2, maxItems: 3 }, { items: word }] },
    typed: { type: "integer", enum: [1, "a", 20, null] },
  }),
  leftOut: {
    $defs: { "Kind<A>": strict({ kind: { const: "a" }, a: { type: "boolean" } }), "Kind<B>": strict({ kind: { const: "b" }, b: { type: "boolean" } }) },
    type: "object", required: ["some", "of"], additionalProperties: false, properties: {
      none: false, some: { anyOf: [false, { type: "integer", minimum: 10, anyOf: [{ maximum: 5 }, { minimum: 20, maximum: 99 }] }] },
      of: { anyOf: [{ $ref: "#/$defs/Kind%3CA%3E" }, { $ref: "#/$defs/Kind%3CB%3E" }], properties: { kind: { const: "b" } } },
    },
  },
  far: strict({ below: { type: "number", minimum: 9999999999, exclusiveMaximum: 10000000000 }, above: { type: "integer", exclusiveMinimum: 9007199254740992, maximum: 9007199254740999 } }),
  excluded: strict({
    some: { type: ["boolean", "null"], not: { const: true } }, left: { enum: ["a", "b", 3], not: { type: "number" } },
    one: { anyOf: [{ not: {} }, { type: "integer", minimum: 1, maximum: 99 }] },
  }),
  named: { type: "object", propertyNames: { enum: ["a", "b", "c"] }, additionalProperties: { type: "boolean" }, required: ["b"] },
  formats: strict({ at: { type: "string", format: "ipv6" }, lasts: { type: "string", format: "duration" } }),
  multiples: strict({ dozens: { type: "integer", multipleOf: 12, minimum: 30, maximum: 400 }, half: { type: "number", multipleOf: 0.5, minimum: -3, maximum: 40 } }),
};
const directory = mkdtempSync(join(tmpdir(), "stemma-structured-"));
let bundled;
let calling;

before(async () => {
  const template = "{% if false %}<tool_call>{% endif %}{{ messages[-1]['content'] }}";
  const scripts = { "<text>": ["No call here."], "<call>": ["I look. ", "<tool_call>", '\n{"name": "look", "arguments": ', '{"at": "the moon"}}\n', "</tool_call>"] };
  writeScriptedModel(directory, { scripts, template });
  bundled = await clientOf();
  calling = await clientOf("--model", directory);
});

after(async () => {
  for (const { server } of [bundled, calling]) assert.equal(await server.stop(), 0);
  rmSync(directory, { recursive: true });
});

const formOf = (schema, more = { strict: true }) => ({ type: "json_schema", json_schema: { name: "answer", schema, ...more } });

async function answer({ client, model }, fields, content = "Tell me of the sea.") {
  const completion = await client.chat.completions.create({ model, messages: [{ role: "user", content }], max_tokens: 400, ...fields });
  return completion.choices[0];
}

function check(schema, text) {
  const validate = new Ajv({ strict: false }).compile(schema);
  assert.ok(validate(JSON.parse(text)), `${text}: ${JSON.stringify(validate.errors)}`);
}

for (const [name, schema] of Object.entries(schemas)) {
  test(`an answer keeps to a schema: ${name}`, async () => {
    const texts = new Set();
    for (let seed = 0; seed < 12; ++seed) {
      const choice = await answer(bundled, { seed, temperature: 1.5, response_format: formOf(schema) });
      if (name === "others" && choice.finish_reason === "length") continue; // there may be any number of them
      assert.equal(choice.finish_reason, "stop");
      check(schema, choice.message.content);
      texts.add(choice.message.content);
    }
    assert.ok(texts.size > 1, "they are drawn");
  });
}

test("an answer keeps to places in a list as earlier drafts say them, strict or not", async () => {
  const at = { type: "array", minItems: 2, maxItems: 2, items: [{ type: "number" }, { type: "number" }] };
  const more = { type: "array", minItems: 1, maxItems: 3, items: [word], additionalItems: { type: "boolean" } };
  for (const schema of [{ type: "object", properties: { at } }, strict({ at, more })]) {
    const validate = new EarlierAjv({ strict: false }).compile(schema);
    for (const isStrict of [true, false]) {
      for (let seed = 0; seed < 6; ++seed) {
        const { message, finish_reason } = await answer(bundled, { seed, temperature: 1.5, response_format: formOf(schema, { strict: isStrict }) });
        assert.equal(finish_reason, "stop");
        assert.ok(validate(JSON.parse(message.content)), `${message.content}: ${JSON.stringify(validate.errors)}`);
      }
    }
  }
});

test("an answer is the same whole, streamed, and once its prompt is cached", async () => {
  const fields = { seed: 5, temperature: 1, response_format: formOf(schemas.values) };
  const content = "Say it of the ship that went down to the sea. ".repeat(20);
  const first = await answer(bundled, fields, content);
  assert.deepEqual((await answer(bundled, fields, content)).message, first.message);
  const stream = await bundled.client.chat.completions.create(
    { model: bundled.model, messages: [{ role: "user", content }], max_tokens: 400, stream: true, ...fields });
  let text = "";
  let end;
  for await (const { choices: [{ delta, finish_reason }] } of stream) {
    text += delta.content ?? "";
    end = finish_reason ?? end;
  }
  assert.deepEqual([text, end], [first.message.content, "stop"]);
});

test("several answers go their own ways", async () => {
  const completion = await bundled.client.chat.completions.create({
    model: bundled.model, messages: [{ role: "user", content: "Speak." }], n: 4, temperature: 2, seed: 1, max_tokens: 200,
    response_format: formOf(schemas.lists),
  });
  for (const choice of completion.choices) check(schemas.lists, choice.message.content);
  assert.ok(new Set(completion.choices.map((choice) => choice.message.content)).size > 1);
});

test("json_object is any object", async () => {
  const { message, finish_reason } = await answer(bundled, { temperature: 0, response_format: { type: "json_object" } });
  if (finish_reason === "stop") check({ type: "object" }, message.content);
  assert.match(message.content, /^\{/);
});

test("an answer that is cut off says so", async () => {
  const { finish_reason } = await answer(bundled, { max_tokens: 3, response_format: formOf(schemas.values) });
  assert.equal(finish_reason, "length");
});

const tagOf = (format) => ({ type: "structural_tag", format });
const saying = (value) => ({ type: "const_string", value });

test("the fields of vLLM and SGLang", async () => {
  const complete = (fields) =>
    bundled.client.completions.create({ model: bundled.model, prompt: "It is", max_tokens: 60, temperature: 1, seed: 2, ...fields });
  const texts = ["yes", "no", "perhaps"];
  const flag = { type: "boolean" };
  for (const [fields, allowed] of [
    [{ guided_choice: texts }, texts], [{ structured_outputs: { choice: texts } }, texts],
    [{ guided_regex: "(yes|no)" }, texts], [{ regex: "yes|no" }, texts], [{ structured_outputs: { regex: "n[o]" } }, texts],
    [{ guided_json: flag }, ["true", "false"]], [{ guided_json: JSON.stringify(flag) }, ["true", "false"]],
    [{ guided_grammar: "root ::= word\nword ::= \"yes\" | \"no\"" }, texts], [{ ebnf: 'root ::= "y" "es"' }, texts],
    [{ structured_outputs: { grammar: 'root ::= [n] "o"' } }, texts],
    [{ structured_outputs: { structural_tag: JSON.stringify(tagOf(saying("yes"))) } }, texts], [{ structural_tag: tagOf(saying("no")) }, texts],
    [{ structured_outputs: { json: flag } }, ["true", "false"]], [{ json_schema: JSON.stringify(flag) }, ["true", "false"]],
  ]) {
    const [choice] = (await complete(fields)).choices;
    assert.ok(allowed.includes(choice.text), `${JSON.stringify(fields)}: ${choice.text}`);
    assert.equal(choice.finish_reason, "stop");
  }
});

test("JSON has no white space where a client wants none", async () => {
  const bare = { disable_any_whitespace: true };
  for (const fields of [{ structured_outputs: { json: schemas.lists, ...bare } }, { response_format: formOf(schemas.lists), structured_outputs: bare }]) {
    for (let seed = 0; seed < 6; ++seed) {
      const { message: { content }, finish_reason } = await answer(bundled, { seed, temperature: 1.5, ...fields });
      assert.equal(finish_reason, "stop");
      check(schemas.lists, content);
      assert.equal(content.replace(/"(\\.|[^"\\])*"/g, '""').match(/\s/), null, content);
    }
  }
  await assert.rejects(answer(bundled, { guided_json: schemas.lists, guided_whitespace_pattern: " ?" }), /guided_whitespace_pattern/);
});

test("a structural tag says where a form begins", async () => {
  const tags = [{ begin: "<thing>", content: { type: "json_schema", json_schema: schemas.choices }, end: "</thing>" }];
  const formats = {
    now: tagOf({ type: "sequence", elements: [saying("It is "), { type: "triggered_tags", triggers: ["<"], tags, at_least_one: true, stop_after_first: true }] }),
    of_old: { type: "structural_tag", structures: [{ begin: "It is <thing>", schema: schemas.choices, end: "</thing>" }], triggers: ["I"] },
  };
  for (const response_format of Object.values(formats)) {
    for (let seed = 0; seed < 4; ++seed) {
      const { message: { content } } = await answer(bundled, { seed, temperature: 1, response_format, logit_bias: { [await tokenOf("I")]: 100 } });
      check(schemas.choices, content.match(/^It is <thing>(.*?)<\/thing>/s)[1]);
    }
  }
});

async function tokenOf(text) {
  const { tokens } = await bundled.client.post("/../tokenize", { body: { model: bundled.model, prompt: text, add_special_tokens: false } });
  return tokens[0];
}

const grammarOfJson = String.raw`
root   ::= object
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (string ": " value (", " string ": " value){0,3})? "}"
array  ::= "[" (value (", " value){0,3})? "]"
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" ["\\bfnrt]){0,20} "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,9}) ("." [0-9]{1,5})?`;

test("texts of a grammar of JSON are JSON", async () => {
  const texts = new Set();
  for (let seed = 0; seed < 12; ++seed) {
    const { message, finish_reason } = await answer(bundled, { seed, temperature: 1.5, ebnf: grammarOfJson });
    if (finish_reason === "length") continue; // objects within objects
    texts.add(JSON.stringify(JSON.parse(message.content)));
  }
  assert.ok(texts.size > 1, "they are drawn");
  await assert.rejects(answer(bundled, { ebnf: "root ::= what" }), /ebnf: line 1: no rule is what/);
});

test("a stop string may end an answer where its form does", async () => {
  const { choices: [choice], usage } = await bundled.client.completions.create({
    model: bundled.model, prompt: "It is", max_tokens: 20, guided_choice: ["over and out"], stop: ["out"],
  });
  assert.deepEqual([choice.text, choice.finish_reason], ["over and ", "stop"]);
  assert.ok(usage.completion_tokens > 1 && usage.prompt_tokens > 1, JSON.stringify(usage));
});

test("responses have forms too", async () => {
  const response = await bundled.client.responses.create({
    model: bundled.model, input: "Speak.", max_output_tokens: 200,
    text: { format: { type: "json_schema", name: "answer", strict: true, schema: schemas.choices } },
  });
  assert.equal(response.status, "completed");
  check(schemas.choices, response.output_text);
  assert.deepEqual(response.text.format.schema, schemas.choices);
});

const functions = [
  { name: "look", parameters: strict({ at: { enum: ["sea", "land"] }, depth: { type: "integer", minimum: 1, maximum: 9 } }), strict: true },
  { name: "go" },
];
const tools = functions.map((each) => ({ type: "function", function: each }));

test("a call is forced, of any tool or of one", async () => {
  const any = await answer(calling, { tools, tool_choice: "required", parallel_tool_calls: false, temperature: 0 });
  assert.equal(any.finish_reason, "tool_calls");
  assert.equal(any.message.tool_calls.length, 1);
  for (let seed = 0; seed < 5; ++seed) {
    const choice = await answer(calling, {
      tools, tool_choice: { type: "function", function: { name: "look" } }, parallel_tool_calls: false, temperature: 1, seed,
    });
    const [{ function: called }] = choice.message.tool_calls;
    assert.equal(called.name, "look");
    check(functions[0].parameters, called.arguments);
  }
});

test("a call of a function without parameters has none", async () => {
  const choice = await answer(calling, { tools, tool_choice: { type: "function", function: { name: "go" } }, parallel_tool_calls: false });
  assert.deepEqual(choice.message.tool_calls.map((call) => call.function), [{ name: "go", arguments: "{}" }]);
});

test("a response's call is forced", async () => {
  const response = await calling.client.responses.create({
    model: calling.model, input: "<text>", parallel_tool_calls: false, max_output_tokens: 300,
    tools: functions.map((each) => ({ type: "function", ...each })), tool_choice: { type: "function", name: "look" },
  });
  const [call] = response.output;
  assert.deepEqual([call.type, call.name], ["function_call", "look"]);
  check(functions[0].parameters, call.arguments);
});

test("where a strict function is called its arguments keep to the schema", async () => {
  for (const fields of [{}, { parallel_tool_calls: false }]) {
    const { message } = await answer(calling, { tools, temperature: 0, ...fields }, "<call>");
    assert.equal(message.content, "I look.");
    for (const { function: called } of message.tool_calls) {
      const { parameters } = functions.find(({ name }) => name === called.name);
      if (parameters) check(parameters, called.arguments);
    }
  }
  assert.equal((await answer(calling, { tools, temperature: 0 }, "<text>")).message.content, "No call here.");
  const loose = tools.map(({ type, function: { strict: _, ...rest } }) => ({ type, function: rest }));
  const { message } = await answer(calling, { tools: loose, temperature: 0 }, "<call>");
  assert.equal(message.tool_calls[0].function.arguments, '{"at": "the moon"}');
});

test("an answer that may call has its form, or is calls", async () => {
  const names = new Set();
  for (let seed = 0; seed < 8; ++seed) {
    const { message } = await answer(calling, { tools, response_format: formOf({ type: "boolean" }), temperature: 2, seed, parallel_tool_calls: false });
    if (message.tool_calls === undefined) check({ type: "boolean" }, message.content);
    names.add(message.tool_calls?.[0].function.name ?? message.content);
  }
  assert.ok(names.size > 1, [...names].join());
});

test("what cannot be kept to is refused by its place", async () => {
  const cases = [
    [{ response_format: formOf(strict({ a: { type: "array", uniqueItems: true } })) }, "response_format.json_schema.schema"],
    [{ response_format: formOf({ type: "what" }) }, "response_format.json_schema.schema"],
    [{ response_format: { type: "json_schema" } }, "response_format.json_schema"],
    [{ response_format: { type: "xml" } }, "response_format.type"],
    [{ response_format: { type: "json_object" }, guided_choice: ["a"] }, "guided_choice"],
    [{ tool_choice: "required" }, "tool_choice"],
    [{ tools, tool_choice: { type: "function", function: { name: "fly" } } }, "tool_choice.function.name"],
    [{ tools, tool_choice: "required" }, "tool_choice"], // the bundled model has no way to call
  ];
  for (const [fields, param] of cases) {
    const error = await answer(bundled, fields).then(() => null, (thrown) => thrown);
    assert.ok(error instanceof OpenAI.BadRequestError, JSON.stringify(fields));
    assert.equal(error.param, param);
  }
});

test("a schema that is not strict is kept to as far as can be", async () => {
  const schema = strict({ a: { type: "string", pattern: "^x(?=y)", maxLength: 5 } });
  const { message } = await answer(bundled, { response_format: formOf(schema, {}) });
  assert.deepEqual(Object.keys(JSON.parse(message.content)), ["a"]);
});
