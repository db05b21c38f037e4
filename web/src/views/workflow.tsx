import type { Link } from "../link";
export function WorkflowView(props: { link: Link }) { return <p>{props.link.view}</p>; }
