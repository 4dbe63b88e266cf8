/** The choice of datapath, held to the oracle's reading of docs/datapath.md for every pair of operands there is. */
import { expect, it } from "vitest";
import { DATAPATHS, type DatapathRow, datapathFor, type OperandTraits } from "../src/formats/datapath.js";
import { SCALAR_FORMAT_NAMES } from "../src/formats/derive.js";
import { servingOf } from "./oracle/datapath.js";

const FAMILIES = ["exact", "fp32", "ada", "hopper", "blackwell"] as const;
const FORMATS = ["f32", ...SCALAR_FORMAT_NAMES.filter((format) => format !== "e8m0")] as const;
const SCALINGS: readonly OperandTraits["scales"][] = [
  undefined,
  ...[true, false].flatMap((pow2) =>
    [1, 128].map((lines) => ({ format: "f32", lines, length: 128, pow2 }) as const),
  ),
  { format: "e8m0", lines: 1, length: 32, pow2: true },
  { format: "e4m3", lines: 1, length: 16, pow2: false },
];
/** The elements that go with each type of scale. */
const ELEMENTS: Record<string, readonly string[]> = {
  f32: FORMATS,
  e8m0: ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"],
  e4m3: ["e2m1"],
};

const OPERANDS = FORMATS.flatMap((format) =>
  SCALINGS.filter((scales) => !scales || ELEMENTS[scales.format]?.includes(format)).map(
    (scales): OperandTraits => (scales ? { format, scales } : { format }),
  ),
);

type Asked = Parameters<typeof datapathFor>;

/** What the library chooses, as the oracle says it. */
function chosen(...asked: Asked): ReturnType<typeof servingOf> {
  const choice = datapathFor(...asked);
  if (!choice.ok) return undefined;
  const { dotAdd, promotionInterval }: DatapathRow = DATAPATHS[choice.name];
  const { name, staging, promotion, splitTile } = choice;
  const rule = dotAdd ?? (name === "exact" ? "exact" : "fp32");
  return { rule, staging, promotion, interval: promotion === "none" ? 0 : promotionInterval, splitTile };
}

it.each(FAMILIES)(
  "%s multiplies what the documents have a row for, by that row, and nothing else",
  (family) => {
    for (const x of OPERANDS) {
      for (const w of OPERANDS) {
        for (const split of [false, true]) {
          const asked: Asked = [family, x, w, split];
          expect(chosen(...asked), JSON.stringify(asked)).toEqual(servingOf(...asked));
        }
      }
    }
  },
);
