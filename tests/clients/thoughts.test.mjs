// What a model thinks before it answers, apart from its answer, as OpenAI's client reads it.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, noBrowser } from "./browser.mjs";
import { clientOf } from "./served.mjs";
import { writeScriptedModel } from "./scripted_model.mjs";

const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
const scripts = {
  "<sea>": ["<think>\n", "I look", ".\nSo.", "\n</think>", "\n\n", "The", " sea."],
  "<think>": ["It", " is.", "</think>", "Behind."],
  "<endless>": ["<think> on", " and on "],
  "<plain>": ["No <think>", " at all."],
  "<tool>": ["<think>a <tool_call> or none?", "</think>\n", '<tool_call>{"name": "look", "arguments": {}}', "</tool_call>"],
  "<json>": ["<think>yes</think>", "\n\n{", '"a"', ": true}"],
  "<late>": ["\n", "<th", "ink>", "hm", "</think>\n\n\n", "yes"],
  "<space>": ["<think>perhaps</think>", "\n\n ", "on"],
  "<brief>": ['{"a": ', "false}"],
};
const directory = mkdtempSync(join(tmpdir(), "stemma-thoughts-"));
let server;
let client;
let model;

before(async () => {
  const template = "{% if false %}<tool_call></think>{% endif %}{{ messages[-1]['content'] }}";
  writeScriptedModel(directory, { scripts, template });
  ({ server, client, model } = await clientOf("--model", directory));
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(directory, { recursive: true });
});

const asked = (script, fields) => ({ model, temperature: 0, messages: [{ role: "user", content: script }], ...fields });

async function whole(script, fields = {}, by = client) {
  const { choices: [choice], usage } = await by.chat.completions.create(asked(script, fields));
  return { ...choice, usage, tokens: choice.logprobs?.content.map(({ token }) => token) };
}

// The pieces of a stream put together, as clients do.
async function streamed(script, fields = {}, by = client) {
  const stream = await by.chat.completions.create({ ...asked(script, fields), stream: true, stream_options: { include_usage: true } });
  const all = { message: { content: null }, finish_reason: null, usage: null, tokens: [] };
  for await (const { choices: [choice], usage } of stream) {
    all.usage = usage ?? all.usage;
    for (const field of ["content", "reasoning_content"]) {
      const piece = choice?.delta[field];
      if (piece) all.message[field] = (all.message[field] ?? "") + piece;
    }
    all.tokens.push(...(choice?.logprobs?.content ?? []).map(({ token }) => token));
    if (choice?.delta.tool_calls) (all.message.tool_calls ??= []).push(...choice.delta.tool_calls);
    all.finish_reason = choice?.finish_reason ?? all.finish_reason;
  }
  return all;
}

for (const [how, ask] of Object.entries({ whole, streamed })) {
  test(`${how}: thoughts come apart from the answer`, async () => {
    const { message, finish_reason, usage } = await ask("<sea>");
    assert.equal(message.reasoning_content, "I look.\nSo.");
    assert.equal(message.content, "The sea.");
    assert.equal(finish_reason, "stop");
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 4);
  });

  test(`${how}: they go on where the prompt opened them`, async () => {
    const { message, usage } = await ask("<think>");
    assert.equal(message.reasoning_content, "It is.");
    assert.equal(message.content, "Behind.");
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 3);
  });

  test(`${how}: thoughts that nobody ended are no answer`, async () => {
    const { message } = await ask("<endless>");
    assert.equal(message.reasoning_content, "on and on");
    assert.equal(message.content, null);
  });

  test(`${how}: an answer without thoughts stays as it is`, async () => {
    const { message, usage } = await ask("<plain>");
    assert.equal(message.reasoning_content, undefined);
    assert.equal(message.content, "No <think> at all.");
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
  });

  test(`${how}: a tool is called behind them, not in them`, async () => {
    const { message, finish_reason } = await ask("<tool>", { tools });
    assert.equal(message.reasoning_content, "a <tool_call> or none?");
    assert.deepEqual(message.tool_calls.map((call) => call.function.name), ["look"]);
    assert.equal(finish_reason, "tool_calls");
  });

  test(`${how}: they end where there are as many tokens of them as may be`, async () => {
    const { message, usage } = await ask("<sea>", { thinking_token_budget: 1 });
    assert.equal(message.reasoning_content, "I look");
    assert.equal(message.content, "Behind.");
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 3);
    const sglang = await ask("<sea>", { custom_params: { thinking_budget: 0 } });
    assert.equal(sglang.message.content, "Behind.");
    const together = await ask("<sea>", { thinking_token_budget: 1, separate_reasoning: false });
    assert.equal(together.message.content, "<think>\nI look</think>Behind.");
    const free = await ask("<sea>", { thinking_token_budget: -1 });
    assert.equal(free.message.content, "The sea.");
  });

  test(`${how}: who does not want them apart, or at all, says so`, async () => {
    const together = await ask("<sea>", { separate_reasoning: false });
    assert.equal(together.message.content, "<think>\nI look.\nSo.\n</think>\n\nThe sea.");
    const without = await ask("<sea>", { include_reasoning: false });
    assert.equal(without.message.reasoning_content, undefined);
    assert.equal(without.message.content, "The sea.");
  });

  test(`${how}: logprobs are those of all that is told`, async () => {
    const told = await ask("<late>", { logprobs: true });
    assert.deepEqual(told.tokens, ["\n", "<th", "ink>", "hm", "</think>\n\n\n", "yes"]);
    const without = await ask("<late>", { logprobs: true, include_reasoning: false });
    assert.equal(without.message.content, "yes");
    assert.deepEqual(without.tokens, ["yes"]);
  });

  test(`${how}: what has a form is the answer behind them`, async () => {
    const response_format = {
      type: "json_schema",
      json_schema: { name: "a", strict: true, schema: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false } },
    };
    const thinking = await ask("<json>", { response_format });
    assert.equal(thinking.message.reasoning_content, "yes");
    assert.deepEqual(JSON.parse(thinking.message.content), { a: true });
    const brief = await ask("<brief>", { response_format });
    assert.equal(brief.message.reasoning_content, undefined);
    assert.deepEqual(JSON.parse(brief.message.content), { a: false });
  });

  test(`${how}: a form that begins with a space has it behind them too`, async () => {
    const { message } = await ask("<space>", { guided_choice: [" on", " off"] });
    assert.deepEqual([message.reasoning_content, message.content], ["perhaps", " on"]);
  });
}

