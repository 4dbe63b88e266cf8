/** The page. */
import { render } from "preact";
import { App } from "./app.js";
import { openReference } from "./reference/index.js";
import "./style.css";

const place = document.getElementById("page");
if (!place) throw new Error("the document has no element #page");
render(<App backend={await openReference()} />, place);
