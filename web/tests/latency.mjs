// How long after an attempt ended or began the frame that counts it is shown; clocks are one machine's.
export default async function ({ browser, open, violations }, { token, seconds }) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  await context.addInitScript(() => {
    window.late = [];
    const Source = window.EventSource;
    window.EventSource = class extends Source {
      constructor(...given) {
        super(...given);
        this.addEventListener("batch", (event) => {
          const batch = JSON.parse(event.data), times = (batch.attempts ?? []).map((one) => one.ended_s ?? one.placed_s).filter((at) => at);
          if (!times.length) return;
          const last = Math.max(...times);
          requestAnimationFrame(() => requestAnimationFrame(() => window.late.push(Date.now() - 1000 * last)));
        });
      }
    };
  });
  const page = await open("/", { context });
  const both = async () => { const all = []; for (const colorScheme of ["light", "dark"]) { await page.emulateMedia({ colorScheme }); all.push(...(await violations(page))); } return all; };
  await page.waitForSelector("input[type=password]");
  const found = await both();
  await page.fill("input[type=password]", token);
  await page.click("button[type=submit]");
  await page.waitForSelector("nav a");
  await page.click('nav a:text-is("Live")');
  await page.waitForTimeout(seconds * 1000);
  const ms = await page.evaluate(() => window.late);
  found.push(...(await both()));
  await page.click('nav a:text-is("What-if")');
  await page.waitForSelector("form.ask");
  found.push(...(await both()));
  return { ms, violations: found };
}
