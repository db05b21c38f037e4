import type { Link } from "../link";
export function Profiles(props: { link: Link }) { return <p>{props.link.view}</p>; }
