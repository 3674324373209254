import { render } from "preact";
import { App } from "./app";
import "./style.css";

const saved = localStorage.getItem("dueline.theme");
document.documentElement.dataset["theme"] = saved ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
render(<App />, document.getElementById("app")!);
