/**
 * Parts of a tensor, quantized by any method of a quantizer with `shard`, equal the parts of the full tensor quantized by that
 * method.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BLOCK_FORMATS, blockFormat, isLineWide, tileSize } from "../../../../src/formats/block.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { hadamard, RHT_SIGNS } from "../../../../src/ops/quantize/hadamard.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Shard } from "../../../../src/quantizers/shard.js";
import type { QuantizedTensor, QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { quantizeSpec, sourceTypes } from "../../../arbitraries/specs.js";
import { drawnTensor } from "../../harness/drawn-tensor.js";
import { draws } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend();
const MAX_RANKS = 3;

/** The tensors of one call: the full tensors, or a rank's parts of them. */
interface RankInputs {
  readonly x: Tensor<WideDType>;
  /** A tensor with twice as many columns. */
  readonly gatedInput: Tensor<WideDType>;
  /** A tensor of one row. It is not divided among rows. */
  readonly gamma: Tensor<WideDType>;
  readonly beta: Tensor<WideDType>;
}

/** Amaxes that the caller has reduced over the ranks. */
type Reduce = (amaxes: readonly Tensor<"f32">[]) => void;

interface Method {
  /** Whether columns may be divided too; a norm and a gated activation read whole rows. */
  readonly columns: boolean;
  readonly run: (
    quantizer: Quantizer,
    inputs: RankInputs,
    reduce: Reduce,
  ) => { readonly out: QuantizedTensor; readonly rows?: readonly (Tensor | undefined)[] };
}

function hasTensorAmax({ quantizer }: QuantizeSpec): boolean {
  const { scaleSource, tensorAmax } = blockFormat(quantizer);
  return scaleSource === "whole" || tensorAmax;
}

const NORM = { eps: 0.5, zeroCenteredGamma: true } as const;
const METHODS: Readonly<Record<string, Method>> = {
  quantize: { columns: true, run: (q, { x }) => ({ out: q.quantize(x) }) },
  "quantizeBy amaxes of amaxesOf": {
    columns: true,
    run: (q, { x }, reduce) => {
      const amaxes = q.amaxesOf(x);
      expect(amaxes.length > 0).toBe(q.shard !== undefined && hasTensorAmax(q.spec));
      if (amaxes.length > 0) reduce(amaxes);
      const out = q.quantizeBy(x, amaxes);
      for (const amax of amaxes) amax.dispose();
      return { out };
    },
  },
  updateQuantized: {
    columns: true,
    run: (q, { x }) => {
      const out = q.makeEmpty(x.backend, x.shape, x.dtype);
      q.updateQuantized(x, out);
      return { out };
    },
  },
  biasGradQuantize: {
    columns: true,
    run: (q, { x }) => {
      const { out, biasGrad } = q.biasGradQuantize(x);
      biasGrad.dispose();
      return { out };
    },
  },
  "an activation": { columns: true, run: (q, { x }) => ({ out: q.activationQuantize(x, { kind: "gelu" }) }) },
  "the gradient of an activation": {
    columns: true,
    run: (q, { x }) => ({ out: q.activationQuantize(x, { kind: "silu", grad: x }) }),
  },
  "the gradient of an activation, of another type": {
    columns: true,
    run: (q, { x }) => {
      const input = castTo(x, x.dtype === "f32" ? "bf16" : "f32");
      const out = q.activationQuantize(input, { kind: "silu", grad: x });
      input.dispose();
      return { out };
    },
  },
  "a gated activation": {
    columns: false,
    run: (q, { gatedInput }) => ({ out: q.activationQuantize(gatedInput, { kind: "silu", gated: true }) }),
  },
  "the gradient of a gated activation": {
    columns: false,
    run: (q, { x, gatedInput }) => ({
      out: q.activationQuantize(gatedInput, { kind: "silu", gated: true, grad: x }),
    }),
  },
  RMSNorm: {
    columns: false,
    run: (q, { x, gamma }) => {
      const { out, rstd, mean } = q.normQuantize(x, { ...NORM, gamma });
      return { out, rows: [rstd, mean] };
    },
  },
  LayerNorm: {
    columns: false,
    run: (q, { x, gamma, beta }) => {
      const { out, rstd, mean } = q.normQuantize(x, { ...NORM, gamma, beta });
      return { out, rows: [rstd, mean] };
    },
  },
};

