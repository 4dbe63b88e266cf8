/** The gradients of every module and function are the derivatives of what it computes, in f32 with exact products. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { ActivationName } from "../../../src/backends/ops.js";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import * as functional from "../../../src/functional/index.js";
import { Embedding } from "../../../src/modules/embedding.js";
import { LayerNormLinear } from "../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP, MLP_ACTIVATIONS, type MLPActivation } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import type { Module } from "../../../src/modules/module.js";
import { MoELayer } from "../../../src/modules/moe-layer.js";
import { LayerNorm, type Normalization, RMSNorm } from "../../../src/modules/norm.js";
import { recompute } from "../../../src/modules/recompute.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { differentiableOne } from "../../../src/tape/differentiable.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { draws } from "../harness/draws.js";
import { type Differentiated, derivatives, gridLeaf, gridValues } from "../harness/gradients.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const F32 = { dtype: "f32" } as const;
const DRAWS = 20;
const EDGED: readonly string[] = ["relu", "reglu"] satisfies (ActivationName | MLPActivation)[];
const NORMS: readonly Normalization[] = ["LayerNorm", "RMSNorm"];

/** The sizes of a case, its seed, and two switches. */
interface Drawn {
  readonly rows: number;
  readonly columns: number;
  readonly others: number;
  readonly seed: number;
  readonly one: boolean;
  readonly other: boolean;
}

const size = fc.integer({ min: 1, max: 9 });
const drawn: fc.Arbitrary<Drawn> = fc.record({
  rows: size,
  // a norm over very few columns is nearly a step function
  columns: fc.integer({ min: 5, max: 17 }),
  others: size,
  seed: fc.nat(),
  one: fc.boolean(),
  other: fc.boolean(),
});

/** Creates the function to differentiate on a backend. `using` disposes of its modules. */
type Make = (b: Backend, drawn: Drawn, using: (module: Module) => void) => Differentiated;

/** Tests that all derivatives lie within their bounds. */
function differentiates(name: string, make: Make, numRuns = draws(12, 4)): void {
  it(name, () => {
    fc.assert(
      fc.property(drawn, (each) => {
        using _scope = new Scope();
        const modules: Module[] = [];
        try {
          const found = derivatives(
            make(backend(), each, (module) => modules.push(module)),
            each.seed,
          );
          for (const { gradient, difference, bound } of found)
            expect(Math.abs(gradient - difference), `${gradient} and ${difference}`).toBeLessThanOrEqual(
              bound,
            );
        } finally {
          for (const module of modules) module.dispose();
        }
      }),
      { numRuns },
    );
  });
}

/** The parameters of a module, with new random values. */
function parametersOf(module: Module, seed: number): readonly Variable[] {
  return module.parameters().map((parameter, i) => {
    parameter.tensor.write(gridValues(seed + 7 * i + 1, parameter.tensor.size));
    return parameter;
  });
}

/** A module as a function of x and its parameters. */
function ofModule<M extends Module>(
  make: (b: Backend, drawn: Drawn) => M,
  forward: (module: M, x: Variable) => Variable,
  edges = false,
): Make {
  return (b, each, using) => {
    const module = make(b, each);
    using(module);
    const x = gridLeaf(b, each.seed, [each.rows, each.columns]);
    const leaves = [x, ...parametersOf(module, each.seed)];
    return { leaves, edges, run: () => forward(module, x) };
  };
}

/** A function of one random leaf. */
function ofLeaf(
  shape: (drawn: Drawn) => Shape,
  run: (x: Variable, drawn: Drawn) => Variable,
  edges = false,
): Make {
  return (b, each) => {
    const x = gridLeaf(b, each.seed, shape(each));
    return { leaves: [x], edges, run: () => run(x, each) };
  };
}

const matrix = ({ rows, columns }: Drawn): Shape => [rows, columns];
const labels = (b: Backend, seed: number, count: number, classes: number) =>
  tensor(
    b,
    Int32Array.from(words(seed, count), (word) => word % classes),
    [count],
    "i32",
  );
const normed = ({ one, other }: Drawn) => ({
  ...F32,
  normalization: NORMS[Number(one)] as Normalization,
  zeroCenteredGamma: other,
  eps: 2 ** -6,
});

