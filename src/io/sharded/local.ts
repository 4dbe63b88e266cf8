/** The tensors of a training run that are on one rank, each as a part of a whole tensor. */
import { createHash } from "node:crypto";
import type { ProcessGroup } from "../../collectives/group.js";
import { ArgumentError } from "../../errors.js";
import { processGroup } from "../../functional/ranks.js";
import { callable, needed, type OptionTable } from "../../options.js";
import { asBytes } from "../../tensor/data.js";
import { requirePart, shapeOfPart, type TensorPart, wholePart } from "../../tensor/part.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { CHECKPOINT_STATE, type CheckpointState } from "../checkpoint-checks.js";
import { quantizedRecord } from "../checkpoint-record.js";
import { scaleTensors } from "../checkpoint-scales.js";
import { MODULE, optimizerTensors, parameterTensors } from "../checkpoint-tensors.js";
import type { TensorPlan } from "../header/header.js";

/** One rank's part of a training run. */
export interface ShardedState extends CheckpointState {
  /** The ranks that have parts of the run. All of them save and load together. */
  readonly group: ProcessGroup;
  /**
   * Maps the name of a parameter, of an optimizer's parameter or of a quantization in the module to its name in the checkpoint.
   * Ranks that have different layers, such as the stages of a pipeline, must map to different names. Default: the same name.
   */
  readonly nameOf?: ((name: string) => string) | undefined;
}

/** Checks the fields of `ShardedState`. */
export const SHARDED_STATE: OptionTable<ShardedState> = {
  ...CHECKPOINT_STATE,
  group: needed(processGroup),
  nameOf: callable,
};

/** A tensor of this rank. `shape` is its shape in the file. */
export interface LocalTensor extends TensorPlan {
  readonly part: TensorPart;
  /** The quantization as JSON, if it is codes or scales. */
  readonly recipe?: string;
  /** The quantized tensor that has these codes or scales, and its name. */
  readonly member?: { readonly value: QuantizedTensor; readonly subject: string };
  /** The tensor in memory. Absent for the state of delayed scaling, which is in `bytes`. */
  readonly tensor?: Tensor;
  readonly bytes: () => Promise<Uint8Array>;
}

/**
 * Returns all tensors of this rank. Throws `ArgumentError` for a part that does not fit its parameter, and if two tensors have
 * the same name.
 */
export function localTensors(caller: string, state: ShardedState): readonly LocalTensor[] {
  const { module, optimizer, nameOf } = state;
  const fileTensors = [
    ...parameterTensors(module, nameOf),
    ...(optimizer ? optimizerTensors(module, optimizer, nameOf) : []),
  ];
  const tensors = fileTensors.map(({ parameter, subject, isWhole, tensor, ...plan }): LocalTensor => {
    const { value } = parameter;
    const part = isWhole ? wholePart(plan.shape) : partOf(caller, plan.name, parameter.part, value.shape);
    const bytes = async (): Promise<Uint8Array> => asBytes(await tensor.data());
    if (!(value instanceof QuantizedTensor) || !plan.name.startsWith(MODULE))
      return { ...plan, part, tensor, bytes };
    const { shape: _, ...recipe } = quantizedRecord(value);
    return {
      ...plan,
      part,
      recipe: JSON.stringify(recipe),
      member: { value: value, subject },
      tensor,
      bytes,
    };
  });
  const scales = scaleTensors(module, nameOf).map(
    ({ bytes, ...plan }): LocalTensor => ({
      ...plan,
      part: wholePart(plan.shape),
      bytes: async () => bytes,
    }),
  );
  const all = [...tensors, ...scales];
  const names = new Set<string>();
  for (const { name } of all) {
    if (names.has(name))
      throw new ArgumentError(
        `${caller}: two tensors of this rank are named "${name}"; give nameOf other names`,
      );
    names.add(name);
  }
  return all;
}

function partOf(caller: string, name: string, option: TensorPart | undefined, shape: Shape): TensorPart {
  const part = requirePart(caller, `the part of "${name}"`, option ?? wholePart(shape));
  if (sameShape(shapeOfPart(part), shape)) return part;
  throw new ArgumentError(
    `${caller}: the part of "${name}" is [${shapeOfPart(part)}] and its parameter [${shape}]; set part when the parameter is divided`,
  );
}

export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
