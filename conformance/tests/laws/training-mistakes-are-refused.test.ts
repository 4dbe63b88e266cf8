import { autocast } from "../../../src/autocast.js";
import type { Backend } from "../../../src/backends/backend.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import { Module } from "../../../src/modules/module.js";
import { LayerNorm } from "../../../src/modules/norm.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { clipGradNorm } from "../../../src/optimizers/clip-grad-norm.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import type { DType, Shape } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { rowsWhere } from "../harness/modules/calls.js";
import { type Refusal, refusals, untyped } from "../harness/refusals.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

const zero = <D extends DType = "bf16">(shape: Shape, dtype = "bf16" as D): Tensor<D> =>
  zeros(backend(), dtype, shape);
const leaf = (shape: Shape): Variable => new Variable(zero(shape), true);

const quantizeZeros = (quantizer: Quantizer) => quantizer.quantize(zero([32, 64]));

function quantizedResult(): Variable {
  using layer = new Linear(backend(), 64, 32);
  return autocast({ recipe: new DelayedScaling() }, () => layer.forward(zero([32, 64]), { fp8Output: true }));
}

class Dotted extends Module {
  constructor(b: Backend) {
    super(b);
    this.addModule("a.b", new Sequential(b));
  }
}

const SIZES = { rows: 32, from: 64, to: 32, middle: 64 };

refusals("norms and the modules behind them", [
  ...rowsWhere(({ takes }) => takes.includes("normalization")).map(
    ([name, row]): Refusal => [
      `an unknown norm of ${name}`,
      () => row.build(backend(), SIZES, { normalization: untyped("BatchNorm") }),
      ArgumentError,
      ["BatchNorm", "LayerNorm", "RMSNorm"],
    ],
  ),
  [
    "a second weight that cannot be quantized",
    () => {
      const recipe = new MXFP8BlockScaling();
      quantizedModelInit({ recipe }, () => new LayerNormMLP(backend(), 64, 48, { activation: "swiglu" }));
    },
    ShapeError,
    ["48", "32"],
  ],
  [
    "an unknown activation",
    () => new LayerNormMLP(backend(), 64, 32, { activation: untyped("softplus") }),
    ArgumentError,
    ["softplus", "swiglu"],
  ],
  [
    "an activation by the name of a property of objects",
    () => new LayerNormMLP(backend(), 64, 32, { activation: untyped("toString") }),
    ArgumentError,
    ["toString"],
  ],
  ...[-1, Number.NaN, Number.POSITIVE_INFINITY].map(
    (eps): Refusal => [
      `an eps of ${eps}`,
      () => new LayerNorm(backend(), 64, { eps }),
      ArgumentError,
      ["eps", String(eps)],
    ],
  ),
  [
    "a quantized input of a norm",
    () => {
      using norm = new LayerNorm(backend(), 64);
      norm.forward(quantizeZeros(new Float8CurrentScalingQuantizer()));
    },
    DTypeError,
    ["norm", "fp8-current", "dequantize"],
  ],
  [
    "a norm of other features",
    () => {
      using norm = new LayerNorm(backend(), 32);
      norm.forward(zero([4, 64]));
    },
    ShapeError,
    ["[32]", "[64]"],
  ],
  ["a name with a dot", () => new Dotted(backend()), ArgumentError, ["a.b", "dots"]],
]);

refusals("functions", [
  ["a sum of two shapes", () => functional.add(zero([4]), zero([5])), ShapeError, ["add", "[4]", "[5]"]],
  [
    "a product of two shapes",
    () => functional.multiply(zero([4]), zero([5])),
    ShapeError,
    ["multiply", "[4]", "[5]"],
  ],
  ["another number of elements", () => functional.reshape(zero([4]), [5]), ShapeError, ["reshape", "4", "5"]],
  [
    "an unknown activation",
    () => functional.activation(zero([4]), untyped("softplus")),
    ArgumentError,
    ["softplus", "gelu"],
  ],
  ["half of an odd row", () => functional.gated(zero([4, 3]), "silu"), ShapeError, ["gated", "3"]],
  [
    "a quantized value",
    () => functional.activation(quantizeZeros(new MXFP8Quantizer()), "gelu"),
    DTypeError,
    ["activation", "mxfp8", "dequantize"],
  ],
  [
    "ids that are no integers",
    () => functional.embedding(zero([4, 4]), zero([2], "f32")),
    DTypeError,
    ["ids", "f32", "i32"],
  ],
  ...[0, 1.5, Number.NaN].map(
    (heads): Refusal => [
      `${heads} heads`,
      () => functional.dotProductAttention(zero([1, 2, 24]), { heads }),
      ArgumentError,
      ["heads", String(heads)],
    ],
  ),
  [
    "features that are no heads",
    () => functional.dotProductAttention(zero([1, 2, 25]), { heads: 1 }),
    ShapeError,
    ["[1,2,25]", "3 * depth"],
  ],
  [
    "attention without a batch",
    () => functional.dotProductAttention(zero([2, 24]), { heads: 1 }),
    ShapeError,
    ["[2,24]", "batch"],
  ],
  [
    "targets of another number",
    () => functional.crossEntropyLoss(zero([4, 8]), zero([3], "i32")),
    ShapeError,
    ["4", "[3]"],
  ],
  [
    "targets that are no integers",
    () => functional.crossEntropyLoss(zero([4, 8]), zero([4], "f32")),
    DTypeError,
    ["targets", "i32"],
  ],
  ...[-0.1, 1.1, Number.NaN].map(
    (smoothing): Refusal => [
      `smoothing of ${smoothing}`,
      () => functional.crossEntropyLoss(zero([4, 8]), zero([4], "i32"), { smoothing }),
      ArgumentError,
      ["smoothing", String(smoothing)],
    ],
  ),
  [
    "a target of another shape",
    () => functional.mseLoss(zero([4, 8]), zero([8, 4])),
    ShapeError,
    ["target", "[4,8]"],
  ],
]);