describe("modules", () => {
  differentiates(
    "Linear",
    ofModule(
      (b, { columns, others, one }) => new Linear(b, columns, others, { ...F32, bias: one }),
      forwardOf,
    ),
  );
  differentiates(
    "LayerNorm and RMSNorm, gamma zero-centred and not",
    ofModule((b, each) => {
      const { normalization, ...options } = normed(each);
      return new (normalization === "LayerNorm" ? LayerNorm : RMSNorm)(b, each.columns, options);
    }, forwardOf),
  );
  differentiates(
    "LayerNormLinear",
    ofModule((b, each) => new LayerNormLinear(b, each.columns, each.others, normed(each)), forwardOf),
  );
  differentiates(
    "LayerNormLinear with its norm as a second result, through both results",
    ofModule(
      (b, each) => new LayerNormLinear(b, each.columns, each.columns, normed(each)),
      (module, x) => {
        const [out, between] = module.forwardWithNorm(x);
        return functional.add(out, between);
      },
    ),
  );
  for (const activation of Object.keys(MLP_ACTIVATIONS) as MLPActivation[])
    differentiates(
      `LayerNormMLP of ${activation}`,
      ofModule(
        (b, each) =>
          new LayerNormMLP(b, each.columns, each.others, {
            ...normed(each),
            activation,
            bias: each.seed % 2 === 0,
          }),
        forwardOf,
        EDGED.includes(activation),
      ),
      6,
    );
  for (const [name, options] of Object.entries({
    swiglu: {},
    geglu: { activation: "geglu", scoreFunction: "sigmoid" },
    "clamped swiglu": { clamp: { limit: 0.75 }, scoreFunction: "sqrtsoftplus" },
  } as const))
    differentiates(
      `MoELayer of ${name}`,
      ofModule(
        (b, { columns, others, one, other }) =>
          new MoELayer(b, columns, others, 3, { ...F32, topk: one ? 1 : 2, bias: other, ...options }),
        forwardOf,
        true,
      ),
      6,
    );
  differentiates("Embedding, as the first of several layers", (b, each, using) => {
    const table = new Embedding(b, each.others, each.columns, F32);
    const module = new Sequential(b, table, new Linear(b, each.columns, each.rows, F32));
    using(module);
    const ids = tensor(b, Int32Array.of(0, each.others - 1, 0), [3], "i32");
    return { leaves: parametersOf(module, each.seed), run: () => module.forward(ids) };
  });

  differentiates("Embedding, of ids that repeat", (b, each, using) => {
    const module = new Embedding(b, each.others, each.columns, F32);
    using(module);
    const ids = labels(b, each.seed, each.rows + 2, each.others);
    return { leaves: parametersOf(module, each.seed), run: () => module.forward(ids) };
  });
  differentiates(
    "Sequential, of modules and functions",
    ofModule(
      (b, { columns, others }) =>
        new Sequential(
          b,
          new Linear(b, columns, others, F32),
          (x) => functional.activation(x, "gelu"),
          new LayerNormLinear(b, others, columns, { ...F32, eps: 0.5 }),
        ),
      forwardOf,
    ),
  );
});

function forwardOf(module: Module & { forward(x: Variable): Variable }, x: Variable): Variable {
  return module.forward(x);
}

