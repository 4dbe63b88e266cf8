/** Creation of modules with quantized weights. */
import { platform } from "#platform";
import { requireBody } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import { tensor } from "../ops/create.js";
import { boolean, optionsOf } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import { rowShard, type Shard } from "../quantizers/shard.js";
import { isDelayed } from "../recipes/is-delayed.js";
import { DelayedScaling } from "../recipes/per-tensor.js";
import { quantizerFor, roleQuantizerFor } from "../recipes/quantizer-for.js";
import { type Recipe, recipeOption } from "../recipes/recipe.js";
import { copiesOf, UNNAMED } from "../recipes/role.js";
import { gradEnabled } from "../tape/grad-mode.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import { Parameter, wideTensor } from "./parameter.js";

/** Options of `quantizedModelInit`. All fields are optional. */
export interface QuantizedModelInitOptions {
  /** The recipe whose weight quantizer is used. Default: `new DelayedScaling()`. */
  readonly recipe?: Recipe | undefined;
  /** Whether weights are quantized. Default true. */
  readonly enabled?: boolean | undefined;
  /** Whether each parameter keeps its values before quantization, in host memory. Default false. */
  readonly preserveHighPrecisionInitVal?: boolean | undefined;
}

const checkOptions = optionsOf<QuantizedModelInitOptions>({
  recipe: recipeOption,
  enabled: boolean,
  preserveHighPrecisionInitVal: boolean,
});

const settings = platform.ambient<QuantizedModelInitOptions>();

/**
 * Runs `body` and returns its result. Linear layers that `body` creates have quantized weights with rowwise and columnwise
 * data, and inside `noGrad` with rowwise data only, which takes half the memory. The weights stay quantized: optimizers update
 * f32 master weights and quantize them again after each step. Calls nest; the innermost one applies, and with `enabled: false`
 * weights are not quantized.
 *
 * @throws `ArgumentError` for an invalid option value or a body that is not a function. Errors of the body propagate.
 */
export function quantizedModelInit<R>(options: QuantizedModelInitOptions, body: () => R): R {
  requireBody("quantizedModelInit", body);
  const ownOptions = checkOptions("quantizedModelInit", options);
  return settings.run(ownOptions, body);
}

/** Returns whether layers that are created here get quantized weights: whether a `quantizedModelInit` that is enabled runs. */
export function withFp8Parameters(): boolean {
  const setting = settings.get();
  return setting !== undefined && setting.enabled !== false;
}

/**
 * Creates a weight with these values. Inside `quantizedModelInit` it is quantized. `shard` is set if the values are a part of a
 * larger weight.
 */
export function makeWeight(
  backend: Backend,
  values: Float32Array,
  shape: Shape,
  {
    dtype,
    random,
    shard,
  }: { readonly dtype: WideDType; readonly random: RandomState; readonly shard?: Shard | undefined },
): Parameter {
  const setting = settings.get();
  using scope = new Scope();
  const wide = wideTensor(backend, values, shape, dtype);
  if (!setting || !withFp8Parameters()) return new Parameter(scope.keep(wide));
  const { recipe = new DelayedScaling(), preserveHighPrecisionInitVal } = setting;
  const scale = isDelayed(recipe) ? tensor(backend, [1]) : undefined;
  const quantizer = roleQuantizerFor(recipe, "weight", { scale, random }, UNNAMED);
  const { rowwise, columnwise } = copiesOf(quantizer, "weight", "none");
  // a custom recipe may keep weights in high precision
  if (!rowwise && !columnwise) return new Parameter(scope.keep(wide));
  const usage = { rowwise: true, columnwise: gradEnabled() };
  const createQuantizer = (part: Shard | undefined): Quantizer =>
    quantizerFor(recipe, "weight", { scale, random, shard: part }).setUsage(usage);
  const quantizedShard = createQuantizer(shard).quantize(wide);
  const weight = new Parameter(
    scope.keep(quantizedShard),
    preserveHighPrecisionInitVal ? values : undefined,
    scale,
  );
  weight.quantizer = (rows) => createQuantizer(rowShard(rows, shard));
  return weight;
}
