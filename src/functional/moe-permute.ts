/** Differentiable permutations of tokens by their experts. */
import { ArgumentError, ShapeError } from "../errors.js";
import { commonBackend } from "../ops/execute.js";
import {
  combineRows,
  type RowIdMap,
  rowDots,
  rowIdMap as rowIdMapOf,
  takeRows,
} from "../ops/rows/expert-rows.js";
import { integer, needed, oneOf, optionsOf } from "../options.js";
import {
  type Computed,
  differentiable,
  differentiableOne,
  type VariableLike,
  variableOf,
} from "../tape/differentiable.js";
import { type Gradient, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { requireI32 } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options of `functional.moePermute` and `functional.moePermuteWithProbs`. */
export interface MoePermuteOptions {
  /**
   * What the routing map holds. With `mask`, element (t, e) of [T, E] is not 0 if token t has expert e. With `index`, [T, topk]
   * has the indices of each token's experts. Default `mask`.
   */
  readonly mapType?: "mask" | "index" | undefined;
  /**
   * N, the number of rows of the result. Tokens whose row would be N or more are dropped; rows without a token are +0. Required
   * for a mask map. Default for an index map: T * topk.
   */
  readonly numOutTokens?: number | undefined;
  /** The number of experts. Required for an index map; a mask map has a column for each. */
  readonly numExperts?: number | undefined;
  /** The rows of each expert are padded to a multiple of this number with rows of +0. Default 1. */
  readonly alignSize?: number | undefined;
}

/** Permuted tokens, and the map that `functional.moeUnpermute` needs. */
export interface PermutedTokens {
  /** The tokens of expert 0, then the tokens of expert 1, and so on, [N, D]. */
  readonly output: Variable;
  /** The row of each entry of the routing map. Its tensors belong to the open scope or the caller. */
  readonly rowIdMap: RowIdMap;
}

/** Permuted tokens, and the probability of each row. */
export interface PermutedTokensWithProbs extends PermutedTokens {
  /** The probability of each row, [N]; +0 for a row of padding. */
  readonly permutedProbs: Variable;
}

/** Options of `functional.moeUnpermute`. */
export interface MoeUnpermuteOptions {
  /** The factor of each row of a token, in the shape of the routing map. Default: rows are added as they are. */
  readonly mergingProbs?: VariableLike | undefined;
}

const MAX_ROWS = 2 ** 31 - 1;
const checkOptions = optionsOf<MoePermuteOptions>({
  mapType: oneOf(["mask", "index"]),
  numOutTokens: integer(0, MAX_ROWS),
  numExperts: integer(0, MAX_ROWS),
  alignSize: integer(1, MAX_ROWS),
});
const checkMap = optionsOf<RowIdMap>(
  { rows: needed(requireI32), sources: needed(requireI32), tokensPerExpert: needed(requireI32) },
  "rowIdMap",
);
const checkUnpermute = optionsOf<MoeUnpermuteOptions>({
  mergingProbs: (caller, name, x) => variableOf(caller, name, x as VariableLike),
});

/**
 * Returns the rows of `inp` [T, D] in the order of their experts: a token with several experts occurs several times. The rows of
 * an expert are in ascending order of tokens. Corresponds to `moe_permute` of TransformerEngine. The gradient of a token is the
 * f32 sum of the gradients of its rows, in ascending order of the routing map's columns, rounded once (numerics.md §7.16).
 *
 * @throws `DTypeError` for an `inp` that is not f32, bf16 or f16, or a routing map that is not i32, `ShapeError` unless both are
 * matrices with one row for each token, `ArgumentError` for an invalid or missing option, an argument that is not a tensor, or
 * tensors on different backends, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function moePermute(
  inp: VariableLike,
  routingMap: Tensor,
  options: MoePermuteOptions = {},
): PermutedTokens {
  const source = variableOf("moePermute", "inp", inp);
  const [[output], rowIdMap] = permute("moePermute", source, undefined, routingMap, options);
  return { output: output as Variable, rowIdMap };
}

/**
 * As `moePermute`, and also returns the probability of each row: element (t, c) of `probs`, which has the shape of the routing
 * map. Corresponds to `moe_permute_with_probs` of TransformerEngine and, with `alignSize`, to `moe_permute_and_pad_with_probs`.
 * A row whose probability is 0 is copied like any other.
 *
 * @throws `DTypeError` for an `inp` or probabilities that are not f32, bf16 or f16, or a routing map that is not i32,
 * `ShapeError` unless all are matrices with one row for each token and `probs` has the shape of the routing map, `ArgumentError`
 * for an invalid or missing option, an argument that is not a tensor, or tensors on different backends, `DisposedError` for a
 * disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function moePermuteWithProbs(
  inp: VariableLike,
  probs: VariableLike,
  routingMap: Tensor,
  options: MoePermuteOptions = {},
): PermutedTokensWithProbs {
  const source = variableOf("moePermuteWithProbs", "inp", inp);
  const shares = variableOf("moePermuteWithProbs", "probs", probs);
  const [[output, permutedProbs], rowIdMap] = permute(
    "moePermuteWithProbs",
    source,
    shares,
    routingMap,
    options,
  );
  return { output: output as Variable, permutedProbs: permutedProbs as Variable, rowIdMap };
}

/** Permutes tokens and, if there are any, their probabilities. */
function permute(
  caller: string,
  inp: Variable,
  probs: Variable | undefined,
  routingMap: Tensor,
  options: MoePermuteOptions,
): readonly [results: readonly Variable[], rowIdMap: RowIdMap] {
  const map = requireI32(caller, "routingMap", routingMap);
  const ownOptions = checkOptions(caller, options);
  requireTokens(caller, "inp", inp.shape, map);
  if (probs) requireMapShape(caller, "probs", probs.shape, map);
  using scope = new Scope();
  const rowIdMap = rowIdMapOf(map, mapOptions(caller, map, ownOptions));
  const { rows, sources } = rowIdMap;
  const entriesPerRow = Math.max(map.shape[1] as number, 1);
  const results = differentiable(probs ? [inp, probs] : [inp], (): Computed => {
    const output = takeRows(wideOf(`${caller}: inp`, inp.value), sources, { entriesPerRow });
    const [keptRows, count] = [rows.reshape(rows.shape), sources.size];
    return {
      results: probs ? [output, takeElements(wideOf(`${caller}: probs`, probs.value), sources)] : [output],
      // handles that live until the backward pass
      saved: [keptRows],
      backward: ([grad, probsGrad]) => [
        grad && inp.requiresGrad ? combineRows(wideGradient(caller, grad), keptRows) : undefined,
        probsGrad && probs?.requiresGrad
          ? takeElements(wideGradient(caller, probsGrad).reshape([count]), keptRows)
          : undefined,
      ],
    };
  });
  scope.keepAll();
  return [results, rowIdMap];
}

/** Returns the elements of x that `indices` selects, in the shape of `indices`; +0 for an index that x does not have. */
function takeElements(x: Tensor<WideDType>, indices: Tensor<"i32">): Tensor<WideDType> {
  return takeRows(x.reshape([x.size, 1]), indices.reshape([indices.size])).reshape(indices.shape);
}

/** Returns the options of the operation `rowIdMap`, given the options of a permutation. */
function mapOptions(
  caller: string,
  { shape }: Tensor,
  { mapType = "mask", numOutTokens, numExperts, alignSize }: MoePermuteOptions,
) {
  const [tokens, width] = shape as readonly [number, number];
  if (mapType === "index") {
    if (numExperts === undefined)
      throw new ArgumentError(
        `${caller}: numExperts is missing; give the number of experts, because an index map does not tell it`,
      );
    return { numOutTokens: numOutTokens ?? tokens * width, numExperts, alignSize };
  }
  if (numExperts !== undefined)
    throw new ArgumentError(
      `${caller}: numExperts is ${numExperts}; a mask map has a column for each expert, so leave it out`,
    );
  if (numOutTokens === undefined)
    throw new ArgumentError(
      `${caller}: numOutTokens is missing; give the number of rows, because a mask map does not tell it on the host`,
    );
  return { numOutTokens, alignSize };
}

/**
 * Returns the tokens [T, D] of permuted rows `inp` [N, D]: for each token, the sum of its rows, each times its probability if
 * `mergingProbs` is given. `rowIdMap` is the map that the permutation returned. The sum is computed in f32 in ascending order of
 * the routing map's columns, from +0, and rounded once (numerics.md §7.16). A token without rows is +0. Corresponds to
 * `moe_unpermute` of TransformerEngine, which adds the rows of a mask map in descending order of experts.
 *
 * @throws `DTypeError` for an `inp` or probabilities that are not f32, bf16 or f16, or a map that is not i32, `ShapeError` for an
 * `inp` without one row for each row of the map, or probabilities in another shape than its entries, `ArgumentError` for an
 * invalid option, an argument that is not a tensor, or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function moeUnpermute(
  inp: VariableLike,
  rowIdMap: RowIdMap,
  options: MoeUnpermuteOptions = {},
): Variable {
  const caller = "moeUnpermute";
  const source = variableOf(caller, "inp", inp);
  const { rows, sources, tokensPerExpert } = checkMap(caller, rowIdMap);
  // the check has converted it to a variable
  const probs = checkUnpermute(caller, options).mergingProbs as Variable | undefined;
  if (rows.shape.length !== 2 || source.shape.length !== 2 || source.shape[0] !== sources.size)
    throw new ShapeError(
      `${caller}: inp is [${source.shape}], and the map has ${sources.size} rows for entries [${rows.shape}]; give a matrix with these rows`,
    );
  if (probs) requireMapShape(caller, "mergingProbs", probs.shape, rows);
  const entriesPerRow = Math.max(rows.shape[1] as number, 1);
  return differentiableOne(probs ? [source, probs] : [source], () => {
    const x = wideOf(`${caller}: inp`, source.value);
    const weights = probs && wideOf(`${caller}: mergingProbs`, probs.value);
    commonBackend(caller, x, rows, sources, tokensPerExpert, weights);
    const [keptRows, keptSources] = [rows.reshape(rows.shape), sources.reshape(sources.shape)];
    return {
      result: combineRows(x, rows, { weights }),
      saved: [keptRows, keptSources],
      backward: (gradient) => {
        const grad = wideGradient(caller, gradient);
        return [
          source.requiresGrad ? takeRows(grad, keptSources, { entriesPerRow, weights }) : undefined,
          weights && probs.requiresGrad ? rowDots(grad, x, keptRows, { outDtype: weights.dtype }) : undefined,
        ];
      },
    };
  });
}

const wideGradient = (caller: string, grad: Gradient) => wideOf(`${caller}: the gradient`, grad);

/** Throws `ShapeError` unless tokens and the routing map are matrices with the same number of rows. */
function requireTokens(caller: string, name: string, shape: Shape, map: Tensor): void {
  if (shape.length === 2 && map.shape.length === 2 && shape[0] === map.shape[0]) return;
  throw new ShapeError(
    `${caller}: ${name} is [${shape}] and routingMap [${map.shape}]; they must be matrices with a row for each token`,
  );
}

/** Throws `ShapeError` unless `shape` is the shape of the routing map or of its rows. */
function requireMapShape(caller: string, name: string, shape: Shape, map: Tensor): void {
  if (shape.length === map.shape.length && shape.every((size, i) => size === map.shape[i])) return;
  throw new ShapeError(
    `${caller}: ${name} is [${shape}]; it must be [${map.shape}], the shape of the routing map`,
  );
}
