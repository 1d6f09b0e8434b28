// OpenAI's own client, unmodified, against `stemma serve` with the bundled model: chats, streams, stop strings,
// logprobs, several answers, aborts, errors. What it reads is what other programs that speak to OpenAI read.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { json, metric, serve, until } from "./served.mjs";

const model = "scribe-3m";
const greedy = { model, temperature: 0 };
const about = (text) => [{ role: "user", content: text }];
// Long enough for several pages.
const story = "In the beginning the king sent his men over the hills to the sea, and they built a house there of stone. ".repeat(4);

let server;
let client;

before(async () => {
  server = await serve();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});

after(async () => assert.equal(await server.stop(), 0));

test("lists the model", async () => {
  const models = await client.models.list();
  assert.deepEqual(models.data.map((each) => each.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("answers a chat, and says what it cost", async () => {
  const answer = await client.chat.completions.create({ ...greedy, messages: about("Who built the house?"), max_tokens: 12 });
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.choices.length, 1);
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 12);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 12);
  assert.equal(answer.usage.prompt_tokens_details.cached_tokens, 0);
});

test("takes what it has seen from the cache, and answers the same", async () => {
  const ask = () => client.chat.completions.create({ ...greedy, messages: about(story), max_tokens: 16 }).withResponse();
  const first = await ask();
  const second = await ask();
  assert.equal(first.data.usage.prompt_tokens_details.cached_tokens, 0);
  const { prompt_tokens: prompt, prompt_tokens_details: details } = second.data.usage;
  assert.ok(details.cached_tokens >= prompt - 16, `${details.cached_tokens} of ${prompt} were cached`);
  assert.equal(second.data.choices[0].message.content, first.data.choices[0].message.content);
  const receipt = second.response.headers.get("x-stemma-cache");
  assert.match(receipt, new RegExp(`device=${details.cached_tokens}; host=0; disk=0; remote=0; computed=${prompt - details.cached_tokens}`));
});

test("streams the same text piece by piece, and usage at the end", async () => {
  const request = { ...greedy, messages: about("Tell me of the sea."), max_completion_tokens: 20 };
  const whole = await client.chat.completions.create(request);
  const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
  let text = "";
  let usage = null;
  const reasons = [];
  for await (const event of stream) {
    for (const choice of event.choices) {
      text += choice.delta.content ?? "";
      if (choice.finish_reason !== null) reasons.push(choice.finish_reason);
    }
    usage = event.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(reasons, ["length"]);
  assert.equal(usage.completion_tokens, 20);
});

test("a stream counts as it goes where that is asked for", async () => {
  const request = { ...greedy, messages: about("Tell me of the sea."), max_completion_tokens: 12, n: 2, stream: true };
  for (const options of [{ continuous_usage_stats: true }, { include_usage: true, continuous_usage_stats: true }]) {
    const counted = [[], []];
    let last = null;
    for await (const event of await client.chat.completions.create({ ...request, stream_options: options })) {
      assert.equal(event.usage.total_tokens, event.usage.prompt_tokens + event.usage.completion_tokens);
      for (const choice of event.choices) counted[choice.index].push(event.usage.completion_tokens);
      last = event;
    }
    for (const counts of counted) {
      assert.equal(counts[0], 0);
      assert.equal(counts.at(-1), 12);
      assert.deepEqual(counts, counts.toSorted((a, b) => a - b));
    }
    assert.equal(last.choices.length, options.include_usage ? 0 : 1);
    assert.equal(last.usage.completion_tokens, options.include_usage ? 24 : 12);
  }
});

test("the client's own stream reader puts the answer together", async () => {
  const runner = client.chat.completions.stream({ ...greedy, messages: about("Tell me of the sea."), max_tokens: 8 });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, "length");
  assert.ok(final.choices[0].message.content.length > 0);
});

test("ends at a stop string, without it", async () => {
  const request = { ...greedy, messages: about("Tell me of the sea."), max_tokens: 60 };
  const whole = (await client.chat.completions.create(request)).choices[0].message.content;
  const stop = whole.slice(12, 18);
  const cut = await client.chat.completions.create({ ...request, stop: [stop, "never said"] });
  assert.equal(cut.choices[0].finish_reason, "stop");
  assert.equal(cut.choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
  const stream = await client.chat.completions.create({ ...request, stop, stream: true });
  let text = "";
  for await (const event of stream) text += event.choices[0].delta.content ?? "";
  assert.equal(text, cut.choices[0].message.content);
});

test("gives logprobs of the tokens and of the likeliest in their place", async () => {
  const answer = await client.chat.completions.create({
    ...greedy, messages: about("Tell me of the sea."), max_tokens: 6, logprobs: true, top_logprobs: 3,
  });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.length, 6);
  assert.equal(content.map((each) => each.token).join("").trim(), answer.choices[0].message.content.trim());
  for (const each of content) {
    assert.equal(each.top_logprobs.length, 3);
    assert.equal(each.logprob, each.top_logprobs[0].logprob, "the likeliest was taken");
    assert.ok(each.top_logprobs[0].logprob >= each.top_logprobs[1].logprob);
    assert.deepEqual(Buffer.from(each.bytes).toString(), each.token);
  }
});

test("several answers share one prompt, and each is its own", async () => {
  const computed = await metric(server.url, "stemma_computed_prompt_tokens_total");
  const answer = await client.chat.completions.create({
    model, temperature: 1, seed: 5, n: 4, messages: about(`Four answers. ${story}`), max_tokens: 12,
  });
  assert.deepEqual(answer.choices.map((each) => each.index), [0, 1, 2, 3]);
  assert.equal(new Set(answer.choices.map((each) => each.message.content)).size, 4);
  assert.equal(answer.usage.completion_tokens, 48);
  const now = await metric(server.url, "stemma_computed_prompt_tokens_total");
  assert.ok(now - computed <= answer.usage.prompt_tokens, "the prompt was computed once");
});

test("the same seed gives the same answer", async () => {
  const request = { model, temperature: 1, seed: 77, messages: about("A riddle."), max_tokens: 16 };
  const texts = [];
  for (let i = 0; i < 2; ++i) texts.push((await client.chat.completions.create(request)).choices[0].message.content);
  assert.equal(texts[0], texts[1]);
});

test("reads what other servers' clients say of an answer's end and its begin", async () => {
  const request = { ...greedy, prompt: "Once upon", max_tokens: 8 };
  const whole = (await client.completions.create(request)).choices[0].text;
  const stop = whole.slice(3, 6);
  const shown = await client.completions.create({ ...request, stop, include_stop_str_in_output: true });
  assert.equal(shown.choices[0].text, whole.slice(0, whole.indexOf(stop) + stop.length));
  const late = await client.completions.create({ ...request, stop, min_tokens: 8 });
  assert.equal(late.choices[0].text, whole);
  const { body } = await json(server.url, "/tokenize", { prompt: "In the beginning" });
  const last = await client.completions.create({ ...request, prompt: body.tokens.slice(-2) });
  const cut = await client.completions.create({ ...request, prompt: body.tokens, truncate_prompt_tokens: 2 });
  assert.equal(cut.choices[0].text, last.choices[0].text);
  assert.equal(cut.usage.prompt_tokens, 2);
  await assert.rejects(client.completions.create({ ...request, stop_regex: "x" }), /stop_regex/);
});

test("goes on from the last message where it is told to", async () => {
  const messages = [...about("Tell me of the sea."), { role: "assistant", content: "The sea is" }];
  const { body } = await json(server.url, "/tokenize", { messages, continue_final_message: true });
  const text = await json(server.url, "/detokenize", { tokens: body.tokens });
  assert.match(text.body.prompt, /The sea is$/);
  const answer = await client.chat.completions.create({
    ...greedy, messages, max_tokens: 6, continue_final_message: true,
  });
  assert.equal(answer.usage.prompt_tokens, body.count);
  const same = await client.completions.create({ ...greedy, prompt: body.tokens, max_tokens: 6 });
  assert.equal(answer.choices[0].message.content, same.choices[0].text);
});

test("continues texts and tokens", async () => {
  const answer = await client.completions.create({ ...greedy, prompt: ["Once upon", "In the"], max_tokens: 5, logprobs: 2 });
  assert.equal(answer.choices.length, 2);
  assert.equal(answer.choices[1].logprobs.tokens.length, 5);
  const { body } = await json(server.url, "/tokenize", { prompt: "Once upon" });
  const same = await client.completions.create({ ...greedy, prompt: body.tokens, max_tokens: 5 });
  assert.equal(same.choices[0].text, answer.choices[0].text);
  const echo = await client.completions.create({ ...greedy, prompt: "Once upon", max_tokens: 5, echo: true });
  assert.equal(echo.choices[0].text, `Once upon${answer.choices[0].text}`);
  const back = await json(server.url, "/detokenize", { tokens: body.tokens });
  assert.match(back.body.prompt, /Once upon$/);
});

test("says how the tokens of a text are written, where it is asked", async () => {
  const prompt = "Once upon";
  const { body } = await json(server.url, "/tokenize", { prompt, return_token_strs: true });
  assert.equal(body.token_strs.length, body.count);
  assert.match(body.token_strs.join("").replaceAll(/[Ġ▁]/g, " "), /Once upon$/);
  const plain = await json(server.url, "/tokenize", { prompt });
  assert.deepEqual(Object.keys(plain.body), ["count", "max_model_len", "tokens"]);
  const wrong = await json(server.url, "/tokenize", { prompt, return_token_strs: "x" });
  assert.equal(wrong.status, 400);
});

test("says of each token of a prompt how likely it was, whatever is cached of it", async () => {
  const ask = (fields) => client.completions.create({ ...greedy, prompt: story, echo: true, logprobs: 2, ...fields });
  const cold = (await ask({ max_tokens: 0 }));
  const { tokens, token_logprobs: own, top_logprobs: top, text_offset: offsets } = cold.choices[0].logprobs;
  assert.equal(cold.choices[0].text, story);
  assert.equal(cold.usage.completion_tokens, 0);
  assert.equal(tokens.length, cold.usage.prompt_tokens);
  assert.deepEqual([own[0], top[0]], [null, null]);
  tokens.slice(1).forEach((token, i) => assert.equal(story.slice(offsets[i + 1]).startsWith(token), true));
  const warm = await ask({ max_tokens: 3 });
  assert.equal(warm.usage.prompt_tokens_details.cached_tokens, 0, "all of it is computed");
  assert.deepEqual(warm.choices[0].logprobs.token_logprobs.slice(0, own.length), own);
  // The same as an answer is told of the tokens that it goes on with.
  const { body } = await json(server.url, "/tokenize", { prompt: story });
  for (const at of [1, 17, body.count - 1]) {
    const asked = await client.completions.create({ ...greedy, prompt: body.tokens.slice(0, at), max_tokens: 1, logprobs: 2 });
    const likeliest = (entries) => Object.fromEntries(Object.entries(entries).sort(([, a], [, b]) => b - a).slice(0, 2));
    assert.deepEqual(likeliest(asked.choices[0].logprobs.top_logprobs[0]), likeliest(top[at]));
    assert.equal(top[at][tokens[at]], own[at], "the token itself is among them");
  }
});

test("an evaluation finds a text's tokens before the last one, also where that ends the answer", async () => {
  const { body } = await json(server.url, "/tokenize", { prompt: "Once upon a time" });
  const ask = (fields) => client.completions.create({ ...greedy, prompt: [body.tokens, body.tokens.slice(0, 3)], max_tokens: 1, echo: true, logprobs: 1, ...fields });
  const plain = await ask({});
  const ended = await ask({ stop_token_ids: Array.from({ length: 1024 }, (_, token) => token) });
  assert.ok(ended.choices.some((choice) => choice.finish_reason === "stop"));
  for (const [i, count] of [body.count, 3].entries()) {
    assert.equal(plain.choices[i].logprobs.tokens.length, count + 1);
    assert.deepEqual(ended.choices[i].logprobs, plain.choices[i].logprobs);
  }
});

test("of a prompt that is scored from a token on, what comes before that is found in the cache", async () => {
  const ask = (fields) => client.completions.create({ ...greedy, prompt: `${story} And it was so.`, echo: true, logprobs: 1, max_tokens: 0, ...fields });
  const whole = await ask({});
  const from = whole.usage.prompt_tokens - 4;
  const end = await ask({ logprob_start_len: from });
  assert.ok(end.usage.prompt_tokens_details.cached_tokens > from - 20);
  const { tokens, token_logprobs: own, top_logprobs: top } = end.choices[0].logprobs;
  assert.deepEqual(tokens, whole.choices[0].logprobs.tokens);
  assert.ok(own.slice(0, from).every((each) => each === null));
  assert.deepEqual(own.slice(from), whole.choices[0].logprobs.token_logprobs.slice(from));
  assert.deepEqual(top.slice(from), whole.choices[0].logprobs.top_logprobs.slice(from));
});

test("streams a prompt and its logprobs before the answer", async () => {
  const request = { ...greedy, prompt: "Once upon a time", echo: true, logprobs: 1, max_tokens: 4 };
  const whole = (await client.completions.create(request)).choices[0];
  const joined = { text: "", tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
  for await (const event of await client.completions.create({ ...request, stream: true })) {
    joined.text += event.choices[0].text;
    for (const [name, values] of Object.entries(event.choices[0].logprobs ?? {})) joined[name].push(...values);
  }
  assert.deepEqual(joined, { text: whole.text, ...whole.logprobs });
});

test("gives prompt_logprobs where vLLM does", async () => {
  const scored = (list, tokens) => {
    assert.equal(list.length, tokens);
    assert.equal(list[0], null);
    for (const entries of list.slice(1)) assert.ok(Object.values(entries).some((entry) => entry.rank === 1));
  };
  const chat = (await json(server.url, "/v1/chat/completions", { ...greedy, messages: about("Hi"), max_tokens: 1, n: 2, prompt_logprobs: 1 })).body;
  scored(chat.prompt_logprobs, chat.usage.prompt_tokens);
  assert.deepEqual(chat.choices.map((choice) => "prompt_logprobs" in choice), [false, false]);
  const text = (await json(server.url, "/v1/completions", { ...greedy, prompt: "Once upon a time", max_tokens: 1, n: 2, prompt_logprobs: 1 })).body;
  for (const choice of text.choices) scored(choice.prompt_logprobs, text.usage.prompt_tokens);
  assert.equal("prompt_logprobs" in text, false);
});

test("gives the tokens of prompts and answers where vLLM does", async () => {
  const tokensOf = async (fields) => (await json(server.url, "/tokenize", { model, ...fields })).body.tokens;
  const common = { ...greedy, max_tokens: 3, n: 2, return_token_ids: true };
  const messages = about("Who built the house?");
  const ofChat = await tokensOf({ messages });
  const chat = await client.chat.completions.create({ ...common, messages });
  assert.deepEqual(chat.prompt_token_ids, ofChat);
  assert.deepEqual(chat.choices.map((choice) => choice.token_ids.length), [3, 3]);
  const told = { 0: [], 1: [] };
  for await (const event of await client.chat.completions.create({ ...common, messages, stream: true })) {
    told[event.choices[0].index].push(event.prompt_token_ids);
  }
  for (const [first, ...others] of Object.values(told)) {
    assert.deepEqual(first, ofChat);
    assert.ok(others.length > 0 && others.every((each) => each === undefined));
  }
  const prompt = ["Once upon a time", "In the beginning"];
  const ofTexts = await Promise.all([0, 0, 1, 1].map((i) => tokensOf({ prompt: prompt[i] })));
  const text = await client.completions.create({ ...common, prompt });
  assert.deepEqual(text.choices.map((choice) => choice.prompt_token_ids), ofTexts);
  assert.equal("prompt_token_ids" in text, false);
  const streamed = [[], [], [], []];
  for await (const event of await client.completions.create({ ...common, prompt, stream: true })) {
    streamed[event.choices[0].index].push(event.choices[0].prompt_token_ids);
  }
  for (const [i, [first, ...others]] of streamed.entries()) {
    assert.deepEqual(first, ofTexts[i]);
    assert.ok(others.length > 0 && others.every((each) => each === undefined));
  }
  const cut = await client.completions.create({ ...common, n: 1, prompt: prompt[0], truncate_prompt_tokens: 2 });
  assert.deepEqual(cut.choices[0].prompt_token_ids, ofTexts[0].slice(-2));
});

test("logprobs of an echo and prompt_logprobs have as many of the likeliest tokens as each asks for", async () => {
  const { body } = await json(server.url, "/v1/completions", { ...greedy, prompt: "Once upon a time", echo: true, logprobs: 1, prompt_logprobs: 4, max_tokens: 2 });
  const { prompt_logprobs: scored, logprobs: { top_logprobs: echoed } } = body.choices[0];
  for (const entries of echoed.slice(1)) assert.ok(Object.keys(entries).length <= 2);
  for (const entries of scored.slice(1)) assert.ok(Object.keys(entries).length >= 4);
  const none = await json(server.url, "/v1/completions", { ...greedy, prompt: "Once upon a time", echo: true, logprobs: 2, prompt_logprobs: 0, max_tokens: 2 });
  for (const entries of none.body.choices[0].logprobs.top_logprobs.slice(1)) assert.ok(Object.keys(entries).length >= 2);
  for (const entries of none.body.choices[0].prompt_logprobs.slice(1)) assert.equal(Object.keys(entries).length, 1);
});

test("the head of a stream of several answers says what their prompt found", async () => {
  const request = { ...greedy, prompt: `${story} Several heads.`, n: 3, max_tokens: 2 };
  await json(server.url, "/v1/completions", request);
  const { response } = await client.completions.create({ ...request, stream: true }).withResponse();
  assert.match(response.headers.get("x-stemma-cache"), /device=[1-9]/);
});

test("a prompt is cut to what fits where nothing is to be generated, too", async () => {
  const context = (await json(server.url, "/v1/models")).body.data[0].max_model_len;
  const prompt = Array.from({ length: context + 10 }, (_, i) => 10 + (i % 50));
  const { status, body } = await json(server.url, "/v1/completions", { ...greedy, prompt, echo: true, max_tokens: 0, truncate_prompt_tokens: -1 });
  assert.equal(status, 200);
  assert.equal(body.usage.prompt_tokens, context - 1);
});

test("a prompt is warmed whatever an answer to it would have to be", async () => {
  assert.equal((await json(server.url, "/v1/cache/warm", { ...greedy, messages: about(story), min_tokens: 5, max_tokens: 9 })).status, 200);
});

test("a client that aborts frees its place at the next step", async () => {
  const cancelled = await metric(server.url, "stemma_cancelled_requests_total");
  const stream = await client.chat.completions.create({ ...greedy, messages: about("A very long story."), max_tokens: 8000, ignore_eos: true, stream: true });
  for await (const event of stream) {
    if (event.choices[0].delta.content) break; // the client closes the connection
  }
  stream.controller.abort();
  await until(async () => (await metric(server.url, "stemma_cancelled_requests_total")) === cancelled + 1);
  await until(async () => (await metric(server.url, "stemma_answers_in_flight")) === 0);
});

// Those that are not streamed say nothing before their end, and cost as much.
test("what an answer had is told and counted although its client went", async () => {
  const { body: { count } } = await json(server.url, "/tokenize", { messages: about("Whole and long.") });
  const answered = await metric(server.url, "stemma_answered_prompt_tokens_total");
  for (const stream of [true, false]) {
    const generated = await metric(server.url, "stemma_generated_tokens_total");
    const gone = new AbortController();
    const body = JSON.stringify({ ...greedy, messages: about("Whole and long."), max_tokens: 8000, ignore_eos: true, stream });
    const headers = { "x-request-id": `gone-${stream}` };
    const asked = fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers, body, signal: gone.signal });
    asked.catch(() => {});
    await until(async () => (await metric(server.url, "stemma_generated_tokens_total")) > generated + 1);
    gone.abort();
    await until(() => server.log().includes(`server.answer request_id=gone-${stream}`));
    const line = server.log().split("\n").find((each) => each.includes(`request_id=gone-${stream}`));
    assert.match(line, new RegExp(`status=499 outcome=cancelled us=\\d+ prompt_tokens=${count} `));
    assert.match(line, /computed_tokens=[1-9]\d* ttft_us=[1-9]/);
    await until(async () => (await metric(server.url, "stemma_answers_in_flight")) === 0);
  }
  assert.equal(await metric(server.url, "stemma_answered_prompt_tokens_total"), answered + 2 * count);
});

