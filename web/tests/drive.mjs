// Runs one scenario in a real browser and prints what it saw as JSON: node drive.mjs BROWSER ADDRESS SCENARIO [ARGUMENTS]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [, , executablePath, address, scenario, given] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const seen = { errors: [], foreign: [], result: null };

/** A page of its own session; everything that goes wrong on it, or goes elsewhere, is noted. */
async function open(path, { width = 1280, height = 900, scheme = "light", context = null, motion = "no-preference" } = {}) {
  const own = context ?? (await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion, acceptDownloads: true }));
  const page = await own.newPage();
  page.on("pageerror", (error) => seen.errors.push(String(error.stack ?? error)));
  page.on("console", (message) => { if (message.type() === "error" && !/status of 4|ERR_|Failed to load resource/.test(message.text())) seen.errors.push(message.text()); });
  page.on("request", (request) => { const url = new URL(request.url()); if (!["data:", "blob:"].includes(url.protocol) && url.origin !== new URL(address).origin) seen.foreign.push(request.url()); });
  await page.goto(path.startsWith("file:") ? path : new URL(path, address).href);
  return page;
}

const tools = {
  browser, open, address,
  painted: (page, count = 1) => page.waitForFunction((least) => performance.getEntriesByName("wattflow-painted").length >= least, count),
  drawn: (page) => page.evaluate(() => window.wattflow.drawn()),
  /** Names of violated rules, with the first element of each. */
  violations: async (page) => { await page.evaluate(axe); return page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 160)} ${one.nodes[0].failureSummary}`)); },
};

try {
  const { default: run } = await import(new URL(`./${scenario}.mjs`, import.meta.url));
  seen.result = await run(tools, given ? JSON.parse(given) : {});
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