refusals("backward", [
  [
    "of a value that nothing leads back from",
    () => new Variable(zero([1])).backward(),
    ArgumentError,
    ["not computed", "gradient"],
  ],
  [
    "of what noGrad computed",
    () => noGrad(() => functional.reshape(leaf([1]), [1])).backward(),
    ArgumentError,
    ["not computed"],
  ],
  [
    "of what was detached",
    () =>
      functional
        .reshape(leaf([1]), [1])
        .detach()
        .backward(),
    ArgumentError,
    ["not computed"],
  ],
  [
    "of several elements without their gradient",
    () => functional.reshape(leaf([4]), [2, 2]).backward(),
    ArgumentError,
    ["[2,2]", "4", "give the gradient"],
  ],
  [
    "with a gradient of another shape",
    () => functional.reshape(leaf([4]), [2, 2]).backward(zero([4])),
    ShapeError,
    ["grad", "[4]", "[2,2]"],
  ],
  [
    "with a gradient of integers",
    () => functional.reshape(leaf([4]), [4]).backward(zero([4], "i32")),
    DTypeError,
    ["grad", "i32"],
  ],
  [
    "a second time",
    () => {
      const x = leaf([1]);
      const y = functional.reshape(x, [1]);
      y.backward();
      x.zeroGrad();
      y.backward();
    },
    ArgumentError,
    ["already freed"],
  ],
  [
    "through what another pass went through already",
    () => {
      const x = leaf([1]);
      const y = functional.activation(functional.activation(x, "gelu"), "gelu");
      const otherLoss = functional.add(y, y);
      y.backward();
      x.zeroGrad();
      otherLoss.backward();
    },
    ArgumentError,
    ["already freed"],
  ],
  [
    "from a quantized result without its gradient",
    () => quantizedResult().backward(),
    DTypeError,
    ["quantized"],
  ],
]);

/** Runs `use` with a layer whose parameters have gradients of 1. */
function withGrads(use: (layer: Linear) => void): void {
  using layer = new Linear(backend(), 64, 32);
  layer.forward(zero([32, 64])).backward(zero([32, 32]));
  use(layer);
}

refusals("optimizers", [
  [
    "nothing to optimize",
    () => new SGD(new Sequential(backend()), { learningRate: 1 }),
    ArgumentError,
    ["parameter"],
  ],
  ...[-1, Number.NaN, Number.POSITIVE_INFINITY].flatMap((learningRate) =>
    [SGD, AdamW].map(
      (Class): Refusal => [
        `${Class.name} with a learning rate of ${learningRate}`,
        () => withGrads((layer) => void new Class(layer, { learningRate })),
        ArgumentError,
        ["learningRate", String(learningRate)],
      ],
    ),
  ),
  [
    "a negative momentum",
    () => withGrads((layer) => void new SGD(layer, { learningRate: 1, momentum: -1 })),
    ArgumentError,
    ["momentum", "-1"],
  ],
  [
    "nesterov without momentum",
    () => withGrads((layer) => void new SGD(layer, { learningRate: 1, nesterov: true })),
    ArgumentError,
    ["nesterov", "momentum"],
  ],
  [
    "a beta of 1",
    () => withGrads((layer) => void new AdamW(layer, { learningRate: 1, beta2: 1 })),
    ArgumentError,
    ["beta2", "1"],
  ],
  [
    "momentum that was not there at first",
    () =>
      withGrads((layer) => {
        using optimizer = new SGD(layer, { learningRate: 1 });
        optimizer.options = { learningRate: 1, momentum: 0.9 };
        optimizer.step();
      }),
    ArgumentError,
    ["momentum", "buffer"],
  ],
  ...[
    { main: (): Tensor => zero([32, 64]), error: DTypeError, words: ["mainGrad", "bf16", "f32"] },
    { main: (): Tensor => zero([64, 32], "f32"), error: ShapeError, words: ["[64,32]", "[32,64]"] },
  ].map(
    ({ main, error, words: message }): Refusal => [
      `a main gradient without ${message[1]}`,
      () => {
        using layer = new Linear(backend(), 64, 32, { fuseWgradAccumulation: true });
        layer.weight.mainGrad = untyped(main());
        layer.forward(zero([32, 64])).backward(zero([32, 32]));
      },
      error,
      message,
    ],
  ),
  [
    "to clip where there is no gradient",
    () => {
      using layer = new Linear(backend(), 64, 32);
      clipGradNorm(layer, 1);
    },
    ArgumentError,
    ["gradient", "backward()"],
  ],
  ...[-1, Number.NaN].map(
    (maxNorm): Refusal => [
      `a norm of at most ${maxNorm}`,
      () => withGrads((layer) => void clipGradNorm(layer, maxNorm)),
      ArgumentError,
      ["maxNorm", String(maxNorm)],
    ],
  ),
  [
    "a factor of several elements",
    () =>
      withGrads((layer) => {
        using optimizer = new SGD(layer, { learningRate: 1 });
        optimizer.step({ gradScale: zero([2], "f32") });
      }),
    ShapeError,
    ["gradScale", "[2]"],
  ],
]);