interface Drawn {
  readonly spec: QuantizeSpec;
  readonly dtype: WideDType;
  readonly ranks: number;
  readonly dimension: Shard["dimension"];
  readonly pieces: number;
  readonly columnwise: boolean;
  readonly outlier: number;
  /** The value of the outlier. Results of 50 are often exact in bf16, and results of 3 are rounded. */
  readonly magnitude: number;
  readonly seed: number;
}

/** For half of the specs, ranks share amaxes or random bits. */
const choices: fc.Arbitrary<Drawn> = fc
  .oneof(
    quantizeSpec(),
    quantizeSpec(["nvfp4"]),
    quantizeSpec(["fp8-current"]),
    quantizeSpec().filter(({ stochastic }) => stochastic),
  )
  .filter(({ tile, compact, rowScaled }) => !isLineWide(tile) && !compact && !rowScaled)
  .filter(({ rht, rhtSigns }) => rht === (rhtSigns !== 0))
  .chain((spec) =>
    fc.record({
      spec: fc.constant(spec),
      dtype: fc.constantFrom(...sourceTypes(spec)),
      ranks: fc.integer({ min: 1, max: tileSize(spec.tile)[1] === 128 ? 2 : MAX_RANKS }),
      dimension: fc.constantFrom<Shard["dimension"]>("rows", "columns"),
      pieces: fc.constantFrom(1, 2),
      columnwise: fc.boolean(),
      outlier: fc.nat(2 ** 20),
      magnitude: fc.constantFrom(3, 50),
      seed: fc.nat(2 ** 20),
    }),
  );

/**
 * Ranks that would share random bits if each counted from the first element of the full tensor, and amaxes of results before
 * and after they are rounded to bf16.
 */
const EXAMPLES = (
  [
    [makeSpec("mxfp8", { stochastic: true }), "f32"],
    [makeSpec("nvfp4", { stochastic: true }), "f32"],
    [makeSpec("nvfp4", {}), "bf16"],
    [makeSpec("nvfp4", { rht: true, rhtSigns: RHT_SIGNS }), "bf16"],
    [makeSpec("fp8-current", {}), "bf16"],
  ] as const
).map(([spec, dtype]): [Drawn] => [
  {
    ...{ spec, dtype, ranks: 2, dimension: "rows", pieces: 1, columnwise: false },
    ...{ outlier: 0, magnitude: 3, seed: 0 },
  },
]);

const unitOf = ({ spec }: Drawn): number =>
  Math.max(16, tileSize(spec.tile)[1], blockFormat(spec.quantizer).multiple);

function quantizerOf(plan: Drawn, random: RandomState, shard?: Shard): Quantizer {
  const { quantizer, compact: _, rhtSigns: __, ...settings } = plan.spec;
  const { options } = BLOCK_FORMATS[quantizer] as { readonly options: readonly string[] };
  const ownQuantizers = Object.fromEntries(
    Object.entries(settings).filter(([name]) => name === "format" || options.includes(name)),
  );
  return quantizerNamed(quantizer, {
    ...ownQuantizers,
    ...{ rowwise: !plan.columnwise, columnwise: plan.columnwise, shard },
    ...(quantizer === "fp8-delayed" ? { scale: tensor(backend(), [3]) } : {}),
    ...(options.includes("stochastic") ? { random } : {}),
  });
}

/** The rows or columns of the full tensor that a rank has, in order. */
function indicesOf({ ranks, dimension, pieces }: Drawn, rank: number, count: number): readonly number[] {
  const rowsPerPiece = count / (dimension === "rows" ? 1 : pieces);
  const width = rowsPerPiece / ranks;
  return Array.from({ length: count / ranks }, (_, i) => {
    const piece = Math.floor(i / width);
    return piece * rowsPerPiece + rank * width + (i % width);
  });
}

