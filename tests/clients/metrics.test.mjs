// What is read by machines beside answers: Prometheus text, dashboards made for it, logs.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { json, serve, until } from "./served.mjs";

const story = "In the beginning the king sent his men over the hills to the sea, and they built a house there of stone. ".repeat(4);
const complete = (url, prompt, fields = {}) => json(url, "/v1/completions", { prompt, max_tokens: 2, temperature: 0, ...fields });

let folder;
let server;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "stemma-metrics-"));
  server = await serve("--host-bytes", "8MiB", "--disk", join(folder, "disk"), "--disk-bytes", "16MiB", "--shadow-audit", "50", "--metrics-compat", "vllm,sglang", "--log", "json");
  for (let i = 0; i < 3; ++i) await complete(server.url, story);
});
after(async () => {
  assert.equal(await server.stop(), 0);
  rmSync(folder, { recursive: true });
});

// By name: { type, help, samples: [{ labels, value }] }; the samples of a histogram belong to its name.
async function scrape(url) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const found = new Map();
  const of = (name) => {
    const base = name.replace(/_(bucket|sum|count)$/, "");
    return found.get(name) ?? found.get(base);
  };
  for (const line of text.trimEnd().split("\n")) {
    const head = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
    if (head !== null) {
      const [, kind, name, words] = head;
      if (!found.has(name)) found.set(name, { samples: [] });
      const metric = found.get(name);
      assert.equal(metric[kind], undefined, `${name} has one ${kind}`);
      assert.equal(metric.samples.length, 0, `${name}: ${kind} comes before the samples`);
      metric[kind] = words;
      continue;
    }
    const sample = /^([a-zA-Z_:][\w:]*)(\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? (-?[\d.e+-]+)$/.exec(line);
    assert.ok(sample !== null, `a sample: ${line}`);
    const metric = of(sample[1]);
    assert.ok(metric !== undefined, `${sample[1]} has a type`);
    metric.samples.push({ name: sample[1], labels: sample[2] ?? "", value: Number(sample[3]) });
  }
  return found;
}

test("every metric is said once, with its type and what it says", async () => {
  const metrics = await scrape(server.url);
  assert.ok(metrics.size > 80);
  for (const [name, { TYPE: type, HELP: help, samples }] of metrics) {
    assert.match(type, /^(counter|gauge|histogram)$/, name);
    assert.ok(samples.length > 0, name);
    if (name.startsWith("stemma_")) assert.ok(help !== undefined, `${name} has no line in metric_help`);
    if (type === "counter") assert.match(name, /_total$/, name);
    if (/_pages(_|$)/.test(name)) assert.doesNotMatch(help, /^(Texts|Tokens|Bytes)/, `${name} counts pages`);
    if (type !== "histogram") continue;
    const steps = samples.filter((sample) => sample.name === `${name}_bucket`).map((sample) => sample.value);
    assert.deepEqual(steps, [...steps].sort((a, b) => a - b), `${name} grows`);
    assert.equal(steps.at(-1), samples.find((sample) => sample.name === `${name}_count`).value);
  }
});

test("hits are counted by the tier they came from, and tokens add up", async () => {
  // Three answers, which `before` asked for.
  const metrics = await scrape(server.url);
  const value = (name, label = "") => metrics.get(name).samples.find((sample) => sample.labels.includes(label)).value;
  const hits = ["device", "host", "disk", "remote"].map((tier) => value("stemma_hit_tokens_total", `"${tier}"`));
  assert.ok(hits[0] > 0);
  assert.equal(hits.reduce((a, b) => a + b) + value("stemma_answered_computed_tokens_total"), value("stemma_answered_prompt_tokens_total"));
  assert.ok(value("stemma_prefix_stops_total", '"tail"') >= 2);
  assert.equal(metrics.get("stemma_ttft_seconds").samples.find((sample) => sample.name.endsWith("_count")).value, 3);
  assert.equal(value("vllm:prefix_cache_hits_total"), hits[0]);
  assert.match(metrics.get("vllm:num_requests_running").samples[0].labels, /model_name="scribe-3m",engine="0"/);
  assert.ok(metrics.has("sglang:cache_hit_rate") && metrics.has("sglang:hicache_host_total_tokens"));
});

test("names of other engines tell lengths and times of each phase", async () => {
  const metrics = await scrape(server.url);
  const of = (name, end) => metrics.get(name).samples.find((sample) => sample.name === name + end).value;
  for (const phase of ["queue", "prefill", "decode"]) assert.equal(of(`vllm:request_${phase}_time_seconds`, "_count"), 3, phase);
  assert.equal(of("vllm:request_prompt_tokens", "_sum"), metrics.get("vllm:prompt_tokens_total").samples[0].value);
  assert.equal(of("vllm:request_generation_tokens", "_sum"), metrics.get("vllm:generation_tokens_total").samples[0].value);
  assert.equal(of("vllm:time_per_output_token_seconds", "_count"), of("vllm:request_generation_tokens", "_sum") - 3);
  assert.deepEqual(metrics.get("vllm:request_success_total").samples.map((sample) => /finished_reason="(\w+)"/.exec(sample.labels)[1]), ["stop", "length", "abort"]);
  assert.ok(metrics.has("sglang:gen_throughput"));
});

test("a prompt counts once for all answers to it", async () => {
  const counts = async () => {
    const metrics = await scrape(server.url);
    return ["stemma_prompt_tokens_total", "stemma_answered_prompt_tokens_total", "vllm:prompt_tokens_total", "stemma_cached_tokens_total"].map((name) => metrics.get(name).samples[0].value);
  };
  const before = await counts();
  const { body } = await complete(server.url, "A prompt that nobody asked before", { n: 4 });
  const after = await counts();
  const grown = after.map((value, i) => value - before[i]);
  assert.deepEqual(grown, [...Array(3).fill(body.usage.prompt_tokens), 0]);
});

