/** The operation `add`: its definition for every division of the work, laws, threads and refusals. */
import { beforeAll, describe, expect, it, test } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/add.js";
import * as oracle from "../../oracle/elementwise/add.js";
import { download } from "../../values/plain.js";
import { anyF32, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { seeded } from "../harness/draws.js";
import { describeLaws, sameOnAll, scoped, useBackend, useThreads } from "../harness/suite.js";

let stems: Stems;
beforeAll(async () => {
  stems = await openStems("elementwise/add");
});

const backend = useBackend();
const CUTS = [
  [0, 32],
  [64, 1101],
  [32, 64],
] as const;
const LENGTH = 1101;

/** Every pair of special values, then numbers of any size. */
const X = [...SPECIALS.flatMap((x) => SPECIALS.map(() => x)), ...anyF32(500, 3), ...evenF32(501, 4, 5)];
const Y = [...SPECIALS.flatMap(() => SPECIALS), ...anyF32(500, 7), ...evenF32(501, 4, 11)];

describe.each(WIDE_TYPES)("x of $name", (x) => {
  test.each(WIDE_TYPES)(
    "and y of $name give the rounded sum in each output type and in place, however the range is divided among threads",
    (y) => {
      const [left, right] = [X.map(x.round), Y.map(y.round)];
      const sums = oracle.add(left, right);
      for (const out of [...WIDE_TYPES.map((into) => ({ into, place: "new" })), { into: x, place: "x" }]) {
        stems.reset();
        const scratch = stems.room(1 << 14);
        const [a, b, fresh] = [
          stems.putWide(x.type, left),
          stems.putWide(y.type, right),
          stems.room(4 * LENGTH),
        ];
        const target = out.place === "x" ? a : fresh;
        for (const [begin, end] of CUTS)
          stems.call.add!(a, x.type, b, y.type, target, out.into.type, scratch, begin, end);
        expect(stems.getWide(out.into.type, target, LENGTH)).toEqual(sums.map(out.into.round));
      }
    },
  );
});

describe("the result", () => {
  scoped("has the type of x by default", () => {
    const [x, y] = [empty(backend(), "bf16", [2]), tensor(backend(), [1, 2])];
    expect([add(x, y).dtype, add(y, x).dtype, add(x, y, { outDtype: "f16" }).dtype]).toEqual([
      "bf16",
      "f32",
      "f16",
    ]);
  });

  scoped("is rounded once, and overflows to infinity", () => {
    const [x, y] = [tensor(backend(), [65504, 256, 2 ** 127]), tensor(backend(), [16, 1, 2 ** 127])];
    expect([...add(x, y, { outDtype: "f16" }).dataSync()]).toEqual([0x7c00, 0x5c04, 0x7c00]);
    expect([...add(x, y, { outDtype: "bf16" }).dataSync()]).toEqual([0x4780, 0x4380, 0x7f80]);
  });

  scoped("is written to the given output, which may be x, y or both", () => {
    const [x, y, out] = [
      tensor(backend(), [1, 2]),
      tensor(backend(), [10, 20]),
      empty(backend(), "f32", [2]),
    ];
    expect(add(x, y, { out })).toBe(out);
    expect([...out.dataSync(), ...x.dataSync(), ...y.dataSync()]).toEqual([11, 22, 1, 2, 10, 20]);
    add(x, y, { out: y });
    expect([...y.dataSync()]).toEqual([11, 22]);
    add(x, x, { out: x });
    expect([...x.dataSync()]).toEqual([2, 4]);
  });

  scoped("of empty tensors is empty", () => {
    expect(add(empty(backend(), "f32", [0, 3]), empty(backend(), "f16", [0, 3])).shape).toEqual([0, 3]);
  });
});

describe("refuses", () => {
  scoped("tensors that do not fit", () => {
    const [x, codes] = [tensor(backend(), [1, 2]), empty(backend(), "e4m3", [2])];
    expect(() => add(x, tensor(backend(), [1, 2], [1, 2]))).toThrow(ShapeError);
    expect(() => add(x, x, { out: tensor(backend(), [1]) })).toThrow(ShapeError);
    expect(() => add(x, codes)).toThrow(DTypeError);
    expect(() => add(codes, x)).toThrow(DTypeError);
    expect(() => add(x, x, { out: codes })).toThrow(DTypeError);
    expect(() => add(x, x, { out: x, outDtype: "bf16" })).toThrow("out is f32 and outDtype bf16");
  });

  it("tensors of two backends", async () => {
    const other = await openBackend("wasm", { threads: 1 });
    const [x, y] = [tensor(backend(), [1]), tensor(other, [1])];
    expect(() => add(x, y)).toThrow(ArgumentError);
    expect(() => add(x, x, { out: y })).toThrow(ArgumentError);
    x.dispose();
    y.dispose();
    await other.dispose();
  });
});

sameOnAll("threads do not change a bit", useThreads(), (each) => {
  const wave = (seed: number) =>
    tensor(
      each,
      Float32Array.from({ length: 500_003 }, (_, i) => ((i * seed) % 1013) / 7),
    );
  const [x, y] = [wave(7), wave(11)];
  const sum = download(add(x, y, { outDtype: "bf16" }));
  return { sum, inPlace: download(add(x, y, { out: x })) };
});

describeLaws(useBackend({ threads: 2 }), ["add"], { runs: 300, seed: seeded(31) });
