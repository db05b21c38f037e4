import { render } from "preact";
import { App } from "./app";
import { expose } from "./drawn";
import { mountReport } from "./report";
import "./style.css";

expose();
// A report carries its runs within itself; the server's page asks for them.
const app = document.getElementById("app");
if (app) render(<App />, app);
else mountReport();
