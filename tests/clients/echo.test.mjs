// An echo is the prompt as it was sent, whatever a tokenizer makes of it: the bundled model's puts a token before each text,
// and here it composes characters.

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { clientOf, json } from "./served.mjs";

const place = mkdtempSync(join(tmpdir(), "stemma-echo-"));
const decomposed = "cafe\u0301 said";
let server, client, model;

before(async () => {
  const directory = join(place, "composing");
  cpSync("models/scribe-3m", directory, { recursive: true });
  const file = join(directory, "tokenizer.json");
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file)), normalizer: { type: "NFC" } }));
  ({ server, client, model } = await clientOf("--model", directory));
});

after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(place, { recursive: true });
});

const ask = async (prompt, fields) =>
  (await client.completions.create({ model, prompt, echo: true, max_tokens: 2, temperature: 0, logprobs: 0, ...fields })).choices;

// The answer alone, which is behind the echo.
const answerTo = async (prompt, fields) => (await ask(prompt, { ...fields, echo: false }))[0].text;

// Whether a text has each of these tokens where it says, but parts of characters.
function checkPlaces(text, tokens, offsets) {
  tokens.forEach((token, i) => assert.ok(token.includes("\uFFFD") || text.slice(offsets[i]).startsWith(token), `token ${i}: ${token}`));
}

test("a text comes back as it was sent: special tokens that it has and no others, characters as they were", async () => {
  const prompts = ["Once upon", "<|user|>Once<|end|>", decomposed];
  for (const skip_special_tokens of [true, false]) {
    const choices = await ask(prompts, { skip_special_tokens });
    for (const [i, prompt] of prompts.entries()) {
      const { text, logprobs: { tokens, text_offset: offsets } } = choices[i];
      assert.equal(text, prompt + (await answerTo(prompt, { skip_special_tokens })));
      assert.equal(tokens[0], "<|begin_of_text|>");
      const answer = tokens.length - 2;
      assert.equal(offsets[answer], prompt.length, "where the answer begins");
      if (prompt === decomposed) continue;  // its tokens count the characters that the tokenizer made
      checkPlaces(prompt, tokens.slice(1, answer), offsets.slice(1));
    }
  }
});

test("tokens come back as the text that they are", async () => {
  const { tokens } = (await json(server.url, "/tokenize", { model, prompt: decomposed })).body;
  const [{ text, logprobs }] = await ask(tokens);
  const said = `<|begin_of_text|>${decomposed.normalize("NFC")}`;
  assert.equal(text, said + (await answerTo(tokens)));
  checkPlaces(said, logprobs.tokens.slice(0, -2), logprobs.text_offset);
});

test("of a text that is cut its end comes back", async () => {
  const [{ text }] = await ask("Once upon a time", { truncate_prompt_tokens: 2, max_tokens: 0 });
  assert.ok("Once upon a time".endsWith(text) && text.length > 0 && text.length < 16, text);
});