describe("functions", () => {
  differentiates(
    "dotProductAttention, causal and not",
    ofLeaf(
      ({ rows, others, one }) => [2, rows, 3 * (one ? 2 : 1) * others],
      (x, { one, other }) => functional.dotProductAttention(x, { heads: one ? 2 : 1, causal: other }),
    ),
    20,
  );
  differentiates(
    "attention, with a bias and sinks, bounded and not",
    (b, { rows, others, seed, one, other }) => {
      const [q, k, v] = [
        gridLeaf(b, seed, [1, rows, 2, 4]),
        gridLeaf(b, seed + 1, [1, others, 1, 4]),
        gridLeaf(b, seed + 2, [1, others, 1, 3]),
      ] as const;
      const [bias, sinks] = [
        gridLeaf(b, seed + 3, [1, 1, rows, others]),
        gridLeaf(b, seed + 4, [2]),
      ] as const;
      const softcap = one ? 2 : undefined;
      const options = {
        ...{ causal: other, align: "end" as const, softcap, bias, sinks },
        datapath: "fp32" as const,
      };
      return { leaves: [q, k, v, bias, sinks], run: () => functional.attention(q, k, v, options) };
    },
    20,
  );
  for (const [name, run] of Object.entries({ add: functional.add, multiply: functional.multiply }))
    differentiates(name, (b, each) => {
      const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  differentiates(
    "multiply of a tensor by itself",
    ofLeaf(matrix, (x) => functional.multiply(x, x)),
  );
  differentiates(
    "sigmoid",
    ofLeaf(matrix, (x) => functional.sigmoid(x)),
  );
  differentiates(
    "reshape",
    ofLeaf(matrix, (x, each) => functional.reshape(x, [each.columns, 1, each.rows])),
  );
  differentiates("divide", (b, each) => {
    const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
    // divisors from 1 to 3, where quotients have small derivatives
    const divisor = () => functional.add(y, tensor(b, [2], [1]));
    return { leaves: [x, y], run: () => functional.divide(x, divisor()) };
  });
  for (const [name, run] of Object.entries({
    add: functional.add,
    multiply: functional.multiply,
  }))
    differentiates(`${name} of a row or a column to a matrix`, (b, each) => {
      const small = each.one ? [each.columns] : [each.rows, 1];
      const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, small)];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  differentiates(
    "exp",
    ofLeaf(matrix, (x) => functional.exp(x)),
  );
  differentiates(
    "rsqrt",
    ofLeaf(matrix, (x) => functional.rsqrt(functional.add(x, tensor(x.backend, [2], [1])))),
  );
  differentiates("where", (b, each) => {
    const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
    const flags = labels(b, each.seed, each.rows * each.columns, 2);
    const condition = tensor(b, Float32Array.from(flags.dataSync()), matrix(each));
    return { leaves: [x, y], run: () => functional.where(condition, x, y) };
  });
  differentiates(
    "cast to its own type",
    ofLeaf(matrix, (x) => functional.cast(x, "f32")),
  );
  differentiates(
    "sum and mean of some dimensions",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x, { one, other }) => (one ? functional.sum : functional.mean)(x, { dim: other ? 1 : [0, -1] }),
    ),
  );
  differentiates(
    "mean of all elements",
    ofLeaf(matrix, (x) => functional.mean(x)),
  );
  differentiates(
    "softmax along any dimension",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x, { seed }) => functional.softmax(x, { dim: seed % 3 }),
    ),
  );
  differentiates(
    "dropout",
    ofLeaf(matrix, (x, { seed }) => functional.dropout(x, { probability: 0.25, seed: BigInt(seed) })),
  );
  differentiates("gather along any dimension", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const dim = Number(each.one);
    const shape = dim === 0 ? [each.others, each.columns] : [each.rows, each.others];
    const index = labels(b, each.seed, elementCount(shape), matrix(each)[dim] as number).reshape(shape);
    return { leaves: [x], run: () => functional.gather(x, dim, index) };
  });
  differentiates(
    "sqrtSoftplus",
    ofLeaf(matrix, (x) => functional.sqrtSoftplus(x)),
  );
  for (const scoreFunction of ["softmax", "sigmoid", "sqrtsoftplus"] as const)
    differentiates(
      `a router of ${scoreFunction}, and its loss`,
      ofLeaf(
        matrix,
        (x, { rows, columns, one, other, seed }) => {
          const topk = 1 + (seed % columns);
          const usePreSoftmax = one && scoreFunction === "softmax";
          const { probs, tokensPerExpert } = functional.fusedTopkWithScoreFunction(x, {
            ...{ topk, scoreFunction, usePreSoftmax, scalingFactor: other ? 1.5 : undefined },
          });
          const { scores } = functional.fusedComputeScoreForMoeAuxLoss(x, { topk, scoreFunction });
          const options = { totalNumTokens: rows, numExperts: columns, topk, coeff: 0.5 };
          const loss = functional.fusedMoeAuxLoss(scores, tokensPerExpert, options);
          return functional.add(functional.multiply(probs, scores), functional.reshape(loss, [1, 1]));
        },
        true,
      ),
    );
  differentiates("moePermuteWithProbs and moeUnpermute", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const shape = [each.rows, 3];
    const experts = labels(b, each.seed + 1, 3 * each.rows, each.others).reshape(shape);
    const probs = gridLeaf(b, each.seed + 2, shape);
    const options = {
      mapType: "index",
      numExperts: each.others,
      alignSize: 4,
      numOutTokens: 4 * each.rows,
    } as const;
    const run = () => {
      const { output, permutedProbs, rowIdMap } = functional.moePermuteWithProbs(x, probs, experts, options);
      const scaled = functional.multiply(output, functional.reshape(permutedProbs, [4 * each.rows, 1]));
      return functional.moeUnpermute(scaled, rowIdMap, { mergingProbs: each.one ? probs : undefined });
    };
    return { leaves: [x, probs], run };
  });
  differentiates("moeSortChunksByIndex, padding and unpadding", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const splits = [each.rows - 1, 0, 1];
    const run = () => {
      const sorted = functional.moeSortChunksByIndex(x, splits, [2, 0, 1]);
      const padded = functional.padding(sorted, [1, each.rows - 1, 0], 4);
      return each.one ? padded.output : functional.unpadding(padded.output, [1, each.rows - 1, 0], 4);
    };
    return { leaves: [x], run };
  });
  differentiates(
    "expand",
    ofLeaf(
      ({ columns }) => [1, columns, 1],
      (x, { rows, columns, others }) => functional.expand(x, [2, rows, columns, others]),
    ),
  );
  differentiates(
    "slice",
    ofLeaf(matrix, (x, { columns, seed, one }) => {
      const start = seed % columns;
      return functional.slice(x, 1, one ? start : start - columns, columns - (seed % (columns - start)));
    }),
  );
  differentiates("concatenate", (b, each) => {
    const [x, y] = [
      gridLeaf(b, each.seed, matrix(each)),
      gridLeaf(b, each.seed + 1, [each.rows, each.others]),
    ];
    return { leaves: [x, y], run: () => functional.concatenate([x, y, x], -1) };
  });
  differentiates(
    "transpose",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x) => functional.transpose(x, 0, -1),
    ),
  );
  differentiates(
    "permute",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x) => functional.permute(x, [1, 2, 0]),
    ),
  );
  for (const kind of Object.keys(ACTIVATION) as ActivationName[]) {
    differentiates(
      `activation ${kind}`,
      ofLeaf(matrix, (x) => functional.activation(x, kind), EDGED.includes(kind)),
    );
    const halves = ({ rows, others }: Drawn): Shape => [rows, 2 * others];
    differentiates(
      `gated ${kind}`,
      ofLeaf(halves, (x) => functional.gated(x, kind), EDGED.includes(kind)),
    );
  }
  differentiates("rotaryEmbedding", (b, each) => {
    const { rows, columns, others, one, other } = each;
    const x = gridLeaf(b, each.seed, [rows, columns, 2, 2 * others + 1]);
    const rotary = new RotaryPositionEmbedding(b, 2 * others, { interleaved: one });
    const { cos, sin, interleaved } = rotary.forward(other ? columns : rows);
    const layout = other ? ("bshd" as const) : ("sbhd" as const);
    return { leaves: [x], run: () => functional.rotaryEmbedding(x, cos, sin, { layout, interleaved }) };
  });
  differentiates("embedding", (b, each) => {
    const table = gridLeaf(b, each.seed, [each.others, each.columns]);
    const ids = labels(b, each.seed, 2 * each.rows, each.others).reshape([2, each.rows]);
    return { leaves: [table], run: () => functional.embedding(table, ids) };
  });
  differentiates(
    "crossEntropyLoss, smoothed and not, with rows that are ignored and without",
    ofLeaf(matrix, (x, { rows, columns, seed, one, other }) =>
      functional.crossEntropyLoss(x, labels(x.value.backend, seed, rows, columns), {
        smoothing: one ? 0.25 : 0,
        ...(other ? { ignore: 0 } : {}),
      }),
    ),
    30,
  );
  differentiates(
    "mseLoss",
    ofLeaf(matrix, (x, { seed }) =>
      functional.mseLoss(x, tensor(x.value.backend, gridValues(seed + 1, elementCount(x.shape)), x.shape)),
    ),
  );
});

