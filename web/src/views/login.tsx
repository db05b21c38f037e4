// Token in, session cookie out: the token is kept nowhere in the page.

import { useState } from "preact/hooks";
import { login } from "../data/api";
import { Trouble as Told } from "../data/columns";
import { Trouble } from "../parts/load";

export function Login(props: { done: () => void; ended: boolean }) {
  const [token, setToken] = useState(""), [trouble, setTrouble] = useState<string | null>(null);
  const send = (event: Event): void => {
    event.preventDefault();
    login({ token: token.trim() }).then(props.done, (error: unknown) => setTrouble(error instanceof Told ? refusal(error.message) : "The server could not log you in."));
  };
  return (
    <section class="login" aria-labelledby="login-title">
      <h2 id="login-title">Log in</h2>
      {props.ended && <Trouble text="The session is over: log in again to go on where you were." />}
      <p>Paste a token of this server; <code>wattflow view</code> logs in without one.</p>
      <form onSubmit={send}>
        <label>Token <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>
        <button type="submit" disabled={!token.trim()}>Log in</button>
      </form>
      {trouble && <Trouble text={trouble} />}
    </section>
  );
}

const refusal = (said: string): string => (said.startsWith("The session") ? "The server does not know this token." : said);