test("a response has an item of thoughts, which may be sent back", async () => {
  const request = { model, temperature: 0, input: "<sea>" };
  const response = await client.responses.create(request);
  assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
  assert.equal(response.output[0].content[0].text, "I look.\nSo.");
  assert.equal(response.output_text, "The sea.");
  assert.equal(response.usage.output_tokens_details.reasoning_tokens, 4);
  const stream = client.responses.stream(request);
  const types = [];
  for await (const event of stream) types.push(event.type);
  assert.ok(types.includes("response.reasoning_text.delta") && types.includes("response.reasoning_text.done"));
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.map((item) => item.content[0].text), ["I look.\nSo.", "The sea."]);
  const next = await client.responses.create({
    ...request,
    input: [{ role: "user", content: "<sea>" }, ...response.output, { role: "user", content: "<plain>" }],
  });
  assert.equal(next.output_text, "No <think> at all.");
});

test("what comes before thoughts is no text, nor are its logprobs the text's", async () => {
  const request = { model, temperature: 0, input: "<late>", include: ["message.output_text.logprobs"] };
  const whole = await client.responses.create(request);
  const streamed = await client.responses.stream(request).finalResponse();
  for (const { output } of [whole, streamed]) {
    assert.deepEqual(output.map((item) => [item.type, item.content[0].text]), [["reasoning", "hm"], ["message", "yes"]]);
    assert.deepEqual(output[1].content[0].logprobs.map(({ token }) => token), ["yes"]);
  }
});

// As Magistral's, which are special tokens.
test("thoughts may be between other marks", async () => {
  const place = mkdtempSync(join(tmpdir(), "stemma-thoughts-"));
  const template = "{% if false %}[THINK][/THINK]{% endif %}{{ messages[-1]['content'] }}";
  const script = ["[THINK]", "I look", ".</think>", "[/THINK]", "The", " sea."];
  writeScriptedModel(place, { scripts: { "<sea>": script }, template, special: ["[THINK]", "[/THINK]"] });
  const other = await clientOf("--model", place);
  try {
    for (const ask of [whole, streamed]) {
      const { message } = await ask("<sea>", { model: undefined }, other.client);
      assert.deepEqual([message.reasoning_content, message.content], ["I look.</think>", "The sea."]);
    }
    const { choices: [together] } = await other.client.chat.completions.create(asked("<sea>", { model: undefined, separate_reasoning: false }));
    assert.equal(together.message.content, script.join(""));
  } finally {
    assert.equal(await other.server.stop(), 0);
    rmSync(place, { recursive: true });
  }
});

test("the page shows thoughts above the answer", { skip: noBrowser }, async () => {
  const browser = await browse(server.url);
  const { page, faults } = await browser.open({ width: 1280, height: 800 });
  const ask = async (text, answers) => {
    await page.fill("#question", text);
    await page.press("#question", "Enter");
    await page.locator("#messages .receipt").nth(answers).waitFor();
  };
  await ask("<sea>", 0);
  assert.equal(await page.locator("#messages .theirs .thoughts .said").textContent(), "I look.\nSo.");
  assert.equal(await page.locator("#messages .theirs > .said").textContent(), "The sea.");
  await page.click("#messages summary");
  assert.ok(!(await page.locator("#messages .thoughts .said").isVisible()));
  await ask("<plain>", 1);
  assert.equal(await page.locator("#messages .thoughts").count(), 1);
  assert.deepEqual(faults, []);
  await browser.close();
});
