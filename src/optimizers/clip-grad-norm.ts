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
import { elementCount, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { type DividedGrad, dividedSquareSums } from "./divided-norm.js";
import { gradientOf, type Optimized, Optimizer, parametersOf } from "./optimizer.js";

/**
 * Returns the 2-norm of all gradients together, and the factor that reduces it to `maxNorm`, for `step({ gradScale: factor })`.
 * Both are tensors on the device; the caller disposes of them or uses a scope.
 *
 * If `fullyShard`, a layer with a group or a `Pipeline` has distributed parameters over ranks, all of these ranks must call it,
 * and all get the same norm. It has the bits of one process that has the whole gradients, except in a pipeline: there the
 * squares are first added over each stage, then over the stages.
 *
 * @throws `ArgumentError` if no parameter has a gradient, unless they are those of a pipeline's stage, whose other stages have
 * some; if `noSync` has left the gradient of a sharded parameter unreduced; and for parameters of several pipelines.
 * @throws `DistributedError` for a group that has failed.
 */
export function clipGradNorm(optimized: Optimized | Optimizer, maxNorm: number): GradNorm {
  atLeastZero("clipGradNorm", "maxNorm", maxNorm);
  const parameters =
    optimized instanceof Optimizer
      ? [...optimized.slots.values()].map(({ parameter }) => parameter)
      : [...parametersOf(optimized).values()];
  using scope = new Scope();
  const stages = stagesOf(parameters);
  const grads = parameters.flatMap((parameter) => {
    const grad = gradientOf(parameter);
    return grad ? [wholeOrDivided(parameter, grad)] : [];
  });
  if (grads.length === 0 && !stages)
    throw new ArgumentError("clipGradNorm: no parameter has a gradient; call backward() first");
  const sums = stages ? ofStages(stages, grads) : sumsOf(grads);
  const made = normOf(sums, { maxNorm });
  for (const each of [made.norm, made.factor]) scope.keep(each);
  return made;
}

/** Returns the group whose ranks have the stages of the model, if there are several. */
function stagesOf(parameters: readonly Parameter[]): ProcessGroup | undefined {
  const [group, ...others] = new Set(
    parameters.flatMap(({ pipeline }) => (pipeline && pipeline.size > 1 ? [pipeline] : [])),
  );
  if (others.length > 0)
    throw new ArgumentError(
      "clipGradNorm: the parameters are those of several pipelines; clip each by itself",
    );
  return group;
}

/** Returns the sum of the squares of each stage's gradients, f32 [stages]. */
function ofStages(stages: ProcessGroup, grads: readonly Known[]): Tensor<"f32"> {
  // a stage may be frozen
  const own = grads.length === 0 ? zeros(stages.backend, "f32", [1]) : sumPieces(sumsOf(grads));
  return stages.saying("the squares of a stage's gradients", () => stages.allGather(own));
}

/** A gradient, with the places of its elements in the whole one if this rank has a part of it. */
interface Known {
  readonly grad: Tensor<WideDType>;
  readonly divided: DividedGrad | undefined;
}

/** Returns the sum of the squares of each gradient. Those that are divided among the same ranks are exchanged together. */
function sumsOf(known: readonly Known[]): Tensor<"f32"> {
  const groupsOf = ({ divided }: Known): readonly ProcessGroup[] => divided?.groups ?? [];
  const isSame = (a: Known, b: Known): boolean => sameList(groupsOf(a), groupsOf(b));
  const kinds = known.filter((each, i) => known.findIndex((other) => isSame(each, other)) === i);
  const sumsOfKind = (kind: Known): Tensor<"f32"> => {
    const those = known.filter((each) => isSame(each, kind));
    const divided = those.flatMap((each) => each.divided ?? []);
    return divided.length === 0 ? squareSums(those.map(({ grad }) => grad)) : dividedSquareSums(divided);
  };
  const [first] = known as [Known, ...Known[]];
  if (kinds.length === 1) return sumsOfKind(first);
  const all = new Tensor(first.grad.backend, "f32", [known.length]);
  for (const kind of kinds) {
    const sums = sumsOfKind(kind);
    const places = known.flatMap((each, i) => (isSame(each, kind) ? [i] : []));
    for (const [from, to] of places.entries()) all.paste(sums.view(from, [1]), to);
  }
  return all;
}

const sameList = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((each, i) => each === b[i]);

/** Returns where the elements of a gradient are in the whole one. If this rank has columns of it, all columns are gathered. */
function wholeOrDivided({ sharding, ranks }: Parameter, own: Tensor<WideDType>): Known {
  if (sharding && !sameShape(own.shape, sharding.own.shape))
    throw new ArgumentError(
      "clipGradNorm: a gradient is that of this rank's samples alone; run the last backward pass outside of noSync",
    );
  const hasColumns = ranks?.axis === 1;
  const grad = hasColumns ? allColumns(ranks.group, own) : own;
  const among = hasColumns ? undefined : ranks;
  if (!sharding && !among) return { grad, divided: undefined };
  const shape = ranks?.partOf(0).shape ?? sharding?.shape ?? own.shape;
  const whole = wholePart(shape.length === 0 ? [1] : shape);
  const parts = among ? among.group.ranks.map((_, rank) => among.partOf(rank)) : [whole];
  const rowsOf = (part: TensorPart): readonly TensorPart[] =>
    sharding ? dividedRows(part, sharding.rows) : [part];
  const elements = parts.map((part) => rowsOf(part).map(elementsOf));
  return {
    grad,
    divided: {
      grad,
      groups: [sharding?.group, among?.group].filter((group) => group !== undefined),
      size: elementCount(shape),
      own: elements[among?.group.rank ?? 0]?.[sharding?.group.rank ?? 0] ?? [],
      ends: elements.flat(2).map(([, end]) => end),
    },
  };
}

/** Returns the parts of a part that ranks with these numbers of rows have. */
function dividedRows(part: TensorPart, rows: readonly number[]): readonly TensorPart[] {
  let end = 0;
  return rows.map((count) => {
    end += count;
    return rowsOfPart(part, [end - count, end]);
  });
}

/** The elements of the whole that rows of it have. */
function elementsOf({ shape, ranges: [rows = []] }: TensorPart): readonly Range[] {
  const unit = elementCount(shape.slice(1));
  return rows.map(([begin, end]) => [begin * unit, end * unit]);
}

/** Gathers the columns of all ranks, each of which has as many. */
function allColumns(group: ProcessGroup, own: Tensor<WideDType>): Tensor<WideDType> {
  return transpose(group.allGather(transpose(own)));
}
