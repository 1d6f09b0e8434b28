// A chat with the model, and for each answer what the cache did for it. The whole conversation is sent each time, as
// clients do: that is what the cache is for.

import { bar, count, element, headers, seconds } from "./parts.js";

const $ = (id) => document.getElementById(id);
let conversation = [];
let running = null; // the AbortController of the answer that is coming

function message(who, mine) {
  const item = element("li", mine ? "mine" : "theirs");
  const said = element("div", "said");
  item.append(element("div", "who", who), said);
  $("messages").append(item);
  $("messages").scrollTop = $("messages").scrollHeight;
  return { item, said };
}

// What a model thinks before it answers, above its answer and only if there is any.
function thoughts(parts) {
  let drawn = null;
  const add = (piece) => {
    if (piece === "") return;
    if (drawn === null) {
      const frame = element("details", "thoughts");
      parts.thought = element("div", "said");
      frame.append(element("summary", "", "Thoughts"), parts.thought);
      parts.said.before(frame);
      frame.open = true;
      drawn = drawer(parts.thought);
    }
    drawn.add(piece);
  };
  return { add, draw: () => drawn?.draw() };
}

// The events of a stream, parsed: each is "data: {...}" and ends with an empty line.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const text = part.replace(/^data: /, "");
      if (text !== "[DONE]") yield JSON.parse(text);
    }
  }
}

function showReceipt(item, receipt) {
  const { tokens } = receipt;
  const cached = tokens.device + tokens.host + tokens.disk + tokens.remote;
  const sources = ["device", "host", "disk", "remote"].filter((source) => tokens[source] > 0);
  const from = sources.length === 0 ? "" : ` (${sources.map((source) => `${source} ${count(tokens[source])}`).join(", ")})`;
  const line = element("p", "receipt");
  line.append(element("strong", "", `${count(cached)} of ${count(receipt.prompt_tokens)} prompt tokens from the cache`),
    `${from} · first token after ${seconds(receipt.ttft_ms / 1000)}${receipt.saved_ms > 0 ? ` · saved about ${seconds(receipt.saved_ms / 1000)}` : ""}`);
  item.append(bar([...sources, "computed"].map((source) => [source, tokens[source]]), Object.values(tokens).reduce((a, b) => a + b, 0)), line);
  return line.textContent;
}

// Text that comes in pieces, drawn once a frame: an answer may come faster than a page can be laid out.
function drawer(said) {
  const list = $("messages");
  let text = "";
  let due = false;
  const draw = () => {
    due = false;
    const at_end = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    said.textContent = text;
    if (at_end) list.scrollTop = list.scrollHeight;
  };
  const add = (piece) => {
    text += piece;
    if (!due) requestAnimationFrame(draw);
    due = true;
  };
  return { add, draw };
}

async function answer(messages, parts, signal) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "content-type": "application/json", ...headers() },
    body: JSON.stringify({ messages, max_tokens: Number($("length").value), stream: true, cache_receipt: true }),
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let receipt = null;
  const thought = thoughts(parts);
  const said = drawer(parts.said);
  try {
    for await (const event of events(response)) {
      if (event.error !== undefined) throw new Error(event.error.message);
      thought.add(event.choices?.[0]?.delta?.reasoning_content ?? "");
      said.add(event.choices?.[0]?.delta?.content ?? "");
      receipt = event.cache_receipt ?? receipt;
    }
  } finally {
    thought.draw();
    said.draw();
  }
  return receipt;
}

async function send() {
  const question = $("question").value.trim();
  if (question === "" || running !== null) return;
  const mine = conversation; // another one may have begun when the answer ends
  message("You", true).said.textContent = question;
  mine.push({ role: "user", content: question });
  $("question").value = "";
  const parts = message("Model", false);
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  try {
    const receipt = await answer(mine, parts, running.signal);
    const cost = receipt === null ? "" : showReceipt(parts.item, receipt);
    $("heard").textContent = `The model said: ${parts.said.textContent}. ${cost}`;
  } catch (error) {
    const stopped = error.name === "AbortError";
    parts.item.classList.toggle("failed", !stopped);
    parts.item.append(element("p", "receipt", stopped ? "Stopped." : `Failed: ${error.message}`));
    $("heard").textContent = stopped ? "Stopped." : `Failed: ${error.message}`;
  }
  const before = parts.thought === undefined ? {} : { reasoning_content: parts.thought.textContent };
  mine.push({ role: "assistant", content: parts.said.textContent, ...before });
  running = null;
  $("send").disabled = false;
  $("stop").disabled = true;
  $("messages").scrollTop = $("messages").scrollHeight;
}

export function startChat() {
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("ask").requestSubmit();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("clear").addEventListener("click", () => {
    running?.abort();
    conversation = [];
    $("messages").replaceChildren();
    $("question").focus();
  });
}
