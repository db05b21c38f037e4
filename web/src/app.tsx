// The frame: who is logged in, which views there are, and the one that the address names.

import { useEffect, useState } from "preact/hooks";
import { LOGGED_OUT, page, logout, login, type Page } from "./data/api";
import { Trouble as Told } from "./data/columns";
import { href, useLink } from "./link";
import { Shown, Trouble, useLoad } from "./parts/load";
import { Runs } from "./views/runs";
import { RunView } from "./views/run";
import { Compare } from "./views/compare";
import { Live } from "./views/live";
import { Login } from "./views/login";
import { Profiles } from "./views/profiles";
import { WhatIf } from "./views/whatif";
import { WorkflowView } from "./views/workflow";

const TITLES: Record<string, string> = { runs: "Runs", live: "Live", compare: "Compare", "what-if": "What-if", profiles: "Profiles" };

export function App() {
  const link = useLink(), [given] = useState(() => (location.hash.startsWith("#code=") ? new URLSearchParams(location.hash.slice(1)) : null));
  const [code, setCode] = useState(given?.get("code") ?? null);
  const [failed, setFailed] = useState<string | null>(null);
  const loaded = useLoad(`page ${code ?? ""}`, page);
  useEffect(() => {
    if (!code) return;
    // The code is good once: it leaves the address before anything else can read it there.
    const run = given?.get("run");
    history.replaceState(null, "", run ? href("run", run) : "#/");
    login({ code }).catch((error: unknown) => setFailed(error instanceof Told ? "The code in the address is used up or another page's: run `wattflow view` again." : "The link could not be used.")).finally(() => { setCode(null); dispatchEvent(new HashChangeEvent("hashchange")); });
  }, []);
  useEffect(() => { document.title = `${TITLES[link.view] ?? (link.view || "wattflow")}${link.id ? ` ${link.id}` : ""} · wattflow`; }, [link.view, link.id]);
  return (
    <>
      {failed && <Trouble text={failed} />}
      {code ? <p class="quiet" role="status">Logging in …</p> : <Shown loaded={loaded} what="the page">{(found) => <Frame page={found} refresh={loaded.again} />}</Shown>}
    </>
  );
}

function Frame(props: { page: Page; refresh: () => void }) {
  const { page: found, refresh } = props, link = useLink(), files = found.mode === "files";
  const views = Object.keys(TITLES).filter((view) => !files || ["runs", "compare", "profiles"].includes(view));
  const out = found.session === null, [ended, setEnded] = useState(false);
  useEffect(() => {
    const over = (): void => { setEnded(true); refresh(); };
    addEventListener(LOGGED_OUT, over);
    return () => removeEventListener(LOGGED_OUT, over);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <header>
        <h1><a href="#/">wattflow</a></h1>
        {!out && <nav aria-label="Views">{views.map((view) => <a key={view} href={href(view)} aria-current={link.view === view || (view === "runs" && !link.view) ? "page" : undefined}>{TITLES[view]}</a>)}</nav>}
        <span class="who">{found.session && !files ? <>{found.session.name} <button type="button" onClick={() => { void logout().finally(refresh); }}>Log out</button></> : files ? "files" : ""}</span>
      </header>
      <main id="main" tabIndex={-1}>{out ? files ? <Trouble text="Open the address that `wattflow view` printed: it holds the code that lets you in." /> : <Login ended={ended} done={() => { setEnded(false); refresh(); }} /> : <View page={found} />}</main>
      <footer class="quiet">wattflow {found.wattflow}</footer>
    </>
  );
}

function View(props: { page: Page }) {
  const link = useLink();
  switch (link.view) {
    case "": case "runs": return <Runs />;
    case "run": return <RunView link={link} />;
    case "compare": return <Compare link={link} />;
    case "live": return <Live link={link} />;
    case "what-if": return <WhatIf page={props.page} />;
    case "profiles": return <Profiles link={link} page={props.page} />;
    case "workflow": return <WorkflowView link={link} />;
    default: return <Trouble text={`There is no view named ${link.view}: choose one above.`} />;
  }
}
