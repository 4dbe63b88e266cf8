/** Writes the measured table into the documents. */
import { cpus } from "node:os";
import { writeSection } from "../../scripts/section.mjs";
import { markdown } from "./table.mjs";

const DOCUMENT = "docs/training.md";

/** Writes the table into docs/training.md; returns that path. */
export function writeTable({ rows, notes, digest, device, spent }) {
  const host = `${cpus()[0]?.model.trim()}, Node ${process.version}`;
  const list = notes.map((note) => `- ${note}\n`).join("");
  const origin = `${device}; ${host}; ${spent}; \`npm run demo:train -- --write\`:`;
  const digested = `SHA-256 of every loss of every step: \`${digest}\`.\n`;
  writeSection(DOCUMENT, "demo:train", `${origin}\n\n${markdown(rows)}\n${list}\n${digested}`);
  return DOCUMENT;
}
