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

/** A run: the length of each sequence, and for each step the sequences and the number of their new positions. */
export interface Rollout {
  readonly lengths: readonly number[];
  readonly steps: readonly ReadonlyMap<number, number>[];
}

/** The form of a run: the order of dimensions, pages of the cache, its heads, and the type of all tensors. */
export interface RolloutForm {
  readonly format: "bshd" | "sbhd" | "thd";
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
    const remaining = [...lengths];
    const steps: Map<number, number>[] = [];
    for (let i = 0; remaining.some((length) => length > 0) && i < 200; i++) {
      const ids = remaining.flatMap((length, id) => (length > 0 ? [id] : []));
      if (order[i % order.length]) ids.reverse();
      const step = new Map(
        ids.map((id) => [id, Math.min(remaining[id] as number, chunks[(i + id) % 24] as number)]),
      );
      for (const [id, count] of step) remaining[id] = (remaining[id] as number) - count;
      steps.push(step);
    }
    return { lengths, steps };
  });

const rowBytes = (x: Variable, row: number): string => {
  expect(row).toBeLessThan(x.tensor.size / HIDDEN);
  return [...x.tensor.dataSync().subarray(row * HIDDEN, (row + 1) * HIDDEN)].join();
};

/** The rows of a run in full: each sequence by itself, all positions at once. */
export function fullRows(
  layer: TransformerLayer,
  run: Rollout,
  { format, dtype }: RolloutForm,
  angles: Angles,
): string[][] {
  const { backend } = layer;
  return run.lengths.map((length, id) => {
    using _scope = new Scope();
    const shapes = { bshd: [1, length, HIDDEN], sbhd: [length, 1, HIDDEN], thd: [length, HIDDEN] };
    const x = waves(backend, id + 1, [LONGEST, HIDDEN], dtype).slice(0, shapes[format]);
    const boundaries = tensor(backend, Int32Array.of(0, length), [2], "i32");
    const out = layer.forward(x, {
      ...(angles ? { rotaryPosEmb: angles } : {}),
      ...(format === "thd" ? { cuSeqlensQ: boundaries, selfAttnMaskType: "padding_causal" } : {}),
      training: false,
    });
    return Array.from({ length }, (_, position) => rowBytes(out, position));
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
    const [b, stepLength] = [step.size, longest];
    const counts = [...step.values()];
    const total = (until: number): number => counts.slice(0, until).reduce((sum, count) => sum + count, 0);
    const size = (format === "thd" ? total(b) : b * stepLength) * HIDDEN;
    const values = dtype === "f32" ? new Float32Array(size) : new Uint16Array(size);
    const positions = {
      bshd: (i: number, position: number) => i * stepLength + position,
      sbhd: (i: number, position: number) => position * b + i,
      thd: (i: number, position: number) => total(i) + position,
    };
    const nextPosition = positions[format];
    for (const [i, [id, count]] of [...step].entries()) {
      const source = waves(backend, id + 1, [LONGEST, HIDDEN], dtype).dataSync();
      const rowsBefore = (rows[id] as string[]).length;
      for (let token = 0; token < count; token++)
        values.set(
          source.subarray((rowsBefore + token) * HIDDEN, (rowsBefore + token + 1) * HIDDEN) as
            | Uint16Array
            | Float32Array,
          nextPosition(i, token) * HIDDEN,
        );
    }
    const shapes = { bshd: [b, stepLength, HIDDEN], sbhd: [stepLength, b, HIDDEN], thd: [total(b), HIDDEN] };
    const x = tensor(backend, values, shapes[format], dtype);
    const out = layer.forward(x, {
      ...(angles ? { rotaryPosEmb: angles } : {}),
      inferenceParams: cache,
      selfAttnMaskType: "padding_causal",
      training: false,
    });
    for (const [i, [id, count]] of [...step].entries())
      for (let token = 0; token < count; token++)
        (rows[id] as string[]).push(rowBytes(out, nextPosition(i, token)));
  }
  return rows;
}
