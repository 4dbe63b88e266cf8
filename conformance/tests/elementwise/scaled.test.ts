/** The operation `scaled`: its definition for every division of the work, laws, threads and refusals. */
import { beforeAll, describe, expect, it, test } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/scaled.js";
import * as oracle from "../../oracle/elementwise/scaled.js";
import { download } from "../../values/plain.js";
import { anyF32, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { seeded } from "../harness/draws.js";
import { describeLaws, sameOnAll, scoped, useBackend, useThreads } from "../harness/suite.js";

let stems: Stems;
beforeAll(async () => {
  stems = await openStems("elementwise/scaled");
});

const backend = useBackend();
const CUTS = [
  [0, 32],
  [64, 1101],
  [32, 64],
] as const;
const X = [...SPECIALS, ...anyF32(500, 3), ...evenF32(591, 4, 5)];
const FACTORS = [...SPECIALS, ...[0.1, -3, 2 ** -24, 2 ** 100].map(Math.fround)];

describe.each(WIDE_TYPES)("x of $name", (x) => {
  test.each(WIDE_TYPES)(
    "into $name has the rounded product by any factor, however the range is divided among threads",
    (into) => {
      const values = X.map(x.round);
      for (const factor of FACTORS) {
        const expected = oracle.scaled(values, factor).map(into.round);
        for (const inPlace of into === x ? [false, true] : [false]) {
          stems.reset();
          const [scratch, source] = [stems.room(1 << 14), stems.putWide(x.type, values)];
          const target = inPlace ? source : stems.room(4 * X.length);
          for (const [begin, end] of CUTS)
            stems.call.scaled!(source, x.type, target, into.type, factor, scratch, begin, end);
          expect(stems.getWide(into.type, target, X.length)).toEqual(expected);
        }
      }
    },
  );
});

describe("the result", () => {
  scoped("has the type of x by default", () => {
    const x = empty(backend(), "bf16", [2]);
    expect([scaled(x, 2).dtype, scaled(x, 2, { outDtype: "f16" }).dtype]).toEqual(["bf16", "f16"]);
  });

  scoped("is the product by the factor rounded to f32", () => {
    const x = tensor(backend(), [1, 3, -0]);
    expect([...scaled(x, 0.1).dataSync()]).toEqual([0.1, Math.fround(0.1) * 3, -0].map(Math.fround));
    expect([...scaled(x, 1e39).dataSync()]).toEqual([1 / 0, 1 / 0, Number.NaN]);
  });

  scoped("is rounded once, and overflows to infinity", () => {
    const x = tensor(backend(), [65504, 257 / 3, 2 ** 127]);
    expect([...scaled(x, 3, { outDtype: "bf16" }).dataSync()]).toEqual([0x4840, 0x4380, 0x7f80]);
    expect([...scaled(x, 2, { outDtype: "f16" }).dataSync()]).toEqual([0x7c00, 0x595b, 0x7c00]);
  });

  scoped("is written to the given output, which may be x", () => {
    const [x, out] = [tensor(backend(), [1, 2]), empty(backend(), "bf16", [2])];
    expect(scaled(x, 3, { out })).toBe(out);
    expect([...out.dataSync(), ...x.dataSync()]).toEqual([0x4040, 0x40c0, 1, 2]);
    expect(scaled(x, 3, { out: x, outDtype: "f32" })).toBe(x);
    expect([...x.dataSync()]).toEqual([3, 6]);
  });

  scoped("of an empty tensor is empty", () => {
    expect(scaled(empty(backend(), "f32", [0, 3]), 2).shape).toEqual([0, 3]);
  });
});

describe("refuses", () => {
  scoped("tensors that do not fit", () => {
    const [x, codes] = [tensor(backend(), [1, 2]), empty(backend(), "e4m3", [2])];
    expect(() => scaled(codes, 2)).toThrow(DTypeError);
    expect(() => scaled(x, 2, { out: codes })).toThrow(DTypeError);
    expect(() => scaled(x, 2, { out: tensor(backend(), [1, 2], [1, 2]) })).toThrow(ShapeError);
    expect(() => scaled(x, 2, { out: x, outDtype: "bf16" })).toThrow("out is f32 and outDtype bf16");
  });

  it("tensors of two backends", async () => {
    const other = await openBackend("wasm", { threads: 1 });
    const [x, out] = [tensor(backend(), [1]), tensor(other, [1])];
    expect(() => scaled(x, 2, { out })).toThrow(ArgumentError);
    x.dispose();
    out.dispose();
    await other.dispose();
  });
});

sameOnAll("threads do not change a bit", useThreads(), (each) => {
  const x = tensor(
    each,
    Float32Array.from({ length: 500_003 }, (_, i) => ((i * 7) % 1013) / 7),
  );
  const product = download(scaled(x, 1 / 3, { outDtype: "bf16" }));
  return { product, inPlace: download(scaled(x, 1 / 3, { out: x })) };
});

describeLaws(useBackend({ threads: 2 }), ["scaled"], { runs: 300, seed: seeded(31) });
