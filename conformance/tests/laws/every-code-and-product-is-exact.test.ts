/** Exhaustive tests that are fast enough for every run: every code, and every product of two 8-bit codes. */
import { describe, expect } from "vitest";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { decode, encode, OVERFLOWS, ROUNDINGS } from "../../../src/ops/cast/cast.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { bitsOf, f32, fromBits, ofNumber, times } from "../../oracle/core/rational.js";
import * as oracle from "../../oracle/core/scalar.js";
import { assertSame } from "../../values/difference.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

function allCodes(format: ScalarFormat): PlainTensor {
  const count = 2 ** factsOf(format).bits;
  return fromCodes(
    format,
    [count],
    Uint32Array.from({ length: count }, (_, code) => code),
  );
}

/** The values of all codes as f32 bit patterns. */
function allValues(format: ScalarFormat): Uint32Array {
  return Uint32Array.from(allCodes(format).codes, (code) =>
    bitsOf(oracle.decode(code, SCALAR_FORMATS[format])),
  );
}

describe("every code", () => {
  for (const format of SCALAR_FORMAT_NAMES) {
    const codes = allCodes(format);
    const values = fromCodes("f32", codes.shape, allValues(format));

    testInScope(`of ${format} decodes to its value`, () => {
      assertSame("values", download(decode(upload(backend(), codes))), values);
    });

    testInScope(`a finite code of ${format} is the encoding of its value under every rounding`, () => {
      const x = upload(backend(), values);
      // encoding does not write the least code of a symmetric integer
      const minusZeroCode = SCALAR_FORMATS[format].specials === "symmetric" ? values.codes.length / 2 : -1;
      const numbers = Array.from(
        values.codes,
        (bits, code) => Number.isFinite(fromBits(bits)) && code !== minusZeroCode,
      );
      for (const rounding of ROUNDINGS) {
        for (const overflow of OVERFLOWS) {
          const back = download(encode(x, { format, rounding, overflow, seed: 1n })).codes;
          const wrongCode = numbers.findIndex((finite, code) => finite && back[code] !== code);
          expect(wrongCode, `${rounding} ${overflow}`).toBe(-1);
        }
      }
    });
  }
});

/** The f32 product, rounded once. For two 8-bit codes it is exact. */
function product(a: number, b: number): number {
  if (!Number.isFinite(a) || !Number.isFinite(b)) return a * b;
  return f32(times(ofNumber(a), ofNumber(b))) + 0;
}

describe("every product of two codes", () => {
  for (const xFormat of ["e4m3", "e5m2"] as const) {
    for (const wFormat of ["e4m3", "e5m2"] as const) {
      const [lefts, rights] = [allValues(xFormat), allValues(wFormat)].map((bits) =>
        Array.from(bits, fromBits),
      );
      const products = rights?.flatMap((y) => lefts?.map((x) => bitsOf(product(x, y))) ?? []) ?? [];

      for (const datapath of ["exact", "fp32", "hopper"] as const) {
        testInScope(`${xFormat} by ${wFormat}, alone in its sum, is exact on datapath ${datapath}`, () => {
          const column = (format: ScalarFormat) => upload(backend(), allCodes(format)).reshape([256, 1]);
          const { out } = gemm({ a: column(xFormat), b: column(wFormat), datapath, outDtype: "f32" });
          assertSame("products", download(out), fromCodes("f32", [256, 256], products));
        });
      }
    }
  }
});
