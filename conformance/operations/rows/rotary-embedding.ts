/** Rotary embeddings of queries and keys. */
import * as fc from "fast-check";
import { ATTENTION_LAYOUTS, type AttentionLayout } from "../../../src/backends/ops/attention.js";
import { rotaryEmbedding } from "../../../src/ops/rows/rotary-embedding.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/rotary-embedding.js";
import { download, PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface RotaryEmbeddingCase {
  /** [B, S, H, D] in the order of the layout. */
  readonly x: PlainTensor<WideDType>;
  /** [positions, pairs] */
  readonly cos: PlainTensor<"f32">;
  readonly sin: PlainTensor<"f32">;
  readonly layout: AttentionLayout;
  readonly interleaved: boolean;
  readonly inverse: boolean;
  readonly startPositions: PlainTensor<"i32"> | undefined;
  readonly cuSeqlens: PlainTensor<"i32"> | undefined;
  readonly outDtype: WideDType;
}

interface Sizes {
  readonly layout: AttentionLayout;
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly pairs: number;
  /** The number of elements of a head that are not rotated. */
  readonly rest: number;
  readonly positions: number;
}

const sizes: fc.Arbitrary<Sizes> = fc.record({
  layout: fc.constantFrom(...ATTENTION_LAYOUTS),
  batch: fc.constantFrom(1, 2, 3, 0),
  length: fc.constantFrom(0, 1, 2, 5, 9),
  heads: fc.constantFrom(1, 2, 3, 0),
  pairs: fc.oneof(fc.constantFrom(0, 1, 4, 8, 16), fc.integer({ min: 1, max: 12 }), fc.constant(300)),
  rest: fc.constantFrom(0, 0, 1, 8, 16, 600),
  positions: fc.constantFrom(0, 1, 6, 12),
});

const i32 = (values: readonly number[]): PlainTensor<"i32"> =>
  new PlainTensor("i32", [values.length], Int32Array.from(values));

/** A number for each sequence: positions inside and outside the tables. */
function starts({ batch, positions }: Sizes): fc.Arbitrary<PlainTensor<"i32">> {
  const start = fc.oneof(
    fc.integer({ min: -2, max: positions }),
    fc.constantFrom(0, -(2 ** 31), 2 ** 31 - 1),
  );
  return fc.array(start, { minLength: batch, maxLength: batch }).map(i32);
}

/** Rows at which sequences begin: in order, or with gaps, overlaps and rows that the tensor does not have. */
function begins({ batch, length }: Sizes): fc.Arbitrary<PlainTensor<"i32">> {
  const rows = fc.integer({ min: -1, max: batch * length + 1 });
  return fc
    .tuple(fc.array(rows, { minLength: batch + 1, maxLength: batch + 1 }), fc.boolean())
    .map(([each, sorted]) => i32(sorted ? each.toSorted((a, b) => a - b) : each));
}

function shapeOf({ layout, batch, length, heads, pairs, rest }: Sizes): Shape {
  const head = [heads, 2 * pairs + rest];
  if (layout === "thd") return [batch * length, ...head];
  return layout === "bshd" ? [batch, length, ...head] : [length, batch, ...head];
}

/** The position of each row. */
function positionsOf(each: RotaryEmbeddingCase): readonly (number | undefined)[] {
  const first = Array.from(each.startPositions?.data ?? []);
  const [a, b] = each.x.shape as readonly [number, number];
  if (each.cuSeqlens) return oracle.tokenPositions(a, Array.from(each.cuSeqlens.data), first);
  return Array.from({ length: a * b }, (_, row) => {
    const [outer, inner] = [Math.floor(row / b), row % b];
    const [sequence, s] = each.layout === "bshd" ? [outer, inner] : [inner, outer];
    return (first[sequence] ?? 0) + s;
  });
}

export const rotaryEmbeddingOperation: Operation<RotaryEmbeddingCase> = {
  arbitrary: sizes.chain((size) => {
    const tables = wideTensor([size.positions, size.pairs], { dtype: "f32", edges: [0, 1] });
    return fc.record({
      x: wideTensor(shapeOf(size)),
      cos: tables,
      sin: tables,
      layout: fc.constant(size.layout),
      interleaved: fc.boolean(),
      inverse: fc.boolean(),
      startPositions: fc.option(starts(size), { nil: undefined }),
      cuSeqlens: size.layout === "thd" ? begins(size) : fc.constant(undefined),
      outDtype: wideType(),
    });
  }),
  run(backend, { x, cos, sin, startPositions, cuSeqlens, ...rule }) {
    const sequences = {
      startPositions: startPositions && upload(backend, startPositions),
      cuSeqlens: cuSeqlens && upload(backend, cuSeqlens),
    };
    const [source, c, s] = [upload(backend, x), upload(backend, cos), upload(backend, sin)];
    return { out: download(rotaryEmbedding(source, c, s, { ...sequences, ...rule })) };
  },
  oracle(each) {
    const { x, cos, sin, interleaved, inverse } = each;
    const [heads, width] = x.shape.slice(-2) as [number, number];
    const [positions, pairs] = cos.shape as readonly [number, number];
    const values = Array.from(wideValues(x));
    const out: number[] = Array(elementCount(x.shape)).fill(0);
    for (const [row, position] of positionsOf(each).entries()) {
      if (position === undefined) continue;
      const isKnown = position >= 0 && position < positions;
      const angles = isKnown
        ? Array.from({ length: pairs }, (_, i) => {
            const at = position * pairs + i;
            return [cos.data[at] as number, sin.data[at] as number] as const;
          })
        : undefined;
      for (let head = 0; head < heads; head++) {
        const at = (row * heads + head) * width;
        const turned = oracle.rotateRow(values.slice(at, at + width), {
          angles,
          pairs,
          interleaved,
          inverse,
        });
        for (const [i, value] of turned.entries()) out[at + i] = value;
      }
    }
    return { out: rounded(each.outDtype, x.shape, out) };
  },
};
