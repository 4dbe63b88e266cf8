/** Sums that are zero or underflow, with factors and addends of either sign, equal cuBLASLt's on an H100. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import type { GemmInput } from "../../../../src/ops/gemm/operand.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { download } from "../../../values/plain.js";
import { useBackend } from "../../harness/suite.js";

type Element = "bf16" | "f16" | "e4m3";
type Sum = "zeros" | "minusZeros" | "cancelInside" | "cancelAcross" | "underflow";
type Case = readonly [
  type: Element,
  out: WideDType,
  sum: Sum,
  alpha: string,
  scaleA: string,
  scaleB: string,
  beta: number,
  c: string,
  bits: string,
];

const path = new URL("../../../vectors/h100-zero-sums.json", import.meta.url);
const { origin, cases } = JSON.parse(readFileSync(path, "utf8")) as {
  readonly origin: { readonly version: string; readonly depth: number };
  readonly cases: readonly Case[];
};
const DEPTH = origin.depth;

/** The codes of 1, 2 and a small normal number, and the sign bit. */
const CODES = {
  bf16: { one: 0x3f80, two: 0x4000, sign: 0x8000, tiny: 0x1f80 },
  f16: { one: 0x3c00, two: 0x4000, sign: 0x8000, tiny: 0x0400 },
  e4m3: { one: 0x38, two: 0x40, sign: 0x80, tiny: 0x08 },
} as const;

/** Element k of a line that is multiplied by ones, as scripts/witness/zero_sums.cc makes it. */
function element(type: Element, sum: Sum, k: number): number {
  const { one, two, sign, tiny } = CODES[type];
  if (sum === "minusZeros") return sign;
  if (sum === "cancelInside") return [one, one | sign, two | sign, two][k & 3] as number;
  if (sum === "underflow") return k === 5 ? tiny : 0;
  if (sum === "zeros") return 0;
  const [quarter, at] = [Math.floor(k / (DEPTH / 4)), k % (DEPTH / 4)];
  if (quarter === 2) return [two, one][at] ?? 0;
  return at > 0 ? 0 : ([one, two | sign, 0, two | sign][quarter] as number);
}

/** Parses a double in the format of C's %a. */
function hexFloat(text: string): number {
  const [, sign = "", whole = "", exponent = ""] = /^(-?)0x([01])p([+-]\d+)$/.exec(text) ?? [];
  return (sign ? -1 : 1) * Number(whole) * 2 ** Number(exponent);
}

describe(`split-K of the hopper datapath, against ${origin.version} on an H100`, () => {
  const backend = useBackend({ datapath: "hopper" });

  function product([type, outDtype, sum, alpha, scaleA, scaleB, beta, c]: Case, splitK: number): string {
    using _scope = new Scope();
    const line = (codes: readonly number[], scale: string): GemmInput => {
      const bytes = type === "e4m3" ? Uint8Array.from(codes) : Uint16Array.from(codes);
      const data = tensor(backend(), bytes, [1, DEPTH], type);
      return type === "e4m3"
        ? { data, scaleInv: tensor(backend(), [hexFloat(scale)]), tile: "tensor" }
        : data;
    };
    const ks = Array.from({ length: DEPTH }, (_, k) => k);
    const a = line(
      ks.map((k) => element(type, sum, k)),
      scaleA,
    );
    const b = line(
      ks.map(() => CODES[type].one),
      scaleB,
    );
    const addend = tensor(backend(), [c === "-0" ? -0 : 0], [1, 1]);
    const added = beta === 0 ? {} : { c: addend, beta };
    const { out } = gemm({ a, b, alpha: hexFloat(alpha), outDtype, splitK, ...added });
    return (download(out).codes[0] as number).toString(16).padStart(outDtype === "f32" ? 8 : 4, "0");
  }

  it.each(["bf16", "f16", "e4m3"])("%s: zeros have the same signs", (type) => {
    const own = cases.filter(([each]) => each === type);
    expect(own.length).toBeGreaterThan(200);
    for (const each of own) {
      const got = [1, 2, 3, 4].map((splitK) => product(each, splitK));
      expect(got.join(" "), JSON.stringify(each)).toBe(each.at(-1));
    }
  });

  it("the recorded cases include one part giving +0 and several giving -0", () => {
    const differ = cases.filter((testCase) => /^0+ (80+ ?)+$/.test(testCase.at(-1) as string));
    expect(differ.length).toBeGreaterThan(100);
  });
});
