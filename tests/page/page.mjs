// Opens the live page in Chromium at phone and desk width, light and dark, and ends with one line: N passed, N failed.
//
// Usage: node page.mjs MCP-URL ADMIN-URL. MOORLINE_TEST_CHROMIUM names the browser.

import { chromium } from "playwright-core";

const [url, admin] = process.argv.slice(2);
/** How long the page may take to show what is expected, in milliseconds. Nothing waits longer than it must. */
const PATIENCE_MS = 30_000;
/** WCAG 2.2, 1.4.3: the least contrast of text. */
const CONTRAST_MIN = 4.5;

let passed = 0;
let failed = 0;
let sessions = 0;

async function main() {
  const browser = await chromium.launch({
    executablePath: process.env.MOORLINE_TEST_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
  try {
    await openSession();
    await refusedRequest();
    for (const [width, colorScheme] of [[390, "light"], [390, "dark"], [1100, "light"], [1100, "dark"]]) {
      const context = await browser.newContext({ viewport: { width, height: 1000 }, colorScheme });
      await lookAt(await context.newPage(), `${width} ${colorScheme}`);
      await context.close();
    }
  } finally {
    await browser.close();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}

async function lookAt(page, name) {
  const said = [];
  const asked = new Set();
  page.on("console", message => said.push(message.text()));
  page.on("pageerror", error => said.push(String(error)));
  page.on("request", request => asked.add(new URL(request.url()).origin));
  await page.addInitScript(() => {
    globalThis.shownAs = name => [...document.querySelectorAll("dt")].find(dt => dt.textContent === name)?.nextElementSibling.textContent;
  });
  await page.goto(admin);
  const shows = (what, test, argument) => check(`${name}: ${what}`, page.waitForFunction(test, argument, { timeout: PATIENCE_MS }));
  await shows("the state is shown", () => document.querySelector("#state")?.textContent === "ready" && !document.querySelector("#state").className);
  await shows("the version is shown", () => /^\d+\.\d+/.test(document.querySelector("#version").textContent));
  await shows("sessions are counted", count => shownAs("sessions") === String(count), sessions);
  await shows("each shard has its row", () => [...document.querySelectorAll("#streams tbody th")].map(th => th.textContent).join() === "0,1");
  await shows("the refusal has its cause", () =>
    [...document.querySelectorAll("#refusals tbody tr")].some(row => row.textContent.startsWith("requests refused1")));
  await openSession();
  await shows("a new session is counted without a reload", count => shownAs("sessions") === String(count), sessions);
  await check(`${name}: it does not scroll sideways`, page.evaluate(() => {
    if (document.documentElement.scrollWidth > innerWidth) throw new Error(`${document.documentElement.scrollWidth} wide`);
  }));
  await check(`${name}: its text can be read`, page.evaluate(leastContrast).then(({ ratio, text }) => {
    if (ratio < CONTRAST_MIN) throw new Error(`contrast ${ratio.toFixed(2)} of "${text}"`);
  }));
  await check(`${name}: the console is silent`, said.length === 0 ? Promise.resolve() : Promise.reject(new Error(said.join("; "))));
  const foreign = [...asked].filter(origin => origin !== new URL(admin).origin);
  await check(`${name}: nothing comes from elsewhere`, foreign.length === 0 ? Promise.resolve() : Promise.reject(new Error(foreign.join())));
}

/** Runs in the page: the least contrast between a text and what is behind it. */
function leastContrast() {
  const channels = color => color.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map(c => c / 255)
    .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const backgroundOf = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  let least = { ratio: Infinity, text: "" };
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent).join("").trim();
    if (!text || !element.checkVisibility() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const [front, back] = [luminance(channels(getComputedStyle(element).color)), luminance(backgroundOf(element))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < least.ratio) least = { ratio, text };
  }
  return least;
}

async function openSession() {
  const reply = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } },
    }),
  });
  if (!reply.ok) throw new Error(`initialize: ${reply.status}`);
  await reply.text();
  sessions += 1;
}

/** One refusal: no such method of HTTP. */
async function refusedRequest() {
  const reply = await fetch(url, { method: "PUT" });
  if (reply.status !== 405) throw new Error(`PUT: ${reply.status}`);
}

async function check(name, promise) {
  try {
    await promise;
    passed += 1;
  } catch (error) {
    failed += 1;
    console.error(`FAILED: ${name}: ${error.message}`);
  }
}

await main();