describe("values that are used twice", () => {
  differentiates(
    "a residual connection",
    ofModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const between = functional.add(x, module.forward(x));
        return functional.add(between, functional.activation(between, "silu"));
      },
    ),
  );
  differentiates(
    "one layer twice, and a sum with itself",
    ofModule(
      (b, { columns }) => new Linear(b, columns, columns, F32),
      (module, x) => {
        const y = module.forward(functional.activation(module.forward(x), "gelu"));
        return functional.add(y, y);
      },
    ),
  );
  differentiates("one table looked up twice", (b, each, using) => {
    const module = new Embedding(b, each.others, each.columns, F32);
    using(module);
    const look = (seed: number): Variable => module.forward(labels(b, seed, each.rows, each.others));
    const run = (): Variable =>
      functional.add(look(each.seed), functional.activation(look(each.seed + 1), "silu"));
    return { leaves: parametersOf(module, each.seed), run };
  });
  differentiates(
    "recompute",
    ofModule(
      (b, each) => new LayerNormMLP(b, each.columns, each.others, { ...normed(each), activation: "swiglu" }),
      (module, x) =>
        functional.add(
          recompute((y) => module.forward(y), x),
          x,
        ),
    ),
  );
});

/** x·wᵀ: quadratic, so that central differences are exact. */
function product(x: Variable, w: Variable): Variable {
  return differentiableOne([x, w], () => {
    const [a, b] = [w.tensor, x.tensor];
    return {
      result: gemm({ a, b }).out,
      backward: (grad) => {
        const dy = grad as Tensor<"f32">;
        const products = [gemm({ a, b: dy, layout: "NN" }).out, gemm({ a: b, b: dy, layout: "NT" }).out];
        return products as Tensor<"f32">[];
      },
    };
  });
}

