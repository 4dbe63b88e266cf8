import { autocast } from "../../../src/autocast.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { Linear } from "../../../src/modules/linear.js";
import { manualSeed } from "../../../src/modules/module.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { type Refusal, refusals, untyped } from "../harness/refusals.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const missing = untyped(undefined);

function forward(inFeatures: number, outFeatures: number): void {
  using layer = new Linear(backend(), inFeatures, outFeatures);
  autocast({ recipe: new MXFP8BlockScaling() }, () =>
    layer.forward(zeros(backend(), "bf16", [1, inFeatures])),
  );
}

refusals("mistakes of a new user are refused", [
  [
    "a body without options",
    () =>
      autocast(
        untyped(() => 1),
        missing,
      ),
    ArgumentError,
    ["autocast", "body"],
  ],
  ["options without a body", () => autocast({}, missing), ArgumentError, ["autocast", "body"]],
  [
    "a recipe in place of options",
    () => autocast(untyped(new MXFP8BlockScaling()), () => 1),
    ArgumentError,
    ["autocast", "{ recipe }"],
  ],
  [
    "the name of a backend for a region",
    () => autocast({ backend: untyped("wasm") }, () => 1),
    ArgumentError,
    ["autocast", "backend", "openBackend"],
  ],
  [
    "weights without a body",
    () =>
      quantizedModelInit(
        untyped(() => 1),
        missing,
      ),
    ArgumentError,
    ["quantizedModelInit", "body"],
  ],
  [
    "a layer without a backend",
    () => new Linear(untyped(64), 32, missing),
    ArgumentError,
    ["Linear", "openBackend"],
  ],
  [
    "the promise of one",
    () => new Linear(untyped(Promise.resolve()), 64, 32),
    ArgumentError,
    ["openBackend"],
  ],
  ["a tensor without one", () => tensor(untyped([1, 2]), [2]), ArgumentError, ["tensor", "openBackend"]],
  [
    "a list of layers",
    () => new Sequential(backend(), untyped([() => missing])),
    ArgumentError,
    ["Sequential", "layers[0]", "an argument"],
  ],
  [
    "a list of parameters",
    () => {
      using layer = new Linear(backend(), 64, 32);
      new SGD(untyped(layer.parameters()), { learningRate: 1 });
    },
    ArgumentError,
    ["names", "module"],
  ],
  ...[[1, 2], undefined, "x"].map(
    (input): Refusal => [
      `${typeof input} as an input`,
      () => functional.activation(untyped(input), "relu"),
      ArgumentError,
      ["tensor", typeof input],
    ],
  ),
  [
    "a gradient of another type",
    () => {
      const x = new Variable(zeros(backend(), "bf16", [4]), true);
      functional.reshape(x, [4]).backward(zeros(backend(), "f32", [4]));
    },
    DTypeError,
    ["grad is f32", "bf16"],
  ],
  ["a number as a seed", () => new RandomState(untyped(1)), ArgumentError, ["seed is 1", "1n"]],
  [
    "a number as the shared seed",
    () => manualSeed(backend(), untyped(1)),
    ArgumentError,
    ["seed is 1", "1n"],
  ],
  [
    "a number as an offset",
    () => normal({ seed: 1n, offset: untyped(0) }, 1, 1),
    ArgumentError,
    ["offset is 0"],
  ],
  [
    "the class of a quantizer",
    () => new CustomRecipe({ quantizerFactory: () => untyped(MXFP8BlockScaling) }).quantizer("input"),
    ArgumentError,
    ["the class MXFP8BlockScaling", "for input"],
  ],
  ...[{ enabled: false }, { recipe: new MXFP8BlockScaling() }].flatMap((options) =>
    [
      { flag: () => 1, error: DTypeError, word: "Number" },
      { flag: () => zeros(backend(), "bf16", [1]), error: DTypeError, word: "bf16" },
      { flag: () => zeros(backend(), "f32", [2]), error: ShapeError, word: "[2]" },
    ].map(
      ({ flag, error, word }): Refusal => [
        `a flag for the cached weight that is ${word}, ${"recipe" in options ? "under a recipe" : "without one"}`,
        () => {
          using layer = new Linear(backend(), 64, 32);
          const call = { skipFp8WeightUpdate: untyped(flag()) };
          autocast(options, () => layer.forward(zeros(backend(), "bf16", [32, 64]), call));
        },
        error,
        ["skipFp8WeightUpdate", word],
      ],
    ),
  ),
  ["noGrad without a body", () => noGrad(missing), ArgumentError, ["noGrad", "body"]],
  [
    "a custom recipe without options",
    () => new CustomRecipe(missing),
    ArgumentError,
    ["CustomRecipe", "quantizerFactory"],
  ],
  ...[SGD, AdamW].map(
    (Class): Refusal => [
      `${Class.name} without options`,
      () => {
        using layer = new Linear(backend(), 64, 32);
        new Class(layer, missing);
      },
      ArgumentError,
      [Class.name, "learningRate"],
    ],
  ),
  [
    "a weight whose result's gradient no block divides",
    () => forward(64, 16),
    ShapeError,
    ["the weight is [16,64]", "gradient of the result", "pad to 32"],
  ],
  ["an input that no block divides", () => forward(48, 32), ShapeError, ["the input is [1,48]", "pad to 64"]],
]);