// An answer may take minutes: a rate of tokens that are counted at its end says nothing, then too much.
test("tokens are counted while an answer goes on", async () => {
  const count = async (name) => (await scrape(server.url)).get(name).samples[0].value;
  const names = ["stemma_generated_tokens_total", "vllm:generation_tokens_total"];
  const prompt_names = ["vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total"];
  const prompts_before = await Promise.all(prompt_names.map(count));
  const first_tokens = async () => (await scrape(server.url)).get("vllm:time_to_first_token_seconds").samples.at(-1).value;
  const firsts_before = await first_tokens();
  const before = await Promise.all(names.map(count));
  const ended = await count("stemma_output_tokens_total");
  const leave = new AbortController();
  const body = JSON.stringify({ prompt: "Go on", max_tokens: 8000, ignore_eos: true, stream: true });
  const answer = await fetch(`${server.url}/v1/completions`, { method: "POST", body, signal: leave.signal });
  await answer.body.getReader().read();
  for (const [i, name] of names.entries()) await until(async () => (await count(name)) > before[i] + 10);
  for (const [i, name] of prompt_names.entries()) assert.ok((await count(name)) > prompts_before[i], name);
  assert.equal(await first_tokens(), firsts_before + 1);
  assert.equal(await count("stemma_output_tokens_total"), ended, "the answer goes on");
  leave.abort();
});

test("the names of other engines are there only where they are asked for", async () => {
  const plain = await serve();
  const text = await (await fetch(`${plain.url}/metrics`)).text();
  assert.doesNotMatch(text, /vllm:|sglang:/);
  assert.equal(await plain.stop(), 0);
});

test("grafana/stemma.json shows only what a server exports, every histogram, and every way to find a wrong page", async () => {
  const metrics = await scrape(server.url);
  const dashboard = JSON.parse(readFileSync("grafana/stemma.json", "utf8"));
  const expressions = dashboard.panels.flatMap((panel) => panel.targets ?? []).map((target) => target.expr);
  assert.ok(expressions.length > 30);
  expressions.push(...dashboard.templating.list.map((each) => each.definition ?? ""));
  for (const expression of expressions) {
    for (const [name] of expression.matchAll(/[a-z_]*stemma_[a-z0-9_]+/g)) {
      const metric = metrics.get(name) ?? metrics.get(name.replace(/_bucket$/, ""));
      assert.ok(metric !== undefined, `${name} is not exported: ${expression}`);
      if (expression.startsWith("label_values")) continue;
      const rated = new RegExp(`(rate|increase)\\(${name}`).test(expression);
      assert.equal(rated, metric.TYPE !== "gauge", `${name} is a ${metric.TYPE}: ${expression}`);
    }
  }
  for (const [name, { TYPE }] of metrics) {
    if (TYPE === "histogram" && name.startsWith("stemma_")) assert.ok(expressions.some((each) => each.includes(`${name}_bucket`)), `${name} is not shown`);
    if (/_(load_corrupt_pages|audit_mismatches)_total$/.test(name)) assert.ok(expressions.some((each) => each.includes(`${name}{`)), `${name} is not shown`);
  }
  const places = dashboard.panels.map((panel) => panel.gridPos);
  for (const [i, a] of places.entries()) {
    for (const b of places.slice(i + 1)) {
      assert.ok(a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y, "panels lie beside each other");
    }
  }
});

test("the tree shows what only host memory has", async () => {
  const small = await serve("--kv-bytes", "1MiB", "--host-bytes", "16MiB", "--write-policy", "write-through-selective");
  const shown = async () => (await json(small.url, "/v1/cache/tree?nodes=500")).body.nodes;
  await complete(small.url, story);
  await complete(small.url, story);
  await until(async () => (await shown()).some((node) => node.tier === "host"));
  const both = await shown();
  const twin = both.find((node) => node.tier === "host" && node.twin !== null);
  assert.ok(twin.twin_tokens > 0 && both.some((node) => node.id === twin.twin));
  for (let i = 0; (await shown()).every((node) => node.tier === "device" || node.twin_tokens === node.tokens); ++i) {
    assert.ok(i < 200, "the device is full by now");
    await complete(small.url, `${i} `.repeat(200));
  }
  const host_only = (await shown()).find((node) => node.tier === "host" && node.twin_tokens < node.tokens);
  const node = await json(small.url, `/v1/cache/tree/${host_only.id}`);
  assert.equal(node.body.tokens, host_only.tokens);
  assert.ok(node.body.text.length > 0);
  assert.equal(await small.stop(), 0);
});

test("logs are one object a line", async () => {
  const id = "the-clients-own";
  await json(server.url, "/v1/completions", { prompt: "x", max_tokens: 1 }, { "x-request-id": id });
  const lines = () => server.log().trimEnd().split("\n").map((line) => JSON.parse(line));
  await until(async () => lines().some((line) => line.request_id === id));
  const line = lines().find((each) => each.request_id === id);
  assert.equal(line.event, "server.answer");
  assert.equal(line.level, "info");
  assert.equal(line.status, 200);
  assert.equal(typeof line.prompt_tokens, "number");
  assert.ok(Math.abs(line.time - Date.now() / 1000) < 600);
  for (const each of lines()) assert.ok(["time", "level", "event"].every((key) => key in each));
});
