/** Parses the operand kinds of `lockstep fuzz --op gemm`. */
import type { CorpusOperand } from "lockstep/conformance";
import { quantizerOf } from "../../dialects/quantizer-of.js";
import { DIALECT_NAMES } from "../../dialects/table.js";
import { ArgumentError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES } from "../../formats/block.js";
import { resolveFormat } from "../../formats/derive.js";
import { SCALED_TILES } from "../../ops/gemm/operand.js";
import { makeSpec } from "../../tensor/spec.js";
import { nearest } from "../../text/nearest.js";

const DTYPES = ["e4m3", "e5m2", "bf16", "f16", "f32"] as const;

/**
 * Parses one operand kind, or a pair for both operands. A kind is a dtype (FP8 optionally with the tile of its scales,
 * e4m3:1x128), or a quantizer or dialect (optionally with an element format, mxfp8:e5m2). Throws `ArgumentError` for anything
 * else.
 */
export function operandPair(text: string): readonly [CorpusOperand, CorpusOperand] {
  const [a, b, ...surplus] = text.split(",").map(operandKind);
  if (!a || surplus.length > 0) throw new ArgumentError(`"${text}" has more than two kinds`);
  return [a, b ?? a];
}

function operandKind(text: string): CorpusOperand {
  const [name = "", formatOrTile, ...surplus] = text.split(":");
  if (surplus.length > 0) throw noKind(text);
  const dtype = DTYPES.find((each) => each === name);
  if (dtype) return formatOrTile === undefined ? { dtype } : { dtype, tile: tileNamed(formatOrTile) };
  const format = formatOrTile === undefined ? undefined : resolveFormat(formatOrTile);
  const quantizer = BLOCK_FORMAT_NAMES.find((each) => each === name);
  if (quantizer) return { spec: makeSpec(quantizer, { format }) };
  const dialect = DIALECT_NAMES.find((each) => each === name);
  if (dialect) return { spec: quantizerOf({ dialect, format }).spec };
  throw noKind(text);
}

function tileNamed(text: string): (typeof SCALED_TILES)[number] {
  const tile = SCALED_TILES.find((each) => each === text);
  if (tile) return tile;
  throw new ArgumentError(`"${text}" is not one of ${SCALED_TILES.join(", ")}`);
}

function noKind(text: string): ArgumentError {
  const names = [...DTYPES, ...BLOCK_FORMAT_NAMES, ...DIALECT_NAMES];
  return new ArgumentError(`"${text}" is not a dtype, quantizer or dialect${nearest(text, names)}`);
}