/** A rank's part of a matrix. */
function partOf(
  plan: Drawn,
  rank: number,
  x: Tensor<WideDType>,
  divides = plan.dimension,
): Tensor<WideDType> {
  const [rows, columns] = x.shape as [number, number];
  const indicesUpTo = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);
  const rowIndices = divides === "rows" ? indicesOf(plan, rank, rows) : indicesUpTo(rows);
  const columnIndices = divides === "columns" ? indicesOf(plan, rank, columns) : indicesUpTo(columns);
  const data = x.dataSync();
  const codes = rowIndices.flatMap((i) => columnIndices.map((j) => data[i * columns + j] as number));
  const bits = x.dtype === "f32" ? Float32Array.from(codes) : Uint16Array.from(codes);
  return tensor(x.backend, bits, [rowIndices.length, columnIndices.length], x.dtype) as Tensor<WideDType>;
}

/** Sets each tensor to the maximum of the values at its position. */
function setMaxima(tensors: readonly Tensor<"f32">[], ranks: readonly (readonly number[])[]): void {
  for (const [i, tensor] of tensors.entries())
    tensor.write(Float32Array.of(Math.max(...ranks.map((values) => values[i] as number))));
}

/** Calls the method for each rank twice: to find the amaxes that it shares, and with their maxima over all ranks. */
function partsBy(method: Method, plan: Drawn, inputs: readonly RankInputs[], offset: bigint) {
  const sharedAmaxes: number[][] = [];
  let calls = 0;
  const call = (rank: number, reduce: Reduce) => {
    const reduceMax: Reduce = (amaxes) => {
      calls++;
      for (const amax of amaxes) expect([amax.dtype, amax.shape]).toEqual(["f32", [1]]);
      reduce(amaxes);
    };
    const random = new RandomState(5n, offset);
    const group = { rank, size: plan.ranks, reduceMax };
    const quantizer = quantizerOf(plan, random, { group, dimension: plan.dimension, pieces: plan.pieces });
    expect(quantizer.shard === undefined).toBe(plan.ranks === 1);
    const blocksBefore = backend().memoryUse().blocks;
    const result = method.run(quantizer, inputs[rank] as RankInputs, reduceMax);
    const tensors = [...result.out.members, ...(result.rows ?? [])].filter((tensor) => tensor !== undefined);
    expect(backend().memoryUse().blocks - blocksBefore).toBe(tensors.length);
    expect(random.offset).toBe(offset + (plan.spec.stochastic ? 1n : 0n));
    return result;
  };
  for (const rank of inputs.keys())
    call(rank, (amaxes) => {
      sharedAmaxes[rank] = amaxes.map((amax) => Number(amax.dataSync()[0]));
    });
  const results = [...inputs.keys()].map((rank) => call(rank, (amaxes) => setMaxima(amaxes, sharedAmaxes)));
  expect(calls).toBe(plan.ranks > 1 && hasTensorAmax(plan.spec) ? 2 * plan.ranks : 0);
  return results;
}

/** Bits of the values, in which NaN and zeros of both signs differ. */
function bitsOf(x: Tensor): readonly number[] {
  const data = x.dataSync() as Float32Array;
  return Array.from(new Uint32Array(data.buffer, data.byteOffset, data.length));
}

