// Bars where they belong: the pixel in the middle of an attempt has its function's colour, and pointing there names it.
export default async function ({ open, painted, drawn }, { path, count }) {
  const page = await open(path), found = [];
  await painted(page);
  const box = await (await page.$(".timeline")).boundingBox();
  for (let k = 0; k < count; k++) {
    await page.focus(".timeline");
    for (let step = 0; step < (k ? 7 : 1); step++) await page.keyboard.press("n");
    await page.waitForTimeout(60);
    const { place } = (await drawn(page)).run;
    if (!place || place.width < 8) continue;
    const x = place.x + place.width - 3, y = place.y + place.height / 2 - 1;
    const colour = await page.evaluate(([left, top]) => [...document.querySelector("canvas.chart").getContext("2d").getImageData(left, top, 1, 1).data].slice(0, 3), [x, y]);
    const title = await page.textContent("#task-panel h3"), name = await page.textContent("#task-panel dd");
    const key = await page.evaluate((text) => { const own = [...document.querySelectorAll(".legend .key")].find((each) => each.textContent === text); return own ? getComputedStyle(own.querySelector("i")).backgroundColor : null; }, name);
    await page.mouse.move(box.x + x, box.y + y);
    await page.waitForTimeout(40);
    found.push({ title, tip: await page.textContent(".tip div"), colour: `rgb(${colour.join(", ")})`, key });
  }
  return found;
}
