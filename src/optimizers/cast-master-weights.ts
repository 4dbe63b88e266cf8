/** Quantizes parameters from their f32 masters. */
import { ArgumentError } from "../errors.js";
import { Parameter } from "../modules/parameter.js";
import { castTo } from "../ops/cast/cast.js";
import { requireShape } from "../ops/execute.js";
import { boolean, elementAt, instance, isArray, listLength, listOf, optionsOf } from "../options.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireF32, requireScalar } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options of `castMasterWeights`. All fields are optional. */
export interface CastMasterWeightsOptions {
  /**
   * Whether masters are first rounded to the nominal dtype of the parameter, as in TransformerEngine. Values are then rounded
   * twice, and amaxes are taken after the first rounding. If false, values are rounded once, and the codes equal the codes of
   * `step`. Default true.
   */
  readonly throughModelDtype?: boolean | undefined;
  /** An f32 [1] flag, read on the device. If it is exactly 1, no parameter changes. */
  readonly noop?: Tensor<"f32"> | undefined;
}

const checkOptions = optionsOf<CastMasterWeightsOptions>({
  throughModelDtype: boolean,
  noop: requireScalar,
});
const checkParameters = listOf(instance(Parameter, "a parameter"));

/**
 * Quantizes f32 master weights into quantized parameters, in place, as TransformerEngine's `cast_master_weights_to_fp8` does.
 * For a parameter that `fullyShard` has divided, `masters` contains this rank's rows. Each rank quantizes its rows with the
 * maximum of the amaxes of all ranks. All ranks must call it with the same parameters. An optimizer's `step` already does this,
 * without `throughModelDtype`.
 *
 * @throws `ArgumentError` for an unknown option or an invalid option value, for lists of different lengths, for an argument
 * that is not a quantized parameter, and for a master on another backend, `DTypeError` for a master that is not f32,
 * `ShapeError` for a master that does not have the shape of its parameter, `DisposedError` for a disposed tensor.
 */
export function castMasterWeights(
  weights: readonly Parameter[],
  masters: readonly Tensor<"f32">[],
  options: CastMasterWeightsOptions = {},
): void {
  const user = "castMasterWeights";
  const { throughModelDtype = true, noop } = checkOptions(user, options);
  const ownWeights = checkParameters(user, "weights", weights) as readonly Parameter[];
  const count = isArray(masters) ? listLength(masters) : Number.NaN;
  if (count !== ownWeights.length)
    throw new ArgumentError(
      `${user}: weights has ${ownWeights.length} parameters; masters must be a list of as many tensors`,
    );
  const pairs = ownWeights.map(({ value, dtype }, i) => {
    const master = requireF32(user, `masters[${i}]`, elementAt(user, "masters", masters, i));
    if (!(value instanceof QuantizedTensor))
      throw new ArgumentError(`${user}: weights[${i}] is not quantized; create it in quantizedModelInit`);
    requireShape(user, `masters[${i}]`, master, value.shape);
    if (master.backend !== value.backend)
      throw new ArgumentError(
        `${user}: masters[${i}] is on another backend than weights[${i}]; move it there`,
      );
    return { value, dtype, master };
  });
  for (const { sharding } of ownWeights) sharding?.discardPrefetched();
  for (const { value, dtype, master } of pairs) {
    using _ = new Scope();
    value.quantize_(throughModelDtype ? castTo(master, dtype) : master, noop ? { noop } : {});
  }
}
