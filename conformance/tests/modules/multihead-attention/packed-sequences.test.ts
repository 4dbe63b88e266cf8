/** In packed sequences, with or without gaps, each sequence has the same results and gradients as in a separate call. */
import * as fc from "fast-check";
import { it } from "vitest";
import type {
  MultiheadAttentionCall,
  MultiheadAttentionOptions,
} from "../../../../src/modules/attention/multihead-options.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { tensor } from "../../../../src/ops/create.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { expectSame } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { fill, waves } from "../attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HIDDEN, HEADS, LONGEST] = [32, 2, 5];

/** The rows of some sequences: the number of rows of each, and the numbers of rows between sequences. */
interface Rows {
  readonly lengths: readonly number[];
  /** Undefined if the sequences follow each other. */
  readonly gaps: readonly number[] | undefined;
}

const count = fc.integer({ min: 0, max: LONGEST });
const rowsOf = (sequences: number): fc.Arbitrary<Rows> => {
  const of = (each: fc.Arbitrary<number>) => fc.array(each, { minLength: sequences, maxLength: sequences });
  return fc.record({ lengths: of(count), gaps: fc.option(of(fc.nat({ max: 3 })), { nil: undefined }) });
};

const cases = fc.integer({ min: 1, max: 3 }).chain((sequences) =>
  fc.record({
    queries: rowsOf(sequences),
    /** The keys: the same sequences as the queries, or other ones. */
    keys: fc.option(rowsOf(sequences), { nil: undefined }),
    attentionType: fc.constantFrom("self" as const, "cross" as const),
    attnMaskType: fc.constantFrom("padding", "padding_causal", "padding_causal_bottom_right"),
    windowSize: fc.constantFrom(undefined, [1, 0] as const),
    angles: fc.constantFrom("none", "one", "two", "two"),
    qkNormType: fc.constantFrom(undefined, "RMSNorm"),
    qkNormBeforeRope: fc.boolean(),
    numGqaGroups: fc.constantFrom(1, 2),
    dtype: fc.constantFrom("bf16", "f32"),
    seed: fc.nat({ max: 999 }),
  }),
);
type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

const i32 = (values: readonly number[]): Tensor<"i32"> =>
  tensor(backend(), Int32Array.from(values), [values.length], "i32");

/** The first row of each sequence, and the end of the last one. */
function starts(lengths: readonly number[], gaps: readonly number[] = []): readonly number[] {
  const ends = [0];
  for (const [i, length] of lengths.entries()) ends.push((ends.at(-1) as number) + length + (gaps[i] ?? 0));
  return ends;
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
const totalOf = ({ lengths, gaps = [] }: Rows): number => sumOf(lengths) + sumOf(gaps);

function sequencesOf(queries: Rows, keys: Rows | undefined): MultiheadAttentionCall {
  const { lengths, gaps } = queries;
  return {
    qkvFormat: "thd",
    cuSeqlensQ: i32(starts(lengths)),
    ...(gaps ? { cuSeqlensQPadded: i32(starts(lengths, gaps)) } : {}),
    ...(keys ? { cuSeqlensKv: i32(starts(keys.lengths)) } : {}),
    ...(keys?.gaps ? { cuSeqlensKvPadded: i32(starts(keys.lengths, keys.gaps)) } : {}),
  };
}

/** The mask without padding, for one sequence in a separate call. */
const LONE = {
  padding: "no_mask",
  padding_causal: "causal",
  padding_causal_bottom_right: "causal_bottom_right",
} as const;

it("equal each sequence in a call of its own, forward and backward", () => {
  fc.assert(
    fc.property(cases, (drawn) => {
      using _scope = new Scope();
      const { attentionType, attnMaskType, windowSize, dtype, seed, queries } = drawn;
      const isCross = attentionType === "cross";
      const keys = isCross ? drawn.keys : undefined;
      using module = moduleOf(drawn);
      const table = new RotaryPositionEmbedding(backend(), HIDDEN / HEADS, { rotaryBase: 4 });
      const [one, other] = [table.forward(LONGEST), table.forward(LONGEST, 2)];
      const angles =
        drawn.angles === "none"
          ? {}
          : { rotaryPosEmb: drawn.angles === "two" ? ([one, other] as const) : one };
      const rows = { q: totalOf(queries), k: totalOf(keys ?? queries) };
      const values = {
        x: waves(backend(), seed + 1, [rows.q, HIDDEN], dtype),
        memory: waves(backend(), seed + 2, [rows.k, HIDDEN], dtype),
        grad: waves(backend(), seed + 3, [rows.q, HIDDEN], dtype),
      };
      const [x, memory] = [new Variable(values.x, true), new Variable(values.memory, true)];
      const out = module.forward(x, {
        ...{ attnMaskType, windowSize, ...angles, ...sequencesOf(queries, keys) },
        ...(isCross ? { encoderOutput: memory } : {}),
      });
      out.backward(values.grad);
      for (const [i, length] of queries.lengths.entries()) {
        const own = keys ?? queries;
        const span = { q: spanOf(queries, i), k: spanOf(own, i) };
        const part = (all: Tensor, which: "q" | "k") =>
          all.slice(span[which].first * HIDDEN, [1, span[which].length, HIDDEN]);
        const [loneX, loneMemory] = [
          new Variable(part(values.x, "q"), true),
          new Variable(part(values.memory, "k"), true),
        ];
        const lone = module.forward(loneX, {
          ...{ qkvFormat: "bshd", attnMaskType: LONE[attnMaskType], windowSize, ...angles },
          ...(isCross ? { encoderOutput: loneMemory } : {}),
        });
        lone.backward(part(values.grad, "q"));
        const name = `sequence ${i}, of ${length} queries`;
        expectSame(`${name}: result`, part(out.tensor, "q"), lone.tensor);
        expectSame(`${name}: gradient`, part(x.grad as Tensor, "q"), loneX.grad);
        if (isCross)
          expectSame(`${name}: gradient of keys`, part(memory.grad as Tensor, "k"), loneMemory.grad);
        for (const each of [loneX, loneMemory]) each.zeroGrad();
      }
      for (const each of [x, memory, ...module.parameters()]) each.zeroGrad();
    }),
    { numRuns: draws(160) },
  );
});

function moduleOf({ attentionType, numGqaGroups, qkNormType, qkNormBeforeRope, dtype, seed }: Case) {
  const options: MultiheadAttentionOptions = {
    ...{ attentionType, numGqaGroups, qkNormType, qkNormBeforeRope, dtype },
    attentionDropout: 0,
  };
  const module = new MultiheadAttention(backend(), HIDDEN, HEADS, options);
  fill(seed, module);
  return module;
}

function spanOf({ lengths, gaps }: Rows, i: number): { readonly first: number; readonly length: number } {
  return { first: starts(lengths, gaps)[i] as number, length: lengths[i] as number };
}
