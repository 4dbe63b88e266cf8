/** Runs of a layer in steps with a cache, in any chunks, batches, orders and pages, and in one full forward pass. */
import * as fc from "fast-check";
import { expect } from "vitest";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import type { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import type { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { tensor } from "../../../../src/ops/create.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { waves } from "./drawn.js";

/** The longest sequence. */
export const LONGEST = 24;
const HIDDEN = 64;

/** A run: how long each sequence is, and which sequences get how many positions in each step. */
export interface Rollout {
  readonly lengths: readonly number[];
  readonly steps: readonly ReadonlyMap<number, number>[];
}

/** The form of a run: the order of dimensions, pages of the cache, its heads, and the type of everything. */
export interface RolloutForm {
  readonly format: "bshd" | "sbhd";
  readonly pageSize: number | undefined;
  readonly dtype: WideDType;
  /** The number and width of heads of keys. */
  readonly heads: readonly [count: number, width: number];
}

export const rollouts: fc.Arbitrary<Rollout> = fc
  .record({
    lengths: fc.array(fc.integer({ min: 1, max: LONGEST }), { minLength: 1, maxLength: 3 }),
    chunks: fc.array(fc.constantFrom(1, 1, 2, 5, 9), { minLength: 24, maxLength: 24 }),
    order: fc.array(fc.boolean(), { minLength: 24, maxLength: 24 }),
  })
  .map(({ lengths, chunks, order }) => {
    const left = [...lengths];
    const steps: Map<number, number>[] = [];
    for (let i = 0; left.some((each) => each > 0) && i < 200; i++) {
      const ids = left.flatMap((each, id) => (each > 0 ? [id] : []));
      if (order[i % order.length]) ids.reverse();
      const step = new Map(
        ids.map((id) => [id, Math.min(left[id] as number, chunks[(i + id) % 24] as number)]),
      );
      for (const [id, count] of step) left[id] = (left[id] as number) - count;
      steps.push(step);
    }
    return { lengths, steps };
  });

const rowBytes = (x: Variable, format: RolloutForm["format"], sequence: number, position: number): string => {
  const [a, b] = x.shape as readonly [number, number];
  const row = format === "bshd" ? sequence * b + position : position * b + sequence;
  expect(row).toBeLessThan(a * b);
  return [...x.tensor.dataSync().subarray(row * HIDDEN, (row + 1) * HIDDEN)].join();
};

/** The rows of a run in full: each sequence alone, all positions at once. */
export function fullRows(
  layer: TransformerLayer,
  run: Rollout,
  { format, dtype }: RolloutForm,
  angles: Angles,
): string[][] {
  const { backend } = layer;
  return run.lengths.map((length, id) => {
    using _scope = new Scope();
    const shape = format === "bshd" ? [1, length, HIDDEN] : [length, 1, HIDDEN];
    const x = waves(backend, id + 1, [LONGEST, HIDDEN], dtype).slice(0, shape);
    const out = layer.forward(x, { ...(angles ? { rotaryPosEmb: angles } : {}), training: false });
    return Array.from({ length }, (_, position) => rowBytes(out, format, 0, position));
  });
}

type Angles = ReturnType<RotaryPositionEmbedding["forward"]> | undefined;

/** The rows of a run in steps with a cache. */
export function steppedRows(
  layer: TransformerLayer,
  run: Rollout,
  { pageSize, format, dtype, heads: [numHeadsKv, headDimK] }: RolloutForm,
  angles: Angles,
): string[][] {
  const { backend } = layer;
  using cache = new InferenceParams(backend, 3, LONGEST, {
    ...{ numHeadsKv, headDimK, dtype },
    ...(pageSize ? { isPaged: true, pageSize } : {}),
  });
  const rows: string[][] = run.lengths.map(() => []);
  for (const step of run.steps) {
    using _scope = new Scope();
    cache.preStep(step);
    const longest = Math.max(...step.values());
    const [b, s] = [step.size, longest];
    const values = dtype === "f32" ? new Float32Array(b * s * HIDDEN) : new Uint16Array(b * s * HIDDEN);
    const at = (i: number, position: number): number =>
      format === "bshd" ? i * s + position : position * b + i;
    for (const [i, [id, count]] of [...step].entries()) {
      const source = waves(backend, id + 1, [LONGEST, HIDDEN], dtype).dataSync();
      const first = (rows[id] as string[]).length;
      for (let p = 0; p < count; p++)
        values.set(
          source.subarray((first + p) * HIDDEN, (first + p + 1) * HIDDEN) as Uint16Array | Float32Array,
          at(i, p) * HIDDEN,
        );
    }
    const shape = format === "bshd" ? [b, s, HIDDEN] : [s, b, HIDDEN];
    const x = tensor(backend, values, shape, dtype);
    const out = layer.forward(x, {
      ...(angles ? { rotaryPosEmb: angles } : {}),
      inferenceParams: cache,
      selfAttnMaskType: "padding_causal",
      training: false,
    });
    for (const [i, [id, count]] of [...step].entries())
      for (let p = 0; p < count; p++) (rows[id] as string[]).push(rowBytes(out, format, i, p));
  }
  return rows;
}