describe("the bound", () => {
  const [rows, columns] = [6, 6];
  type Alter = (grad: Float32Array) => Float32Array;
  /** Gradients that are slightly wrong. */
  const wrong: Record<string, Alter> = {
    "1 % too large": (grad) => grad.map((g) => g * 1.01),
    "1 % too small": (grad) => grad.map((g) => g * 0.99),
    doubled: (grad) => grad.map((g) => 2 * g),
    negated: (grad) => grad.map((g) => -g),
    lost: (grad) => grad.map(() => 0),
    "of the row before": (grad) => grad.map((_, i) => grad.at(i - columns) as number),
    "of the column before": (grad) => grad.map((_, i) => grad.at(i - 1) as number),
    transposed: (grad) => grad.map((_, i) => grad[(i % columns) * rows + Math.floor(i / columns)] as number),
    "without one element": (grad) => grad.map((g, i) => (i === 7 ? 0 : g)),
    "with another sign of one element": (grad) => grad.map((g, i) => (i === 7 ? -g : g)),
    "without the last row": (grad) => grad.map((g, i) => (i < grad.length - columns ? g : 0)),
    "without its mean": (grad) => {
      const mean = grad.reduce((sum, g) => sum + g, 0) / grad.length;
      return grad.map((g) => g - mean);
    },
    "another's": (grad) => Float32Array.from(gridValues(5, grad.length)),
  };

  /** Returns the number of draws in which a derivative is rejected if the gradient of one leaf is altered. */
  function refused(altered: "x" | "weight" | "nothing", alter: Alter): number {
    const seeds = fc.sample(fc.noBias(fc.nat()), DRAWS);
    return seeds.filter((seed) => {
      using _scope = new Scope();
      const [x, weight] = [0, 1].map((i) => gridLeaf(backend(), seed + 5 + i, [rows, columns])) as [
        Variable,
        Variable,
      ];
      const through = (leaf: Variable, name: string): Variable =>
        differentiableOne([leaf], () => ({
          result: scaled(leaf.tensor, 1),
          backward: (grad) => {
            if (name !== altered) return [grad];
            const given = (grad as Tensor<"f32">).dataSync();
            return [tensor(backend(), alter(given.slice()), leaf.shape)];
          },
        }));
      const run = (): Variable => product(through(x, "x"), through(weight, "weight"));
      const found = derivatives({ leaves: [x, weight], run }, seed);
      return found.some(({ gradient, difference, bound }) => Math.abs(gradient - difference) > bound);
    }).length;
  }

  it.each(Object.entries(wrong))("refuses a gradient %s", (_, alter) => {
    for (const altered of ["x", "weight"] as const)
      expect(refused(altered, alter), altered).toBeGreaterThanOrEqual(0.8 * DRAWS);
  });

  it("accepts the correct gradients", () => {
    expect(refused("nothing", (grad) => grad)).toBe(0);
  });
});
