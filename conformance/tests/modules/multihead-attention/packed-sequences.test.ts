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
  const lengthsOf = (lengths: fc.Arbitrary<number>) =>
    fc.array(lengths, { minLength: sequences, maxLength: sequences });
  return fc.record({
    lengths: lengthsOf(count),
    gaps: fc.option(lengthsOf(fc.nat({ max: 3 })), { nil: undefined }),
  });
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

/** Sequences with gaps before keys or queries that are rotated. */
const GAPS: readonly Case[] = [
  { attentionType: "self", gapsOf: ["queries"] },
  { attentionType: "cross", gapsOf: ["queries"] },
  { attentionType: "cross", gapsOf: ["keys"] },
].map(({ attentionType, gapsOf }) => {
  const rows = (which: string): Rows => ({
    lengths: [3, 2],
    gaps: gapsOf.includes(which) ? [1, 2] : undefined,
  });
  return {
    ...{ queries: rows("queries"), keys: rows("keys"), attentionType: attentionType as "self" | "cross" },
    ...{ attnMaskType: "padding", windowSize: undefined, angles: "two", qkNormType: undefined },
    ...{ qkNormBeforeRope: false, numGqaGroups: 1, dtype: "f32", seed: 1 },
  };
});

const i32 = (values: readonly number[]): Tensor<"i32"> =>
  tensor(backend(), Int32Array.from(values), [values.length], "i32");

/** The first row of each sequence, and the end of the last one. */
function starts(lengths: readonly number[], gaps: readonly number[] = []): readonly number[] {
  const boundaries = [0];
  for (const [i, length] of lengths.entries())
    boundaries.push((boundaries.at(-1) as number) + length + (gaps[i] ?? 0));
  return boundaries;
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

it("packed sequences equal each sequence in a separate call, forward and backward", () => {
  fc.assert(
    fc.property(cases, (testCase) => {
      using _scope = new Scope();
      const { attentionType, attnMaskType, windowSize, dtype, seed, queries } = testCase;
      const isCross = attentionType === "cross";
      const keys = isCross ? testCase.keys : undefined;
      using module = moduleOf(testCase);
      const table = new RotaryPositionEmbedding(backend(), HIDDEN / HEADS, { rotaryBase: 4 });
      const [plainAngles, offsetAngles] = [table.forward(LONGEST), table.forward(LONGEST, 2)];
      const angles =
        testCase.angles === "none"
          ? {}
          : {
              rotaryPosEmb: testCase.angles === "two" ? ([plainAngles, offsetAngles] as const) : plainAngles,
            };
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
        const ownLengths = keys ?? queries;
        const span = { q: spanOf(queries, i), k: spanOf(ownLengths, i) };
        const partOf = (packedTensor: Tensor, operand: "q" | "k") =>
          packedTensor.slice(span[operand].begin * HIDDEN, [1, span[operand].length, HIDDEN]);
        const [loneX, loneMemory] = [
          new Variable(partOf(values.x, "q"), true),
          new Variable(partOf(values.memory, "k"), true),
        ];
        const loneResult = module.forward(loneX, {
          ...{ qkvFormat: "bshd", attnMaskType: LONE[attnMaskType], windowSize, ...angles },
          ...(isCross ? { encoderOutput: loneMemory } : {}),
        });
        loneResult.backward(partOf(values.grad, "q"));
        const name = `sequence ${i}, of ${length} queries`;
        expectSame(`${name}: result`, partOf(out.tensor, "q"), loneResult.tensor);
        expectSame(`${name}: gradient`, partOf(x.grad as Tensor, "q"), loneX.grad);
        if (isCross)
          expectSame(`${name}: gradient of keys`, partOf(memory.grad as Tensor, "k"), loneMemory.grad);
        for (const variable of [loneX, loneMemory]) variable.zeroGrad();
      }
      for (const variable of [x, memory, ...module.parameters()]) variable.zeroGrad();
    }),
    { numRuns: draws(160), examples: GAPS.map((each) => [each]) },
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

function spanOf({ lengths, gaps }: Rows, i: number): { readonly begin: number; readonly length: number } {
  return { begin: starts(lengths, gaps)[i] as number, length: lengths[i] as number };
}
