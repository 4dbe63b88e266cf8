/** The library chooses the same datapath as the oracle (written from docs/datapath.md) for every pair of operands. */
import { expect, it } from "vitest";
import { DTypeError, UnsupportedError } from "../../../src/errors.js";
import {
  DATAPATHS,
  type DatapathRow,
  datapathFor,
  type OperandTraits,
} from "../../../src/formats/datapath.js";
import { SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { zeros } from "../../../src/ops/create.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { productRule } from "../../oracle/gemm/datapath.js";
import { sampleCases } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

const FAMILIES = ["exact", "fp32", "ada", "hopper", "blackwell"] as const;
const FORMATS = ["f32", ...SCALAR_FORMAT_NAMES] as const;
const SCALINGS: readonly OperandTraits["scales"][] = [
  undefined,
  ...[true, false].flatMap((pow2) =>
    [1, 128].map((lines) => ({ format: "f32", lines, length: 128, pow2 }) as const),
  ),
  { format: "e8m0", lines: 1, length: 32, pow2: true },
  { format: "e4m3", lines: 1, length: 16, pow2: false },
];
/** Every format of the table with every kind of scales, including operands that no quantizer makes. */
const OPERANDS = FORMATS.flatMap((format) =>
  SCALINGS.map((scales): OperandTraits => (scales ? { format, scales } : { format })),
);

type Asked = Parameters<typeof datapathFor>;

/** The library's choice, in the oracle's form. */
function chosen(...asked: Asked): ReturnType<typeof productRule> {
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
    for (const x of sampleCases(OPERANDS, 8, FAMILIES.indexOf(family))) {
      for (const w of OPERANDS) {
        for (const split of [false, true]) {
          const asked: Asked = [family, x, w, split];
          expect(chosen(...asked), JSON.stringify(asked)).toEqual(productRule(...asked));
        }
      }
    }
  },
);

/** The formats that PTX's `mma` and `wgmma` support. Tensor cores multiply no others. */
const MULTIPLIED = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "f16", "tf32"];

it("no family of tensor cores multiplies a format that PTX has no operand type for", () => {
  for (const family of ["ada", "hopper", "blackwell"] as const) {
    for (const x of sampleCases(
      OPERANDS.filter(({ format }) => !MULTIPLIED.includes(format)),
      4,
      family.length,
    )) {
      for (const w of OPERANDS) {
        const orders: readonly Asked[] = [
          [family, x, w, false],
          [family, w, x, true],
        ];
        for (const asked of orders) {
          const choice = datapathFor(...asked);
          expect(choice.ok ? JSON.stringify(asked) : choice.reason).toContain(`datapath ${family}`);
          expect(choice.ok ? "" : choice.reason).toMatch(/use datapath .*(exact|fp32)|encode to/);
        }
      }
    }
  }
});

const isUnsigned = (format: (typeof FORMATS)[number]): boolean =>
  format !== "f32" && !SCALAR_FORMATS[format].signed;

testInScope("both products refuse datapaths that the chip does not have", () => {
  const operand = (format: (typeof FORMATS)[number], batch: readonly number[]) =>
    zeros(backend(), format, [...batch, 32, 32]);
  for (const family of ["ada", "hopper", "blackwell"] as const) {
    for (const a of sampleCases(FORMATS, 4, family.length)) {
      for (const b of FORMATS) {
        const served = productRule(family, { format: b }, { format: a }, false) !== undefined;
        const product = () =>
          gemm({ a: operand(a, []), b: operand(b, []), datapath: family, outDtype: "f32" });
        if (served) expect(product().plan.datapath).toMatch(new RegExp(`^${family}-`));
        else
          expect(product, `${family} ${a} ${b}`).toThrow(
            isUnsigned(a) || isUnsigned(b) ? DTypeError : UnsupportedError,
          );
        const batch = () =>
          batchedGemm({ a: operand(a, [2]), b: operand(b, [2]), datapath: family, outDtype: "f32" });
        const wide = ["f32", "bf16", "f16"].includes(a) && a === b;
        if (served && wide) expect(batch().plan.datapath).toMatch(new RegExp(`^${family}-`));
        else expect(batch, `${family} ${a} ${b}`).toThrow(wide ? UnsupportedError : DTypeError);
      }
    }
  }
});
