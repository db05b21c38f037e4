// A server followed while it works: figures by events, a kill in between, explanations, a forecast, users apart, an end of the session.
import { existsSync, writeFileSync } from "node:fs";

const until = async (check, what, seconds = 90) => {
  for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise((go) => setTimeout(go, 100))) if (await check()) return;
  throw new Error(`waited in vain for ${what}`);
};

async function login(open, browser, token, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options }), page = await open("/", { context });
  await page.fill("input[type=password]", token);
  await page.click("button[type=submit]");
  await page.waitForSelector("nav a");
  return page;
}

export default async function ({ browser, open, drawn, violations, painted }, { ann, ben, folder, parts, pictures }) {
  const found = { violations: {} }, flag = (name) => writeFileSync(`${folder}/${name}`, ""), told = (name) => until(() => existsSync(`${folder}/${name}`), name);
  const page = await login(open, browser, ann);
  found.refused = await (async () => {
    const other = await open("/");
    await other.fill("input[type=password]", "wf_user_wrong");
    await other.click("button[type=submit]");
    await other.waitForSelector(".trouble");
    found.violations.login = await violations(other);
    return other.textContent(".trouble");
  })();
  const live = async () => (await drawn(page)).live;
  await page.click('nav a:text-is("Live")');
  await until(async () => (await live())?.through >= 0, "a snapshot");
  flag("watching");
  await until(async () => (await live()).done >= 5, "five tasks");
  flag("kill");
  await page.waitForSelector(".trouble");
  found.gone = await page.textContent(".trouble");
  await told("back");
  await page.waitForSelector(".trouble", { state: "detached", timeout: 60000 });
  await until(async () => (await live()).done >= parts.tasks, "all tasks");
  found.live = await live();
  await page.waitForSelector(".timeline");
  await until(async () => !(await page.textContent(".budgets")).includes("no joules of late"), "a budget's forecast");
  found.budgets = await page.textContent(".budgets");
  for (const scheme of ["light", "dark"]) { await page.emulateMedia({ colorScheme: scheme }); found.violations[`live ${scheme}`] = await violations(page); }
  await page.emulateMedia({ colorScheme: "light" });
  if (pictures) { await page.waitForTimeout(1000); await page.screenshot({ path: `${pictures}/dashboard-live.png`, fullPage: true }); }

  await page.goto(new URL(`/#/run/${parts.over}`, page.url()).href);
  await painted(page);
  await page.focus(".timeline");
  await page.keyboard.press("n");
  await page.click(".why button");
  await page.waitForSelector(".why table", { timeout: 60000 });
  found.past = await page.textContent(".why");
  if (pictures) await page.screenshot({ path: `${pictures}/dashboard-why.png`, fullPage: true });
  found.violations.why = await violations(page);

  await page.goto(new URL(`/#/workflow/${parts.waiting}?task=0`, page.url()).href);
  await page.waitForSelector(".why button");
  await page.click(".why button");
  await page.waitForSelector(".why p", { timeout: 60000 });
  await until(async () => !(await page.textContent(".why")).includes("Asking"), "an answer");
  found.waiting = await page.textContent(".why");

  await page.click('nav a:text-is("What-if")');
  await page.waitForSelector("form.ask");
  const state = async () => (await drawn(page)).forecast?.state;
  await page.click("form.ask button[type=submit]");
  await until(async () => (await state()) === "running", "a forecast");
  await page.click('button:text-is("Cancel")');
  await until(async () => (await state()) === "cancelled", "its end");
  await page.click("form.ask button[type=submit]");
  await until(async () => (await state()) === "done", "its results", 150);
  found.forecast = (await drawn(page)).forecast;
  found.spreads = await page.$$eval(".spread", (figures) => figures.map((figure) => ({
    said: figure.textContent, names: [...figure.querySelectorAll(".name")].map((each) => each.textContent), marks: [...figure.querySelectorAll(".mark")].map((each) => each.style.left), now: figure.querySelector(".now .fill")?.style.width ?? null })));
  for (const scheme of ["light", "dark"]) { await page.emulateMedia({ colorScheme: scheme }); found.violations[`what-if ${scheme}`] = await violations(page); }
  if (pictures) await page.screenshot({ path: `${pictures}/dashboard-what-if.png`, fullPage: true });

  await page.click('nav a:text-is("Profiles")');
  await page.waitForSelector(".profile canvas");
  found.profiles = (await drawn(page)).profiles;
  found.violations.profiles = await violations(page);

  const other = await login(open, browser, ben);
  await other.waitForSelector("main section");
  await other.waitForTimeout(500);
  found.ofBen = await other.textContent("main");
  await other.goto(new URL(`/#/run/${parts.over}`, other.url()).href);
  await other.waitForSelector(".trouble");
  found.notBens = await other.textContent(".trouble");

  await page.context().clearCookies();
  await page.goto(new URL(`/#/run/${parts.over}`, page.url()).href);
  await page.waitForSelector("input[type=password]");
  found.expired = await page.textContent(".trouble");
  await page.fill("input[type=password]", ann);
  await page.click("button[type=submit]");
  await page.waitForSelector("#run-title");
  found.back = await page.textContent("#run-title");
  return found;
}
