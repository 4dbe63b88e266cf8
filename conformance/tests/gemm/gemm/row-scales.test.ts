/** Products with row scales equal `torch._scaled_mm` on an H200, which cuBLASLt computes with its vectors of scales. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Shape, WideDType } from "../../../../src/tensor/shape.js";
import { download, fromCodes, upload } from "../../../values/plain.js";
import { useBackend } from "../../harness/suite.js";

interface Case {
  readonly seed: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly fast: boolean;
  readonly out: WideDType;
  readonly data: string;
}

const path = new URL("../../../vectors/h100-row-scales.json", import.meta.url);
const { origin, cases } = JSON.parse(readFileSync(path, "utf8")) as {
  readonly origin: { readonly version: string };
  readonly cases: readonly Case[];
};

/** The words of a seed, as scripts/witness/row_scales.py makes them. */
function words(seed: number, count: number): readonly number[] {
  const mask = BigInt(seed * 40503 + 977) * 2246822519n;
  return Array.from({ length: count }, (_, i) => Number(((BigInt(i + 1) * 2654435761n) ^ mask) % 2n ** 32n));
}

function codesOf(seed: number, shape: Shape) {
  const [rows = 0, columns = 0] = shape;
  const codes = words(seed, rows * columns).map((word) => (word >>> 11) & 0xff);
  return fromCodes(
    "e4m3",
    shape,
    codes.map((code) => ((code & 0x7f) === 0x7f ? 0x38 : code)),
  );
}

function scalesOf(seed: number, count: number) {
  const bits = words(seed, count).map((word) => (((word >>> 29) + 118) << 23) | ((word >>> 5) & 0x7fffff));
  return fromCodes("f32", [count, 1], bits);
}

describe(`scales of rows on the hopper datapath, against ${origin.version}`, () => {
  const backend = useBackend({ datapath: "hopper" });

  it.each(cases)("$m x $n x $k into $out, fast accumulation $fast", ({ seed, m, n, k, fast, out, data }) => {
    using _scope = new Scope();
    const operand = (at: number, lines: number) => ({
      data: upload(backend(), codesOf(4 * seed + at, [lines, k])),
      scaleInv: upload(backend(), scalesOf(4 * seed + 2 + at, lines)),
      tile: "1xK" as const,
    });
    const made = gemm({ x: operand(0, m), w: operand(1, n), outDtype: out, useSplitAccumulator: !fast }).out;
    const { codes } = download(made);
    const bytes = Buffer.from(codes.buffer, codes.byteOffset, codes.byteLength);
    expect(bytes.toString("base64")).toBe(data);
  });
});
