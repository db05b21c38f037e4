// The address that `wattflow view` prints logs in by its code, which leaves the address; without it nothing is shown.
export default async function ({ open, painted, drawn, address }, { login }) {
  const page = await open(login);
  await painted(page);
  const hash = new URL(page.url()).hash;
  const stranger = await open(new URL("/", address).href);
  await stranger.waitForSelector(".trouble");
  return { hash, drawn: (await drawn(page)).run, stranger: await stranger.textContent(".trouble") };
}
