// First paint (the median of several loads), then frames per second while panning and zooming by keys for three seconds.
async function frames(page, keys) {
  return page.evaluate(async (pressed) => {
    const timeline = document.querySelector(".timeline"), count = () => performance.getEntriesByName("wattflow-painted").length;
    const before = count(), start = performance.now();
    for (let k = 0; performance.now() - start < 3000; k++) {
      timeline.dispatchEvent(new KeyboardEvent("keydown", { key: pressed[k % pressed.length], bubbles: true }));
      await new Promise((go) => requestAnimationFrame(go));
    }
    return ((count() - before) / (performance.now() - start)) * 1000;
  }, keys);
}

export default async function ({ open, painted }, { path, loads }) {
  const first = [];
  let page;
  for (let k = 0; k < loads; k++) {
    if (page) await page.context().close();
    page = await open(path);
    await page.waitForFunction(() => performance.getEntriesByName("wattflow-painted").length, null, { timeout: 120000 });
    first.push(await page.evaluate(() => performance.getEntriesByName("wattflow-painted")[0].startTime));
  }
  await painted(page);
  await page.waitForTimeout(1500);
  await page.evaluate(() => document.querySelector(".timeline").dispatchEvent(new KeyboardEvent("keydown", { key: "+" })));
  const pan = await frames(page, ["d", "d", "d", "d", "a", "a", "a", "a"]);
  const zoom = await frames(page, ["w", "w", "w", "w", "w", "w", "s", "s", "s", "s", "s", "s"]);
  return { first_s: first.sort((a, b) => a - b)[Math.floor(first.length / 2)] / 1000, pan, zoom };
}
