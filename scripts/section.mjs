// The measured part of a document, between <!-- mark --> and <!-- /mark -->.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Replaces that part of a document, which is named from the project's folder; throws where it has none. */
export function writeSection(document, mark, text) {
  const path = fileURLToPath(new URL(`../${document}`, import.meta.url));
  const page = readFileSync(path, "utf8");
  const [opening, closing] = [`<!-- ${mark} -->`, `<!-- /${mark} -->`];
  const [start, end] = [page.indexOf(opening), page.indexOf(closing)];
  if (start < 0 || end < start) throw new Error(`${document} has no place between ${opening} and ${closing}`);
  writeFileSync(path, `${page.slice(0, start)}${opening}\n${text}${page.slice(end)}`);
}
