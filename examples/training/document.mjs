/** The measured table in the documents, between its marks. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { markdown } from "./table.mjs";

const NAME = "docs/training.md";
const PATH = fileURLToPath(new URL(`../../${NAME}`, import.meta.url));
const [START, END] = ["<!-- demo:train -->", "<!-- /demo:train -->"];
const NEW = `# Training\n\n${START}\n${END}\n`;

/** Replaces what is between the marks of docs/training.md, and returns its name in the project. */
export function writeTable({ rows, notes, digest, device, spent }) {
  const text = existsSync(PATH) ? readFileSync(PATH, "utf8") : NEW;
  const [start, end] = [text.indexOf(START), text.indexOf(END)];
  if (start < 0 || end < start) throw new Error(`${NAME} has no place for the table: ${START} and ${END}`);
  const host = `${cpus()[0]?.model.trim()}, Node ${process.version}`;
  const list = notes.map((note) => `- ${note}\n`).join("");
  const origin = `${device}; ${host}; ${spent}; \`npm run demo:train -- --write\`:`;
  const block = `${START}\n${origin}\n\n${markdown(rows)}\n${list}\nSHA-256 of every loss of every step: \`${digest}\`.\n`;
  writeFileSync(PATH, text.slice(0, start) + block + text.slice(end));
  return NAME;
}
