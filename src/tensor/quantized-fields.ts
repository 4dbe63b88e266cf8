/** Checks that the fields of a quantized tensor match each other. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { BLOCK_FORMAT_NAMES, blockFormat } from "../formats/block.js";
import { anything, type Domain, describe, fieldOf, needed, nested, oneOf, optionsOf } from "../options.js";
import { type CopyGeometry, geometryOf } from "./geometry.js";
import type {
  CopyTensors,
  MadeFields,
  QuantizedCopy,
  QuantizedTensorFields,
  QuantizerOps,
  QuantizeSpec,
} from "./quantized.js";
import { requireTensor, wideDType } from "./require.js";
import { asMatrix, ownShape, sameShape } from "./shape.js";
import { requireSameSpec, requireSpec, SCALE_LAYOUTS } from "./spec.js";
import type { Tensor } from "./tensor.js";

const USER = "QuantizedTensor";
const AMAX_TAKERS = BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).tensorAmax);
const OPS = ["dequantize", "updateQuantized", "deriveColumnwise"] as const;

/** Returns the quantizer. Throws `ArgumentError` for an object that lacks a method of `QuantizerOps`. */
export const quantizerOps: Domain = (caller, name, value) => {
  const ops = typeof value === "object" && value !== null ? (value as Partial<QuantizerOps>) : undefined;
  const missing = OPS.find((method) => typeof fieldOf(caller, name, ops, method) !== "function");
  if (missing)
    throw new ArgumentError(
      `${caller}: ${name} is ${describe(value)}, which has no ${missing}; give a quantizer`,
    );
  return value as QuantizerOps;
};

/**
 * Throws `ArgumentError` for a quantizer with another spec than `spec`. Other objects with the methods of a quantizer have no
 * spec.
 */
export function requireSpecOf(caller: string, ops: QuantizerOps, spec: QuantizeSpec): void {
  const opsSpec = fieldOf(caller, "ops", ops, "spec");
  if (opsSpec !== undefined) requireSameSpec(caller, requireSpec(opsSpec as QuantizeSpec), spec);
}

const copy = nested(
  optionsOf<CopyTensors & Partial<QuantizedCopy>>({
    data: needed(requireTensor),
    scaleInv: needed(requireTensor),
    amax: requireTensor,
    // the geometry may belong to a copy of another tensor, so it is computed again
    geometry: anything,
  }),
);

const checkFields = optionsOf<QuantizedTensorFields>(
  {
    spec: needed((_user, _name, value) => requireSpec(value as QuantizedTensorFields["spec"])),
    shape: needed((_user, _name, value) => ownShape(value as readonly number[])),
    dtype: needed(wideDType),
    scaleLayout: needed(oneOf(SCALE_LAYOUTS)),
    rowwise: copy,
    columnwise: copy,
    ops: needed(quantizerOps),
  },
  "fields",
);

/**
 * Checks the fields and computes the geometry of each copy. Throws a typed error if codes or scales do not have the dtype and
 * shape that follow from `spec`, `shape` and `scaleLayout`.
 */
export function madeFields(fields: QuantizedTensorFields): MadeFields {
  const ownFields = checkFields(USER, fields);
  const { spec, rowwise, columnwise, shape } = ownFields;
  const usage = { rowwise: rowwise !== undefined, columnwise: columnwise !== undefined };
  const geometry = geometryOf(USER, spec, asMatrix(shape), usage, ownFields.scaleLayout);
  const checkedFields = {
    ...ownFields,
    rowwise: rowwise && copyOf(geometry.rowwise, rowwise),
    columnwise: columnwise && copyOf(geometry.columnwise, columnwise),
  };
  const backend = rowwise?.data.backend ?? columnwise?.data.backend;
  for (const each of [rowwise, columnwise]) {
    for (const x of each ? [each.data, each.scaleInv, each.amax] : []) {
      if (x && x.backend !== backend)
        throw new ArgumentError(`${USER}: its tensors live on different backends; move them to one`);
    }
  }
  return checkedFields;
}

/** Returns the copy with that geometry, or undefined if there is no copy. */
function copyOf(
  geometry: CopyGeometry | undefined,
  { data, scaleInv, amax }: CopyTensors,
): QuantizedCopy | undefined {
  if (!geometry) return undefined;
  const { direction, amaxShape } = geometry;
  requireLike(`${direction}.data`, data, geometry.dataType, geometry.dataShape);
  requireLike(`${direction}.scaleInv`, scaleInv, geometry.scaleType, geometry.scaleShape);
  if ((amax !== undefined) !== (amaxShape !== undefined))
    throw new ArgumentError(
      `${USER}: ${direction}.amax is for ${AMAX_TAKERS.join(", ")}, which needs it, and for no other`,
    );
  if (amax && amaxShape) requireLike(`${direction}.amax`, amax, "f32", amaxShape);
  return amax ? { data, scaleInv, amax, geometry } : { data, scaleInv, geometry };
}

function requireLike(name: string, x: Tensor, dtype: string, shape: readonly number[]): void {
  if (x.dtype !== dtype) throw new DTypeError(`${USER}: ${name} is ${x.dtype}; it must be ${dtype}`);
  if (!sameShape(x.shape, shape))
    throw new ShapeError(`${USER}: ${name} is [${x.shape}]; it must be [${shape}]`);
}
