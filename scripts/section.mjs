// Reads and writes the generated section of a document, between <!-- mark --> and <!-- /mark -->.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/**
 * Replaces the section of a document; the path is relative to the project's root. Throws if the document lacks the
 * marks.
 */
export function writeSection(document, mark, text) {
  const path = fileURLToPath(new URL(`../${document}`, import.meta.url));
  const page = readFileSync(path, "utf8");
  const [opening, closing] = [`<!-- ${mark} -->`, `<!-- /${mark} -->`];
  const [start, end] = [page.indexOf(opening), page.indexOf(closing)];
  if (start < 0 || end < start) throw new Error(`${document} has no place between ${opening} and ${closing}`);
  writeFileSync(path, `${page.slice(0, start)}${opening}\n${text}${page.slice(end)}`);
}
