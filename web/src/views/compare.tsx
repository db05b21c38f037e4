import type { Link } from "../link";
export function Compare(props: { link: Link }) { return <p>{props.link.view}</p>; }
