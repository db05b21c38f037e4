// Every file that a run can be saved as.
export default async function ({ open, painted }, { path, folder }) {
  const page = await open(path), found = {};
  await painted(page);
  for (const name of ["PNG", "SVG", "CSV", "WfFormat", "Perfetto"]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(`[aria-label=Save] button:text-is("${name}")`)]);
    found[name] = download.suggestedFilename();
    await download.saveAs(`${folder}/${name}`);
  }
  return found;
}
