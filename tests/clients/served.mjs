// Starts build/<preset>/stemma serve on a free port, and ends it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import OpenAI from "openai";

const program = process.env.STEMMA_PROGRAM ?? "build/release/stemma";

// { url, log(), stop() }: stop() resolves to the exit code once the server has ended by itself.
export async function serve(...flags) {
  const child = spawn(program, ["serve", "--port", "0", ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  child.stderr.on("data", (piece) => (log += piece));
  const ended = once(child, "exit");
  const [first] = await Promise.race([once(createInterface(child.stdout), "line"), ended]);
  const url = /(http:\S+)/.exec(String(first))?.[1];
  if (url === undefined) throw new Error(`the server did not start: ${log}`);
  return {
    url,
    log: () => log,
    stop: async (signal = "SIGTERM") => {
      child.kill(signal);
      return (await ended)[0];
    },
  };
}

// A server, OpenAI's client of it and what its model is called.
export async function clientOf(...flags) {
  const server = await serve(...flags);
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  return { server, client, model: (await client.models.list()).data[0].id };
}

export async function json(url, path, body, headers = {}) {
  const response = await fetch(url + path, {
    method: body === undefined ? "GET" : "POST",
    headers: { "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: text.startsWith("{") ? JSON.parse(text) : null };
}

// The value of one of the server's metrics.
export async function metric(url, name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split("\n").find((each) => each.startsWith(`${name} `));
  return line === undefined ? NaN : Number(line.split(" ")[1]);
}

// Asks again and again until it is so; after a minute it fails.
export async function until(condition) {
  const end = Date.now() + 60_000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within a minute: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
