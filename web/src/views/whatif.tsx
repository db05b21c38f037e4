import type { Page } from "../data/api";
export function WhatIf(props: { page: Page }) { return <p>{props.page.mode}</p>; }
