// A model that says what a test wants: each of its tokens is followed by one other, whatever came before. Attention and MLP
// add nothing, so that the logits are those of the last token's own embedding.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const bytes = 256;

// The characters that byte-level tokenizers write bytes as: printable ones stand for themselves.
function byteCharacters() {
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = bytes;
  return Array.from({ length: bytes }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : next++));
}

function tokenizer(tokens, special) {
  return {
    version: "1.0",
    added_tokens: tokens.map((content, i) => ({
      id: bytes + i, content, special: special.includes(content), single_word: false, lstrip: false, rstrip: false, normalized: false,
    })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    model: { type: "BPE", vocab: Object.fromEntries(byteCharacters().map((each, byte) => [each, byte])), merges: [] },
  };
}

// `tensors`: { name: [shape, Float32Array] }.
function safetensors(tensors) {
  const header = {};
  let end = 0;
  for (const [name, [shape, values]] of Object.entries(tensors)) {
    header[name] = { dtype: "F32", shape, data_offsets: [end, (end += values.byteLength)] };
  }
  let text = JSON.stringify(header);
  text += " ".repeat((8 - (text.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, Buffer.from(text), ...Object.values(tensors).map(([, values]) => Buffer.from(values.buffer))]);
}

function weights(size, followers) {
  const matrix = (outputs, inputs) => [[outputs, inputs], new Float32Array(outputs * inputs)];
  const ones = () => [[size], new Float32Array(size).fill(1)];
  const embeddings = matrix(size, size);
  const output = matrix(size, size);
  for (let token = 0; token < size; ++token) {
    embeddings[1][token * size + token] = 1;
    output[1][followers[token] * size + token] = 1;
  }
  const layer = {
    input_layernorm: ones(), post_attention_layernorm: ones(),
    "self_attn.q_proj": matrix(size, size), "self_attn.k_proj": matrix(size, size),
    "self_attn.v_proj": matrix(size, size), "self_attn.o_proj": matrix(size, size),
    "mlp.gate_proj": matrix(32, size), "mlp.up_proj": matrix(32, size), "mlp.down_proj": matrix(size, 32),
  };
  const named = Object.fromEntries(Object.entries(layer).map(([name, tensor]) => [`model.layers.0.${name}.weight`, tensor]));
  return { "model.embed_tokens.weight": embeddings, ...named, "model.norm.weight": ones(), "lm_head.weight": output };
}

// Writes the model to `directory`. A message that is a key of `scripts` is answered with its pieces, a token each; no piece
// may be in two scripts. Those of `special` are special tokens.
export function writeScriptedModel(directory, { scripts, template, special = [] }) {
  const tokens = ["<end>", ...Object.entries(scripts).flatMap(([message, pieces]) => [message, ...pieces])];
  const size = Math.ceil((bytes + tokens.length) / 32) * 32;
  const end = bytes;
  const id = (token) => bytes + tokens.indexOf(token);
  const followers = new Array(size).fill(end);
  for (const [message, pieces] of Object.entries(scripts)) {
    [message, ...pieces].forEach((token, i) => (followers[id(token)] = i < pieces.length ? id(pieces[i]) : end));
  }
  const config = {
    architectures: ["LlamaForCausalLM"], model_type: "llama", vocab_size: size, hidden_size: size, intermediate_size: 32,
    num_hidden_layers: 1, num_attention_heads: size / 32, num_key_value_heads: size / 32, head_dim: 32, hidden_act: "silu",
    max_position_embeddings: 2048, rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false, eos_token_id: end,
  };
  mkdirSync(directory, { recursive: true });
  const write = (file, content) => writeFileSync(join(directory, file), content);
  write("config.json", JSON.stringify(config));
  write("tokenizer.json", JSON.stringify(tokenizer(tokens, special)));
  write("chat_template.jinja", template);
  write("model.safetensors", safetensors(weights(size, followers)));
}
