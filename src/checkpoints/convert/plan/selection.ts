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
  /** Opens the backend. Called at the first weight that has to be quantized. */
  readonly backend: () => Promise<Backend>;
  /** Opens the kernels that read and compare. */
  readonly kernels: () => Promise<Kernels>;
  /** Judges the weights whose codes are copied. */
  readonly judge: JudgeWeight;
}

/** The name, in errors, of the form that `lockstep quantize` writes. */
const LOCKSTEP = "lockstep";

/** The selected weights. */
export interface Selection {
  readonly weights: readonly QuantizedWeight[];
  readonly lockstepWeights: readonly LockstepWeight[];
  readonly plain: readonly StoredTensor[];
  /** Weights of linear layers that do not fit the target, with the reasons. */
  readonly skipped: ReadonlyMap<string, string>;
}

/**
 * Selects the weights that match `tensors`. Without patterns, selects the quantized weights or, if there are none, all weights of
 * linear layers that fit. `whyNot` returns the reason why a weight cannot have the form. Throws `ArgumentError` for a pattern
 * that matches nothing, and if a quantized weight would remain unconverted. Throws `FileError` for a selected or quantized weight
 * that cannot have the form.
 */
export function selectWeights(
  { weights, lockstepWeights: surveyedLockstepWeights, plain }: Survey,
  { name, tensors }: Pick<QuantizationRequest, "name" | "tensors">,
  whyNot: (name: string, shape: readonly number[], isPlain: boolean) => string | undefined,
): Selection {
  const quantizable = plain.filter(isQuantizable);
  const lockstepWeights = surveyedLockstepWeights.map((weight) => ({
    ...weight,
    shape: weight.recipe.shape,
    convention: LOCKSTEP,
  }));
  const quantized = [...weights, ...lockstepWeights];
  const reasonAgainst = (
    { name, shape }: { readonly name: string; readonly shape: readonly number[] },
    isPlain = false,
  ): string | undefined => whyNot(name, shape, isPlain);
  if (!tensors) {
    const skipped = new Map<string, string>();
    for (const weight of quantized) requireFit(name, weight.name, reasonAgainst(weight));
    const linear = quantized.length > 0 ? [] : quantizable.filter(isLinear);
    const fit = linear.filter(({ entry }) => {
      const reason = reasonAgainst(entry, true);
      if (reason !== undefined) skipped.set(entry.name, reason);
      return reason === undefined;
    });
    return { weights, lockstepWeights, plain: fit, skipped };
  }
  const names = [...quantized.map((weight) => weight.name), ...quantizable.map(({ entry }) => entry.name)];
  const isSelected = selectNames(tensors, names);
  const [unselected] = quantized.filter((weight) => !isSelected(weight.name));
  if (unselected)
    throw new ArgumentError(
      `--tensors: "${unselected.name}" is quantized already (${unselected.convention}) and would stay so; a checkpoint has one quantization: convert all, or convert to bf16 first`,
    );
  const selectedPlain = quantizable.filter(({ entry }) => isSelected(entry.name));
  for (const weight of quantized) requireFit(name, weight.name, reasonAgainst(weight));
  for (const { entry } of selectedPlain) requireFit(name, entry.name, reasonAgainst(entry, true));
  return { weights, lockstepWeights, plain: selectedPlain, skipped: new Map() };
}

function requireFit(target: string, name: string, reason: string | undefined): void {
  if (reason === undefined) return;
  throw new FileError(
    `tensor "${name}": cannot be ${target}: ${reason}; leave it out by --tensors, or convert it to bf16`,
  );
}

/** The error for a conversion without weights. */
export function nothingSelected(target: string, skipped: ReadonlyMap<string, string>): FileError {
  const [first] = skipped;
  const otherCount = skipped.size - 1;
  const predicate = otherCount === 0 ? "does not fit" : `and ${otherCount} more do not fit`;
  const reason = first ? `"${first[0]}" ${predicate}: ${first[1]}` : "there are none";
  return new FileError(
    `no weight of a linear layer can be ${target}: ${reason}; choose weights by --tensors, or another form`,
  );
}