test("what the server cuts off at its end is not told as its client's leaving", async () => {
  const ending = await serve();
  const body = JSON.stringify({ messages: about("Whole and long."), max_tokens: 8000, ignore_eos: true });
  const asked = fetch(`${ending.url}/v1/chat/completions`, { method: "POST", body }).catch(() => "cut off");
  await until(async () => (await metric(ending.url, "stemma_generated_tokens_total")) > 1);
  const ended = ending.stop();
  ending.stop("SIGINT");
  assert.equal(await ended, 0);
  assert.equal(await asked, "cut off");
  assert.match(ending.log(), /server\.answer .* status=503 outcome=cut_off us=\d+ prompt_tokens=[1-9]/);
});

test("a prompt that is warmed or explained is a text or a chat", async () => {
  for (const path of ["/v1/cache/warm", "/v1/cache/explain"]) {
    const { status, body } = await json(server.url, path, { prompt: "Once", messages: about("Once") });
    assert.equal(status, 400, path);
    assert.equal(body.error.param, "prompt");
    assert.equal((await json(server.url, path, { prompt: null, messages: about("Once") })).status, 200);
    assert.equal((await json(server.url, path, { prompt: "Once", messages: null })).status, 200);
  }
});

test("wrong requests are refused with the field's path, before anything is computed", async () => {
  const cases = [
    [{ messages: [] }, "messages"],
    [{ messages: [{ role: "user" }] }, "messages[0].content"],
    [{ messages: [{ role: "nobody", content: "x" }] }, "messages[0].role"],
    [{ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] }, "messages[0].content[0].type"],
    [{ temperature: -1 }, "temperature"],
    [{ temperature: "hot" }, "temperature"],
    [{ top_p: 2 }, "top_p"],
    [{ n: 0 }, "n"],
    [{ max_tokens: 0 }, "max_tokens"],
    [{ max_tokens: -5 }, "max_tokens"],
    [{ logit_bias: { 99999: 1 } }, "logit_bias"],
    [{ top_logprobs: 4 }, "top_logprobs"],
    [{ stop: [""] }, "stop"],
    [{ stream_options: { include_usage: true } }, "stream_options"],
    [{ response_format: { type: "grammar" } }, "response_format.type"],
    [{ tool_choice: "required" }, "tool_choice"],
    [{ cache_salt: "" }, "cache_salt"],
    [{ prompt_cache_retention: "forever" }, "prompt_cache_retention"],
    [{ stop_token_ids: [-1] }, "stop_token_ids[0]"],
  ];
  for (const [fields, param] of cases) {
    const request = { ...greedy, messages: about("x"), max_tokens: 4, ...fields };
    const error = await client.chat.completions.create(request).then(() => null, (thrown) => thrown);
    assert.ok(error instanceof OpenAI.BadRequestError, `${JSON.stringify(fields)} was not refused`);
    assert.equal(error.param, param);
    assert.equal(error.type, "invalid_request_error");
  }
});

