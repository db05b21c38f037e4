// Every view in both schemes: violations of axe, and the numbers drawn; then at the width of a phone.
export default async function ({ open, painted, drawn, violations }, { views, ready, pictures }) {
  const found = {};
  for (const scheme of ["light", "dark"]) {
    for (const [name, path] of Object.entries(views)) {
      const page = await open(path, { scheme, motion: "reduce" });
      await page.waitForSelector(ready[name] ?? "h2");
      if (await page.$(".timeline")) await painted(page);
      found[`${name} ${scheme}`] = { violations: await violations(page), drawn: scheme === "light" ? await drawn(page) : null };
      if (pictures && (scheme === "light" || name === "run")) await page.screenshot({ path: `${pictures}/dashboard-${name}${scheme === "dark" ? "-dark" : ""}.png`, fullPage: name !== "run" });
      await page.context().close();
    }
  }
  for (const [name, path] of Object.entries(views)) {
    const page = await open(path, { width: 390, height: 800 });
    await page.waitForSelector(ready[name] ?? "h2");
    if (await page.$(".timeline")) await painted(page);
    found[`${name} phone`] = { width: await page.evaluate(() => document.documentElement.scrollWidth), violations: await violations(page) };
    if (pictures && name === "run") await page.screenshot({ path: `${pictures}/dashboard-phone.png` });
    await page.context().close();
  }
  return found;
}
