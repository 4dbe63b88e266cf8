/** docs/from-transformer-engine.md names everything public in TransformerEngine, with a counterpart or a reason. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ROOT } from "../harness/sources/sources.js";

const PAGE = readFileSync(`${ROOT}docs/from-transformer-engine.md`, "utf8");
const LIST: { readonly version: string; readonly names: readonly string[] } = JSON.parse(
  readFileSync(`${ROOT}conformance/vectors/te-names.json`, "utf8"),
);

interface Row {
  /** The identifiers of the first cell. */
  readonly names: ReadonlySet<string>;
  readonly counterpart: string;
  readonly remark: string;
}

/** The rows of the page's tables of names: TransformerEngine's, the project's, a remark. */
function rowsOf(page: string): Row[] {
  return page
    .split("\n")
    .filter((line) => line.startsWith("|") && !line.startsWith("|--"))
    .map((line) => line.slice(1, -1).split("|"))
    .filter(({ length }) => length === 3)
    .map(([names = "", counterpart = "", remark = ""]) => ({
      names: new Set(identifiersIn(names)),
      counterpart: counterpart.trim(),
      remark: remark.trim(),
    }));
}

/** The identifiers between backticks. A prefix that only names the package is removed. */
function identifiersIn(cell: string): string[] {
  const code = Array.from(cell.matchAll(/`([^`]*)`/g), ([, span = ""]) => span);
  return code
    .flatMap((span) => span.match(/[A-Za-z_][\w.]*/g) ?? [])
    .map((name) => name.replace(/^(te|tex)\./, ""));
}

/** Whether a row is about a name. A method may stand beside its class: "`Quantizer`: `quantize`". */
function isAbout({ names }: Row, name: string): boolean {
  const [owner = "", member] = name.split(".");
  const isOwnedMember = member !== undefined && owner !== "ops" && names.has(owner) && names.has(member);
  return isOwnedMember || names.has(name);
}

describe("docs/from-transformer-engine.md", () => {
  const rows = rowsOf(PAGE);

  it("has a row for each public name of TransformerEngine's PyTorch package", () => {
    expect(LIST.names.length).toBeGreaterThan(250);
    expect(LIST.names.filter((name) => !rows.some((row) => isAbout(row, name)))).toEqual([]);
  });

  it("says why something is not here, and has a name where something is", () => {
    const absentRows = rows.filter(({ counterpart }) => counterpart === "not here");
    expect(absentRows.filter(({ remark }) => remark === "").map(({ names }) => [...names])).toEqual([]);
    const unnamedRows = rows.filter(
      (row) => row.names.size > 0 && !absentRows.includes(row) && !/`|the same/.test(row.counterpart),
    );
    expect(unnamedRows.map(({ names }) => [...names])).toEqual([]);
  });

  it("says which version the list of names has", () => {
    expect(PAGE).toContain(`TransformerEngine ${LIST.version}`);
  });
});
