import type { Link } from "../link";
export function Live(props: { link: Link }) { return <p>{props.link.view}</p>; }
