// A headless Chromium of the system, without a profile of anybody's and without calls home.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const program = process.env.STEMMA_CHROMIUM ?? "/usr/bin/chromium";
const flags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

// Why tests cannot have one; false where they can.
export const noBrowser = existsSync(program) ? false : `there is no ${program} (tools/install_packages)`;

// { open(viewport), close() }. open: a page that notes in `faults` what goes wrong on it, and every request that leaves
// `origin`.
export async function browse(origin) {
  const profile = mkdtempSync(join(tmpdir(), "stemma-browser-"));
  const context = await chromium.launchPersistentContext(profile, { executablePath: program, args: flags, headless: true });
  return {
    open: async (viewport, options = {}) => {
      const page = await context.newPage();
      await page.setViewportSize(viewport);
      await page.emulateMedia(options);
      const faults = [];
      page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(message.text()));
      page.on("pageerror", (error) => faults.push(String(error)));
      page.on("request", (request) => request.url().startsWith(`${origin}/`) || faults.push(`asks ${request.url()}`));
      await page.goto(`${origin}/`);
      return { page, faults };
    },
    close: async () => {
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}
