/** Selects the weights of a conversion to a quantization. */
import type { Backend } from "../../../backends/backend.js";
import { ArgumentError, FileError } from "../../../errors.js";
import type { WideDType } from "../../../tensor/shape.js";
import { selectNames } from "../../glob.js";
import type { Kernels } from "../../kernels/kernels.js";
import { isLinear, isQuantizable } from "../../recognize/layer-roles.js";
import type { LockstepWeight } from "../../stored/lockstep-weights.js";
import type { StoredTensor } from "../../stored/tensors.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { Survey } from "../../survey.js";
import type { JudgeWeight } from "../soundness.js";
import type { Target } from "../targets/table.js";

/** The requested conversion. */
export interface QuantizationRequest {
  readonly name: string;
  readonly target: Target;
  /** Patterns of names; default as in `ConvertCheckpointOptions`. */
  readonly tensors: readonly string[] | undefined;
  /** The type of the model. */
  readonly dtype: WideDType;
  /** Opens the backend; called at the first weight that has to be quantized. */
  readonly backend: () => Promise<Backend>;
  /** Opens the kernels that read and compare. */
  readonly kernels: () => Promise<Kernels>;
  /** Judges the weights whose codes are copied. */
  readonly judge: JudgeWeight;
}

/** The name in errors of the form that `lockstep quantize` writes. */
const LOCKSTEP = "lockstep";

/** The selected weights. */
export interface Selection {
  readonly weights: readonly QuantizedWeight[];
  readonly lockstepWeights: readonly LockstepWeight[];
  readonly plain: readonly StoredTensor[];
  /** Weights of linear layers that do not fit the target, with the reason. */
  readonly skipped: ReadonlyMap<string, string>;
}

/**
 * Selects the weights that match `tensors`. Without patterns, selects the quantized weights, or, if there are none, all weights
 * of linear layers that fit. `whyNot` returns the reason why a weight cannot have the form. Throws `ArgumentError` for a pattern
 * that matches nothing, and if a quantized weight would remain unconverted; `FileError` for a selected or quantized weight that
 * cannot have the form.
 */
export function selectWeights(
  { weights, lockstepWeights: all, plain }: Survey,
  { name, tensors }: Pick<QuantizationRequest, "name" | "tensors">,
  whyNot: (name: string, shape: readonly number[], isPlain: boolean) => string | undefined,
): Selection {
  const quantizable = plain.filter(isQuantizable);
  const lockstepWeights = all.map((weight) => ({
    ...weight,
    shape: weight.recipe.shape,
    convention: LOCKSTEP,
  }));
  const quantized = [...weights, ...lockstepWeights];
  const why = (
    { name, shape }: { readonly name: string; readonly shape: readonly number[] },
    isPlain = false,
  ): string | undefined => whyNot(name, shape, isPlain);
  if (!tensors) {
    const skipped = new Map<string, string>();
    for (const weight of quantized) requireFit(name, weight.name, why(weight));
    const linear = quantized.length > 0 ? [] : quantizable.filter(isLinear);
    const fit = linear.filter(({ entry }) => {
      const reason = why(entry, true);
      if (reason !== undefined) skipped.set(entry.name, reason);
      return reason === undefined;
    });
    return { weights, lockstepWeights, plain: fit, skipped };
  }
  const names = [...quantized.map((weight) => weight.name), ...quantizable.map(({ entry }) => entry.name)];
  const isSelected = selectNames(tensors, names);
  const [other] = quantized.filter((weight) => !isSelected(weight.name));
  if (other)
    throw new ArgumentError(
      `--tensors: "${other.name}" is quantized already (${other.convention}) and would stay so; a checkpoint has one quantization: convert all, or convert to bf16 first`,
    );
  const more = quantizable.filter(({ entry }) => isSelected(entry.name));
  for (const weight of quantized) requireFit(name, weight.name, why(weight));
  for (const { entry } of more) requireFit(name, entry.name, why(entry, true));
  return { weights, lockstepWeights, plain: more, skipped: new Map() };
}

function requireFit(target: string, name: string, why: string | undefined): void {
  if (why === undefined) return;
  throw new FileError(
    `tensor "${name}": cannot be ${target}: ${why}; leave it out by --tensors, or convert it to bf16`,
  );
}

/** The error for a conversion without weights. */
export function nothingSelected(target: string, skipped: ReadonlyMap<string, string>): FileError {
  const [first] = skipped;
  const others = skipped.size - 1;
  const also = others === 0 ? "does not fit" : `and ${others} more do not fit`;
  const why = first ? `"${first[0]}" ${also}: ${first[1]}` : "there are none";
  return new FileError(
    `no weight of a linear layer can be ${target}: ${why}; choose weights by --tensors, or another form`,
  );
}
