// What the page shows of the server: asks it once a second while somebody looks.

import { Refused, bar, count, element, get, seconds, setKey } from "./parts.js";
import { showTree, showNode } from "./tree.js";
import { startChat } from "./chat.js";

const $ = (id) => document.getElementById(id);
const kSources = ["device", "host", "disk", "remote", "computed"];
const kSamples = 60; // the chart's bars
const kSampleSeconds = 2;

const share = (part, whole) => (whole === 0 ? "–" : `${Math.round((100 * part) / whole)} %`);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; bytes >= 1024 && i + 1 < units.length; ++i) bytes /= 1024;
  return `${bytes < 10 && i > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
}

function tier(name, className, text, parts, whole) {
  const item = element("li");
  const line = element("div");
  line.append(element("span", "tier-name", name), ` ${text}`);
  item.append(line);
  if (whole > 0) item.append(bar(parts.map(([kind, amount]) => [kind || className, amount]), whole));
  return item;
}

function showTiers(m, eviction) {
  const tiers = [];
  const pages = m.stemma_device_pages;
  const held = pages - m.stemma_device_free_pages - m.stemma_device_evictable_pages;
  tiers.push(tier("Device", "device", `${count(pages - m.stemma_device_free_pages)} of ${count(pages)} pages, ${count(held)} in use, evicts by ${eviction}`,
    [["held", held], ["", m.stemma_device_evictable_pages]], pages));
  if (m.stemma_host_pages !== undefined) {
    const used = m.stemma_host_pages - m.stemma_host_free_pages;
    tiers.push(tier("Host memory", "host", `${count(used)} of ${count(m.stemma_host_pages)} pages`, [["", used]], m.stemma_host_pages));
  }
  if (m.stemma_disk_pages !== undefined) {
    tiers.push(tier("Disk", "disk", `${count(m.stemma_disk_pages)} pages, ${size(m.stemma_disk_bytes)} of ${size(m.stemma_disk_bytes_max)}` +
      (m.stemma_disk_breaker_open ? ", not asked now: it failed" : ""), [["", m.stemma_disk_bytes]], m.stemma_disk_bytes_max));
  }
  if (m.stemma_remote_written_pages_total !== undefined) {
    tiers.push(tier("Remote", "remote", `${count(m.stemma_remote_written_pages_total)} pages written, ${count(m.stemma_remote_read_pages_total)} read` +
      (m.stemma_remote_open_breakers > 0 ? ", not asked now: it failed" : ""), [], 0));
  }
  $("tiers").replaceChildren(...tiers);
}

// Prompt tokens by source, since the page was opened: one sample each kSampleSeconds.
const samples = [];
let last = null; // of the server's counters, with the time
function noteSample(tokens) {
  const now = performance.now() / 1000;
  if (last !== null && now - last.at < kSampleSeconds) return;
  if (last !== null) {
    const restarted = kSources.some((source) => tokens[source] < last.tokens[source]);
    samples.push(Object.fromEntries(kSources.map((source) => [source, tokens[source] - (restarted ? 0 : last.tokens[source])])));
    if (samples.length > kSamples) samples.shift();
  }
  last = { at: now, tokens: { ...tokens } };
}

const sum = (sample, sources) => sources.reduce((total, source) => total + sample[source], 0);
const cached = kSources.slice(0, 4);

function showSources() {
  const most = Math.max(1, ...samples.map((sample) => sum(sample, kSources)));
  const columns = Array.from({ length: kSamples - samples.length }, () => element("div"));
  for (const sample of samples) {
    const column = element("div");
    for (const source of kSources) {
      if (sample[source] === 0) continue;
      const part = element("i", source);
      part.style.height = `${(100 * sample[source]) / most}%`;
      column.append(part);
    }
    columns.push(column);
  }
  $("sources").replaceChildren(...columns);
  const recent = samples.slice(-60 / kSampleSeconds);
  const all = recent.reduce((total, sample) => total + sum(sample, kSources), 0);
  const hits = recent.reduce((total, sample) => total + sum(sample, cached), 0);
  $("rate").textContent = share(hits, all);
  const parts = kSources.map((source) => [source, recent.reduce((total, sample) => total + sample[source], 0)]).filter(([, tokens]) => tokens > 0);
  const text = all === 0 ? "No prompts in the last minute." : `Last minute: ${parts.map(([source, tokens]) => `${source} ${share(tokens, all)}`).join(", ")} of ${count(all)} prompt tokens; the tallest bar is ${count(most)}.`;
  if ($("sources-text").textContent !== text) $("sources-text").textContent = text;
}

function showStats(stats) {
  const m = stats.metrics;
  $("served").textContent = `${stats.model} · version ${stats.version}`;
  $("running").textContent = count(m.stemma_running_requests);
  $("waiting").textContent = count(m.stemma_waiting_requests);
  $("rate-all").textContent = share(sum(stats.tokens, cached), stats.tokens.prompt);
  $("ttft").textContent = stats.ttft.count === 0 ? "–" : seconds(stats.ttft.sum_s / stats.ttft.count);
  showTiers(m, stats.eviction);
  noteSample(stats.tokens);
  showSources();
}

function showRequests(kv) {
  const rows = kv.leases.slice(0, 50).map((lease) => {
    const row = element("tr");
    const cells = [lease.request_id ?? `#${lease.engine_request}`, lease.state, seconds(lease.age_ms / 1000), count(lease.prompt_tokens), count(lease.output_tokens), count(lease.pages)];
    row.append(...cells.map((text) => element("td", "", text)));
    row.firstChild.title = cells[0];
    return row;
  });
  if (rows.length === 0) {
    const row = element("tr");
    const cell = element("td", "note", "None at the moment.");
    cell.colSpan = 6;
    row.append(cell);
    rows.push(row);
  }
  $("requests").replaceChildren(...rows);
}

function say(text, well) {
  const state = $("state");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("well", well);
}

async function refresh() {
  try {
    const [stats, tree, kv] = await Promise.all([get("/v1/cache/stats"), get("/v1/cache/tree?nodes=200"), get("/debug/kv")]);
    showStats(stats);
    showTree(tree);
    showRequests(kv);
    $("needs-admin").hidden = true;
    say("live", true);
  } catch (error) {
    const refused = error instanceof Refused;
    const locked = refused && (error.status === 401 || error.status === 403);
    if (locked) $("key-form").hidden = false;
    $("needs-admin").hidden = !locked;
    say(locked ? (error.status === 401 ? "a key is wanted" : "no admin's key") : refused ? "busy" : "not reachable", false);
    return locked;
  }
  return false;
}

// One question after the other, so that a slow server is not asked faster than it answers. A key that was refused is
// not tried again.
let waitsForKey = false;
async function run() {
  if (!document.hidden && !waitsForKey) waitsForKey = await refresh();
  setTimeout(run, 1000);
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value.trim());
  $("key").value = "";
  waitsForKey = false;
});

showNode(null);
startChat();
run();