test("errors that are not about a field", async () => {
  const long = { ...greedy, messages: about("word ".repeat(20000)), max_tokens: 4 };
  const too_long = await client.chat.completions.create(long).catch((thrown) => thrown);
  assert.equal(too_long.code, "context_length_exceeded");
  const other = await client.chat.completions.create({ model: "gpt-9", messages: about("x") }).catch((thrown) => thrown);
  assert.ok(other instanceof OpenAI.NotFoundError);
  const vector = await client.embeddings.create({ model, input: "x" }).catch((thrown) => thrown);
  assert.match(vector.message, /not supported/);
  for (const text of ["", "{", "[]", '{"a":1,"a":2}', "null", `${"[".repeat(2000)}`, '{"model":"\\ud800"}', "\xff\xfe"]) {
    const { status, body } = await json(server.url, "/v1/chat/completions", text);
    assert.equal(status, 400, text.slice(0, 20));
    assert.equal(body.error.type, "invalid_request_error");
  }
  assert.equal((await json(server.url, "/v2/nothing", {})).status, 404);
  const wrong_verb = await json(server.url, "/v1/models", {});
  assert.equal(wrong_verb.status, 405);
  assert.equal(wrong_verb.headers.get("allow"), "GET");
});

test("messages with parts, tools and roles go through the model's template", async () => {
  const parts = [{ role: "user", content: [{ type: "text", text: "one" }, { type: "text", text: "two" }] }];
  const joined = await json(server.url, "/tokenize", { messages: about("one\ntwo") });
  const split = await json(server.url, "/tokenize", { messages: parts });
  assert.deepEqual(split.body.tokens, joined.body.tokens);
  const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
  const answer = await client.chat.completions.create({
    ...greedy, tools, max_tokens: 4,
    messages: [
      { role: "developer", content: "Be brief." },
      { role: "user", content: "Look." },
      { role: "assistant", content: null, tool_calls: [{ id: "c1", type: "function", function: { name: "look", arguments: "{}" } }] },
      { role: "tool", tool_call_id: "c1", content: "Nothing." },
    ],
  });
  assert.equal(answer.usage.completion_tokens, 4);
});