describe("the parts of a tensor on several ranks", () => {
  it.each(Object.entries(METHODS))("are by %s those of the whole", (_, method) => {
    fc.assert(
      fc.property(choices, (testCase) => {
        using _scope = new Scope();
        const plan: Drawn = method.columns
          ? { ...testCase, pieces: testCase.dimension === "rows" ? 1 : testCase.pieces }
          : { ...testCase, dimension: "rows", pieces: 1 };
        const unit = unitOf(plan);
        const [rows, columns] = [plan.ranks, plan.ranks * plan.pieces].map((factor, i) =>
          (i === 0) === (plan.dimension === "rows") ? factor * unit : unit,
        ) as [number, number];
        const [x, gatedInput] = [columns, 2 * columns].map((width, i) => {
          const fullInput = drawnTensor(backend(), plan.seed + i, [rows, width], "f32");
          // one value of the full tensor determines its amax
          const data = fullInput.dataSync().slice() as Float32Array;
          data[plan.outlier % data.length] = plan.magnitude;
          return castTo(fullInput.write(data), plan.dtype);
        }) as [Tensor<WideDType>, Tensor<WideDType>];
        const [gamma, beta] = [2, 3].map((i) =>
          drawnTensor(backend(), plan.seed + i, [columns], plan.dtype, 1),
        ) as [Tensor<WideDType>, Tensor<WideDType>];
        const inputs = Array.from({ length: plan.ranks }, (_, rank): RankInputs => {
          const [ownInput, wide] = [
            partOf(plan, rank, x),
            plan.dimension === "rows" ? partOf(plan, rank, gatedInput) : gatedInput,
          ];
          return { x: ownInput, gatedInput: wide, gamma, beta };
        });
        const offset = BigInt(plan.seed);
        const fullResult = method.run(
          quantizerOf(plan, new RandomState(5n, offset)),
          { x, gatedInput, gamma, beta },
          () => expect.unreachable(),
        );
        const values = fullResult.out.dequantize("f32");
        for (const [rank, part] of partsBy(method, plan, inputs, offset).entries()) {
          expect(part.out.dtype).toBe(fullResult.out.dtype);
          expect(bitsOf(part.out.dequantize("f32"))).toEqual(bitsOf(partOf(plan, rank, values)));
          const [ownBits, fullBits] = [part.out, fullResult.out].map(
            ({ rowwise, columnwise }) => (rowwise ?? columnwise)?.amax,
          );
          expect(ownBits?.dataSync()).toEqual(fullBits?.dataSync());
          for (const [i, expectedRow] of (fullResult.rows ?? []).entries()) {
            const rankRow = part.rows?.[i];
            expect(rankRow === undefined).toBe(expectedRow === undefined);
            if (expectedRow && rankRow)
              expect(bitsOf(rankRow)).toEqual(
                indicesOf(plan, rank, rows).map((row) => bitsOf(expectedRow)[row]),
              );
          }
        }
      }),
      { numRuns: draws(40, EXAMPLES.length + 1), examples: EXAMPLES },
    );
  });

  testInScope("have the amax that was given, of which no rank asks another", () => {
    const group = { rank: 1, size: 2, reduceMax: () => expect.unreachable() };
    const x = drawnTensor(backend(), 3, [32, 32], "f32");
    const amax = tensor(backend(), [40]);
    const make = (shard?: Shard): readonly Quantizer[] => [
      new Float8CurrentScalingQuantizer({ amax, shard }),
      new NVFP4Quantizer({ amax, shard }),
      new NVFP4Quantizer({ amax, shard, stochastic: true, random: new RandomState(1n) }),
    ];
    const wholes = make();
    for (const [i, quantizer] of make({ group, dimension: "rows" }).entries()) {
      expect(quantizer.amaxesOf(x)).toEqual([]);
      const twice = tensor(backend(), [...x.dataSync(), ...x.dataSync()].map(Number), [64, 32]);
      const fullBits = bitsOf((wholes[i] as Quantizer).quantize(twice).dequantize("f32"));
      const results = [quantizer.quantize(x), quantizer.quantizeBy(x, [])];
      expect(bitsOf((results[0] as QuantizedTensor).dequantize("f32"))).toEqual(
        fullBits.slice(fullBits.length / 2),
      );
      for (const result of results)
        expect(result.copy("rowwise").scaleInv.dataSync()).toEqual(
          results[0]?.copy("rowwise").scaleInv.dataSync(),
        );
    }
  });

  testInScope(
    "share the amax of values that the Hadamard transform gives by the signs of the quantizer",
    () => {
      const x = drawnTensor(backend(), 3, [32, 32], "bf16");
      const group = { rank: 1, size: 2, reduceMax: () => expect.unreachable() };
      const codes = [true, false].map((randomSigns) => {
        const quantizer = new NVFP4Quantizer({ rht: true, randomSigns, shard: { group, dimension: "rows" } });
        const transformedValues = castTo(hadamard(x, randomSigns ? RHT_SIGNS : 0), "f32").dataSync();
        const expected = [castTo(x, "f32").dataSync(), transformedValues].map((values) =>
          Math.max(...Array.from(values, (value) => Math.abs(Number(value)))),
        );
        expect(quantizer.amaxesOf(x).map((amax) => amax.dataSync()[0])).toEqual(expected);
        return expected;
      });
      expect(codes[0]).not.toEqual(codes[1]);
    },
  );
});
