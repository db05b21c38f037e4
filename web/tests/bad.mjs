// Runs that cannot be drawn: one sentence each, and no canvas.
export default async function ({ open }, { ids }) {
  const found = {};
  for (const id of ids) {
    const page = await open(`/#/run/${encodeURIComponent(id)}`);
    await page.waitForSelector(".trouble, .timeline");
    await page.waitForTimeout(100);
    found[id] = { trouble: await page.$$eval(".trouble", (all) => all.map((each) => each.textContent.trim())), notes: await page.$$eval(".notes li", (all) => all.map((each) => each.textContent)), charts: await page.$$eval(".timeline", (all) => all.length), title: (await page.textContent("main")).length, bold: await page.$$eval("main b, main img", (all) => all.length) };
    await page.context().close();
  }
  return found;
}