test("salts keep apart what is otherwise the same", async () => {
  const ask = (fields) => json(server.url, "/v1/completions", { prompt: `Salted. ${story}`, max_tokens: 1, temperature: 0, ...fields });
  const cached = async (fields) => (await ask(fields)).body.usage.prompt_tokens_details.cached_tokens;
  assert.equal(await cached({ cache_salt: "ab", extra_key: "c" }), 0);
  assert.equal(await cached({ cache_salt: "a", extra_key: "bc" }), 0, "fields are not joined");
  assert.equal(await cached({ prompt_cache_key: "ab" }), 0);
  assert.ok((await cached({ prompt_cache_key: "other" })) > 0, "an affinity isolates nothing");
  assert.ok((await cached({ cache_salt: "ab", extra_key: "c", prompt_cache_retention: "24h", priority: 3 })) > 0);
});

test("a prefix can be computed ahead of use", async () => {
  const system = { role: "system", content: `Warm. ${story}` };
  const warm = await json(server.url, "/v1/cache/warm", { messages: [system] });
  assert.equal(warm.status, 200);
  assert.equal(warm.body.tokens.device, 0);
  const answer = await client.chat.completions.create({ ...greedy, messages: [system, ...about("Now.")], max_tokens: 1 });
  assert.ok(answer.usage.prompt_tokens_details.cached_tokens >= warm.body.prompt_tokens - 16);
  assert.equal((await json(server.url, "/flush_cache", {})).body.success, true);
  const cold = await client.chat.completions.create({ ...greedy, messages: [system, ...about("Now.")], max_tokens: 1 });
  assert.equal(cold.usage.prompt_tokens_details.cached_tokens, 0);
});

