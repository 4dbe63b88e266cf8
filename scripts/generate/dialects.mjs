// Generates the table of docs/conformance.md about other libraries' quantizers, from conformance/vectors/dialects.
import { readdir, readFile } from "node:fs/promises";

const FOLDER = "conformance/vectors/dialects";

/** One row per package or repository: its version, its dialects, and the number of cases it was asked. */
export async function dialectRows() {
  const names = (await readdir(FOLDER)).filter((name) => name.endsWith(".json")).sort();
  return Promise.all(
    names.map(async (name) => {
      const { origin, dialects } = JSON.parse(await readFile(`${FOLDER}/${name}`, "utf8"));
      const cases = dialects.flatMap((dialect) => dialect.cases);
      const elements = cases.reduce(
        (sum, { shape }) => sum + shape.reduce((product, size) => product * size, 1),
        0,
      );
      const exact = cases.every(({ model, raises }) => model === "exact" || raises);
      const listed = dialects.map(({ dialect }) => `\`${dialect}\``).join(", ");
      const version = origin.version.replace(/[0-9a-f]{40}/, (commit) => commit.slice(0, 12));
      return [origin.package, version, listed, elements.toLocaleString("en-US"), exact ? "all" : "not all"];
    }),
  );
}
