/** The norm of all gradients of a model, whose parameters may be distributed over ranks. */
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import type { Parameter } from "../modules/parameter.js";
import { zeros } from "../ops/create.js";
import { transpose } from "../ops/layout/layout.js";
import { type GradNorm, normOf, squareSums, sumPieces } from "../ops/update/grad-norm.js";
import { atLeastZero } from "../options.js";
import { type Range, rowsOfPart, type TensorPart, wholePart } from "../tensor/part.js";
import { Scope } from "../tensor/scope.js";
import { elementCount, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { type DividedGrad, dividedSquareSums } from "./divided-norm.js";
import { gradientOf, type Optimized, Optimizer, parametersOf, requireReduced } from "./optimizer.js";

/**
 * Returns the 2-norm of all gradients together, and the factor that reduces it to `maxNorm`, for `step({ gradScale: factor })`.
 * Both are tensors on the device; the caller disposes of them or uses a scope.
 *
 * If `fullyShard`, a layer with a group or a `Pipeline` has distributed parameters over ranks, all of these ranks must call it,
 * and all get the same norm. The norm is bitwise equal to the norm of one process that has the full gradients, except in a
 * pipeline: there the squares are first added over each stage, then over the stages.
 *
 * @throws `ArgumentError` if no parameter has a gradient, unless the parameters belong to a stage of a pipeline, whose other
 * stages may have gradients; if `noSync` has left the gradient of a sharded parameter unreduced; and for parameters of several
 * pipelines.
 * @throws `DistributedError` for a group that has failed.
 */
export function clipGradNorm(optimized: Optimized | Optimizer, maxNorm: number): GradNorm {
  atLeastZero("clipGradNorm", "maxNorm", maxNorm);
  const parameters =
    optimized instanceof Optimizer
      ? [...optimized.slots.values()].map(({ parameter }) => parameter)
      : [...parametersOf(optimized).values()];
  using scope = new Scope();
  const stages = pipelineGroup(parameters);
  const grads = parameters.flatMap((parameter) => {
    requireReduced("clipGradNorm", parameter);
    const grad = gradientOf(parameter);
    return grad ? [createGradPart(parameter, grad)] : [];
  });
  if (grads.length === 0 && !stages)
    throw new ArgumentError("clipGradNorm: no parameter has a gradient; call backward() first");
  const sums = stages ? stageSums(stages, grads) : sumSquares(grads);
  const { norm, factor } = normOf(sums, { maxNorm });
  for (const each of [norm, factor]) scope.keep(each);
  return { norm, factor };
}

/** Returns the group of the pipeline that has the parameters in one of its stages. Undefined if there is only one stage. */
function pipelineGroup(parameters: readonly Parameter[]): ProcessGroup | undefined {
  const [group, ...otherGroups] = new Set(
    parameters.flatMap(({ pipeline }) => (pipeline && pipeline.size > 1 ? [pipeline] : [])),
  );
  if (otherGroups.length > 0)
    throw new ArgumentError(
      "clipGradNorm: the parameters belong to several pipelines; call clipGradNorm for each",
    );
  return group;
}

/** Returns the sum of the squares of each stage's gradients, f32 [stages]. */
function stageSums(stages: ProcessGroup, grads: readonly GradPart[]): Tensor<"f32"> {
  // a stage whose parameters are frozen has no gradients
  const sum = grads.length === 0 ? zeros(stages.backend, "f32", [1]) : sumPieces(sumSquares(grads));
  return stages.withSubject("the squares of a stage's gradients", () => stages.allGather(sum));
}

/** A gradient, and its position in the full gradient if this rank has a part of it. */
interface GradPart {
  readonly grad: Tensor<WideDType>;
  readonly divided: DividedGrad | undefined;
}

/**
 * Returns the sum of the squares of each gradient, f32 [gradients]. Gradients that are divided among the same ranks are exchanged
 * together.
 */
function sumSquares(grads: readonly GradPart[]): Tensor<"f32"> {
  const batches = batchesByRanks(grads);
  const [firstBatch] = batches as [Batch, ...Batch[]];
  if (batches.length === 1) return batchSums(firstBatch);
  const squareSumTensor = new Tensor((grads[0] as GradPart).grad.backend, "f32", [grads.length]);
  for (const batch of batches) {
    const sums = batchSums(batch);
    for (const [i, { index }] of batch.entries()) squareSumTensor.paste(sums.view(i, [1]), index);
  }
  return squareSumTensor;
}

/** Gradients that are divided among the same ranks, each with its index among all gradients. */
type Batch = readonly (GradPart & { readonly index: number })[];

function batchesByRanks(grads: readonly GradPart[]): readonly Batch[] {
  const groupsOf = ({ divided }: GradPart): readonly ProcessGroup[] => divided?.groups ?? [];
  const indexedGrads = grads.map((each, index) => ({ ...each, index }));
  const haveEqualGroups = (a: GradPart, b: GradPart): boolean => isSameList(groupsOf(a), groupsOf(b));
  const representatives = indexedGrads.filter(
    (indexedGrad, i) => indexedGrads.findIndex((candidate) => haveEqualGroups(indexedGrad, candidate)) === i,
  );
  return representatives.map((representative) =>
    indexedGrads.filter((each) => haveEqualGroups(each, representative)),
  );
}

function batchSums(batch: Batch): Tensor<"f32"> {
  const dividedGrads = batch.flatMap((each) => each.divided ?? []);
  return dividedGrads.length === 0
    ? squareSums(batch.map(({ grad }) => grad))
    : dividedSquareSums(dividedGrads);
}

const isSameList = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((each, i) => each === b[i]);

/** Returns a gradient with its position in the full gradient. If this rank has columns of it, all columns are gathered first. */
function createGradPart({ sharding, ranks }: Parameter, localGrad: Tensor<WideDType>): GradPart {
  // columns of a single row are consecutive elements, as rows are
  const hasColumns = ranks?.axis === 1 && ranks.partOf(0).shape[0] !== 1;
  const grad = hasColumns ? gatherColumns(ranks.group, localGrad) : localGrad;
  const rowParts = hasColumns ? undefined : ranks;
  if (!sharding && !rowParts) return { grad, divided: undefined };
  const shape = ranks?.partOf(0).shape ?? sharding?.fullShape ?? localGrad.shape;
  const fullPart = wholePart(shape.length === 0 ? [1] : shape);
  const rowPartsOfRanks = rowParts
    ? rowParts.group.ranks.map((_, rank) => rowParts.partOf(rank))
    : [fullPart];
  const shardParts = (part: TensorPart): readonly TensorPart[] =>
    sharding ? partsByRows(part, sharding.rowsPerRank) : [part];
  const ranges = rowPartsOfRanks.map((part) => shardParts(part).map(elementRanges));
  return {
    grad,
    divided: {
      grad,
      groups: [sharding?.group, rowParts?.group].filter((group) => group !== undefined),
      size: elementCount(shape),
      ranges: ranges[rowParts?.group.rank ?? 0]?.[sharding?.group.rank ?? 0] ?? [],
      ends: ranges.flat(2).map(([, end]) => end),
    },
  };
}

/** Divides a part by rows: returns the part of each rank, given the number of rows of each rank. */
function partsByRows(part: TensorPart, rowsPerRank: readonly number[]): readonly TensorPart[] {
  let end = 0;
  return rowsPerRank.map((count) => {
    end += count;
    return rowsOfPart(part, [end - count, end]);
  });
}

/** Returns the elements of the full tensor that a part with all columns, or with columns of a single row, has. */
function elementRanges({ shape, ranges: [rows = [], columns = []] }: TensorPart): readonly Range[] {
  const isRow = shape[0] === 1 && shape.length > 1 && rows.length > 0;
  const size = elementCount(shape.slice(isRow ? 2 : 1));
  return (isRow ? columns : rows).map(([begin, end]) => [begin * size, end * size]);
}

/** Gathers the columns of all ranks. Each rank has the same number of columns. */
function gatherColumns(group: ProcessGroup, local: Tensor<WideDType>): Tensor<WideDType> {
  return transpose(group.allGather(transpose(local)));
}