test("ends when it is told to: what is in flight first", async () => {
  const short_lived = await serve("--drain-s", "60");
  const stream = await new OpenAI({ baseURL: `${short_lived.url}/v1`, apiKey: "none" }).chat.completions.create({
    ...greedy, messages: about("On and on."), max_tokens: 400, stream: true, stop: [], 
  });
  let tokens = 0;
  let ended = null;
  for await (const event of stream) {
    if (++tokens === 3) ended = short_lived.stop();
    if (event.choices[0].finish_reason !== null) assert.match(event.choices[0].finish_reason, /stop|length/);
  }
  assert.equal(await ended, 0);
  await assert.rejects(fetch(`${short_lived.url}/health`));
});

test("what programs ask a server first is there", async () => {
  const { body: models } = await json(server.url, "/v1/models");
  assert.deepEqual([models.data[0].root, models.data[0].parent], [models.data[0].id, null]);
  assert.equal((await json(server.url, "/ping")).status, 200);
  assert.match((await json(server.url, "/version")).body.version, /^\d+\.\d+/);
});

test("bytes of tokens that are parts of a character make it, one behind the other", async () => {
  const answer = await client.chat.completions.create({
    model, messages: about("A clef."), max_tokens: 30, logprobs: true, guided_choice: ["𝄞é𝄞"],
  });
  const { content } = answer.choices[0].logprobs;
  assert.ok(content.some((each) => each.token.includes("\uFFFD")), "the model has no token of it");
  assert.equal(Buffer.from(content.flatMap((each) => each.bytes)).toString(), "𝄞é𝄞");
});

test("text_offset is where in the text a token's character begins, also one that several tokens make", async () => {
  const asked = { model, prompt: "a👍 king 中 said", echo: true, max_tokens: 30, temperature: 0, logprobs: 0, guided_choice: ["👍 and the"] };
  const { text, logprobs: { tokens, text_offset: offsets } } = (await client.completions.create(asked)).choices[0];
  assert.ok(tokens.filter((each) => each.includes("\uFFFD")).length > 4, "the model has no tokens of these");
  const characters = [...text];
  for (const [i, token] of tokens.entries()) {
    if (token.startsWith("<|")) continue;  // is no text
    if (token.includes("\uFFFD")) assert.match(characters[offsets[i]], /[👍中]/u);
    else assert.equal(characters.slice(offsets[i], offsets[i] + [...token].length).join(""), token, `token ${i}`);
  }
  assert.equal(characters.length, [..."a👍 king 中 said👍 and the"].length);
});
