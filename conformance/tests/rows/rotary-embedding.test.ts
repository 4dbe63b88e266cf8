/** Rotary embeddings: laws, threads, the inverse, and refusals. */
import { describe, expect } from "vitest";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { tensor } from "../../../src/ops/create.js";
import { rotaryEmbedding } from "../../../src/ops/rows/rotary-embedding.js";
import { assertSameAnswer } from "../../laws/laws.js";
import {
  type RotaryEmbeddingCase,
  rotaryEmbeddingOperation,
} from "../../operations/rows/rotary-embedding.js";
import { download, fromCodes, type PlainTensor } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const f32 = (values: readonly number[], shape: readonly number[]) => tensor(backend(), values, shape);
const i32 = (values: readonly number[]) => tensor(backend(), Int32Array.from(values), undefined, "i32");
/** A quarter turn at position 1, none at position 0. */
const quarters = () => [f32([1, 1, 0, 0], [2, 2]), f32([0, 0, 1, 1], [2, 2])] as const;

describe("a rotary embedding", () => {
  testInScope("rotates the two halves of the rotated elements, and copies the rest", () => {
    const x = f32([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], [1, 2, 1, 5]);
    expect([...rotaryEmbedding(x, ...quarters()).dataSync()]).toEqual([1, 2, 3, 4, 5, -3, -4, 1, 2, 5]);
  });

  testInScope("rotates neighbours if interleaved", () => {
    const x = f32([1, 2, 3, 4, 1, 2, 3, 4], [1, 2, 1, 4]);
    const out = rotaryEmbedding(x, ...quarters(), { interleaved: true });
    expect([...out.dataSync()]).toEqual([1, 2, 3, 4, -2, 1, -4, 3]);
  });

  testInScope("of the inverse rotation is the rotation by negative angles", () => {
    const x = f32([1, 2, 3, 4, 1, 2, 3, 4], [1, 2, 1, 4]);
    const out = rotaryEmbedding(rotaryEmbedding(x, ...quarters()), ...quarters(), { inverse: true });
    expect([...out.dataSync()]).toEqual([...x.dataSync()]);
  });

  testInScope(
    "counts positions from the start of each sequence, and is NaN where the tables have no row",
    () => {
      const x = f32([1, 2, 1, 2], [2, 1, 1, 2]);
      const [cos, sin] = [f32([1, 0], [2, 1]), f32([0, 1], [2, 1])];
      const out = rotaryEmbedding(x, cos, sin, { startPositions: i32([1, 2]) });
      expect([...out.dataSync()]).toEqual([-2, 1, Number.NaN, Number.NaN]);
    },
  );

  testInScope("of packed sequences begins anew with each, and is 0 between them", () => {
    const x = f32([1, 2, 1, 2, 1, 2, 1, 2], [4, 1, 2]);
    const [cos, sin] = [f32([1, 0], [2, 1]), f32([0, 1], [2, 1])];
    const out = rotaryEmbedding(x, cos, sin, { layout: "thd", cuSeqlens: i32([1, 3, 4]) });
    expect([...out.dataSync()]).toEqual([0, 0, 1, 2, -2, 1, 1, 2]);
  });

  testInScope("has the same bits in each layout", () => {
    const values = Array.from({ length: 2 * 3 * 2 * 4 }, (_, i) => ((i * 37) % 101) / 7);
    const [cos, sin] = [
      [1, 2, 3, 4, 5, 6],
      [7, 8, 9, 1, 2, 3],
    ].map((dimensions) =>
      f32(
        dimensions.map((x) => x / 9),
        [3, 2],
      ),
    ) as [ReturnType<typeof f32>, ReturnType<typeof f32>];
    const bshd = download(rotaryEmbedding(f32(values, [2, 3, 2, 4]), cos, sin)).codes;
    const thd = rotaryEmbedding(f32(values, [6, 2, 4]), cos, sin, {
      layout: "thd",
      cuSeqlens: i32([0, 3, 6]),
    });
    expect(download(thd).codes).toEqual(bshd);
    const order = [0, 3, 1, 4, 2, 5].flatMap((row) => values.slice(8 * row, 8 * row + 8));
    const sbhd = download(rotaryEmbedding(f32(order, [3, 2, 2, 4]), cos, sin, { layout: "sbhd" })).codes;
    for (const [i, row] of [0, 3, 1, 4, 2, 5].entries())
      expect(sbhd.slice(8 * i, 8 * i + 8)).toEqual(bshd.slice(8 * row, 8 * row + 8));
  });

  // the reference rotates 256 pairs and copies 512 elements at a time
  testInScope("of wide heads has the bits of the definition at every limit of a part", () => {
    const fractions = (shape: readonly number[], step: number): PlainTensor<"f32"> => {
      const count = shape.reduce((product, size) => product * size, 1);
      const values = Float32Array.from({ length: count }, (_, i) => ((i * step) % 1009) / 1009 - 0.5);
      return fromCodes("f32", shape, [...new Uint32Array(values.buffer)]);
    };
    for (const pairs of [255, 256, 257, 512, 513])
      for (const lastPosition of [0, 511, 1025])
        for (const interleaved of [false, true]) {
          const rotaryCase: RotaryEmbeddingCase = {
            x: fractions([1, 2, 1, 2 * pairs + lastPosition], 37),
            cos: fractions([2, pairs], 101),
            sin: fractions([2, pairs], 211),
            ...{ layout: "bshd", interleaved, inverse: lastPosition > 0, outDtype: "f32" },
            ...{ startPositions: undefined, cuSeqlens: undefined },
          };
          assertSameAnswer(
            rotaryEmbeddingOperation.run(backend(), rotaryCase),
            rotaryEmbeddingOperation.oracle(rotaryCase),
          );
        }
  });

  testInScope("refuses tables that do not fit, and sequences that the layout does not have", () => {
    const x = f32([1, 2], [1, 1, 1, 2]);
    const table = f32([1, 1], [1, 2]);
    expect(() => rotaryEmbedding(x, table, table)).toThrow(ShapeError);
    const oneValue = f32([1], [1, 1]);
    expect(() => rotaryEmbedding(x, oneValue, oneValue, { cuSeqlens: i32([0, 1]) })).toThrow(ArgumentError);
    expect(() => rotaryEmbedding(x, oneValue, oneValue, { startPositions: i32([0, 1]) })).toThrow("[1]");
    expect(() => rotaryEmbedding(x.reshape([1, 1, 2]), oneValue, oneValue, { layout: "thd" })).toThrow(
      "cuSeqlens",
    );
  });
});

testEqualBits("threads do not change a bit", useThreads(), (backend) => {
  const values = Float32Array.from({ length: 4 * 50 * 3 * 40 }, (_, i) => ((i * 7) % 1013) / 17);
  const table = tensor(
    backend,
    Float32Array.from({ length: 50 * 16 }, (_, i) => ((i * 11) % 97) / 97),
    [50, 16],
  );
  return { out: download(rotaryEmbedding(tensor(backend, values, [4, 50, 3, 40]), table, table)) };
});

describeLaws(useBackend({ threads: 2 }), ["rotaryEmbedding"], { runs: 150, seed: derivedSeed(37) });
