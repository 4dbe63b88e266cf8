/** Derives from the shapes of codes and scales which elements share a scale. */
import { SWIZZLE_TILE } from "../../tensor/places.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import { type Finding, type FindingName, finding } from "../judge/findings.js";
import type { Claim } from "../stored/config/claim.js";
import type { Scheme } from "../stored/config/scheme.js";
import { type Convention, type ConventionName, conventionOf, type ScaleKind } from "../stored/conventions.js";
import type { StoredTensor } from "../stored/tensors.js";
import { matricesOf, type ScaleGeometry } from "../stored/weight.js";

/** What decides a geometry. */
export interface Shapes {
  readonly convention: ConventionName;
  /** The weight, for findings. */
  readonly name: string;
  readonly shape: Shape;
  readonly scale: StoredTensor;
  readonly claim?: Claim | undefined;
  /** What the configuration says of the weight. */
  readonly scheme?: Scheme | undefined;
  /** Whether the file says that the scales are swizzled. */
  readonly swizzled: boolean;
}

/** A geometry, or why there is none; findings beside a geometry do not forbid reading by it. */
export interface Fitted {
  readonly geometry?: ScaleGeometry;
  readonly findings: readonly Finding[];
}

const STRATEGIES: Readonly<Record<string, ScaleKind>> = {
  tensor: "whole",
  channel: "row",
  block: "tile",
  group: "group",
  tensor_group: "group",
  groups: "group",
};

/** Finds the geometry that the shape of the scales has. */
export function fitGeometry(shapes: Shapes): Fitted {
  const row = conventionOf(shapes.convention);
  const { strategy: said } = saidOf(row, shapes);
  const strategy = said === undefined ? undefined : STRATEGIES[said];
  const fits = row.kinds.map((kind) => fitKind(kind, row, shapes)).filter((each) => each !== undefined);
  const right = fits.find(({ kind }) => strategy === undefined || kind === strategy);
  if (right) return { geometry: right, findings: raggedness(shapes, right) };
  const [other] = fits;
  return { findings: [other ? otherKind(shapes, other, strategy) : misfit(shapes, row)] };
}

/** What the configuration says of a weight, if it is one of the convention's. */
function saidOf(row: Convention, { claim, scheme }: Shapes): Partial<Scheme> {
  return claim && scheme && row.methods.includes(claim.method) ? scheme : {};
}

function fitKind(kind: ScaleKind, row: Convention, shapes: Shapes): ScaleGeometry | undefined {
  const { shape, scale, swizzled } = shapes;
  const [matrices, rows, columns] = matricesOf(shape);
  const lead = shape.slice(0, -2);
  const own = scale.entry.shape;
  const make = (block: readonly [number, number], grid: readonly [number, number]): ScaleGeometry => ({
    kind,
    block,
    grid,
    swizzled,
  });
  const is = (...expected: readonly number[]): boolean => sameShape(own, [...lead, ...expected]);
  const isOther = shapes.claim !== undefined && !row.methods.includes(shapes.claim.method);
  const isReduced = (...expected: readonly number[]): boolean =>
    row.reducedScales === true && !isOther && lead.length === 0 && sameShape(own, expected);
  switch (kind) {
    case "whole":
      return own.length <= 2 && own.every((size) => size === 1) && (own.length < 2 || row.maySwizzle)
        ? make([Math.max(rows, 1), Math.max(columns, 1)], [1, 1])
        : undefined;
    case "row":
      return is(rows, 1) || isReduced(rows) ? make([1, Math.max(columns, 1)], [rows, 1]) : undefined;
    case "column":
      return is(1, columns) || is(columns, 1) ? make([Math.max(rows, 1), 1], [1, columns]) : undefined;
    case "tile": {
      const [height, width] = blockOf(row, shapes);
      const grid = [Math.ceil(rows / height), Math.ceil(columns / width)] as const;
      return is(...grid) || isReduced(grid[0], 1, grid[1], 1) ? make([height, width], grid) : undefined;
    }
    case "group": {
      const group = groupOf(row, shapes);
      if (group === undefined || columns % group !== 0) return undefined;
      const grid = [rows, columns / group] as const;
      const flat = row.codes.suffix === ".weight" && sameShape(own, [grid[0] * grid[1], 1]);
      const isPadded = countOf(own) === matrices * padded(grid);
      const tiled = swizzled && isPadded;
      return tiled || (!swizzled && (is(...grid) || flat)) ? make([1, group], grid) : undefined;
    }
  }
}

const countOf = (shape: Shape): number => shape.reduce((product, size) => product * size, 1);

/** The number of scales of a swizzled grid, which is padded to whole tiles. */
function padded([rows, columns]: readonly [number, number]): number {
  const [height, width] = SWIZZLE_TILE;
  return Math.ceil(rows / height) * height * Math.ceil(columns / width) * width;
}

function blockOf(row: Convention, shapes: Shapes): readonly [number, number] {
  return saidOf(row, shapes).block ?? row.block ?? [128, 128];
}

function groupOf(row: Convention, shapes: Shapes): number | undefined {
  const { shape, scale } = shapes;
  if (row.group !== undefined) return row.group;
  const { group } = saidOf(row, shapes);
  if (group !== undefined) return group;
  const groups = scale.entry.shape.at(-1) ?? 0;
  const columns = shape.at(-1) ?? 0;
  return groups > 0 && columns % groups === 0 ? columns / groups : undefined;
}

/** Findings about blocks that are cut off at the end of a dimension. */
function raggedness({ convention, name, shape }: Shapes, { kind, block }: ScaleGeometry): Finding[] {
  if (kind !== "tile") return [];
  const [, ...sizes] = matricesOf(shape);
  const cut = sizes.flatMap((size, axis) => {
    const length = block[axis] ?? 1;
    const blocks = Math.ceil(size / length);
    if (size % length === 0 || blocks <= 1) return [];
    const derived = convention === "block-fp8" && size % blocks === 0;
    return [{ derived, what: `${size} is no multiple of ${length}, and has ${blocks} blocks` }];
  });
  return cut.map(({ derived, what }) => finding(derived ? "block-derived" : "block-ragged", name, what));
}

function describe({ entry }: StoredTensor): string {
  return `${entry.name} is ${entry.dtype} [${entry.shape}]`;
}

function otherKind(shapes: Shapes, { kind }: ScaleGeometry, strategy: ScaleKind | undefined): Finding {
  const name: FindingName = strategy === "row" && kind === "whole" ? "scale-flattened" : "scale-shape";
  const what = `${describe(shapes.scale)}, one for each ${kind}; the configuration says one for each ${strategy}`;
  return finding(name, shapes.name, what);
}

/** The finding for scales of a shape that the convention does not have. */
function misfit(shapes: Shapes, row: Convention): Finding {
  const { name, shape, scale, swizzled, claim } = shapes;
  const [, rows, columns] = matricesOf(shape);
  const own = scale.entry.shape;
  const say = (found: FindingName, needed: string): Finding =>
    finding(found, name, `${describe(scale)}; codes of [${shape}] need ${needed}`);
  const lead = shape.slice(0, -2);
  const transposed = (grid: readonly [number, number]): boolean =>
    sameShape(own, [...lead, grid[1], grid[0]]) && grid[0] !== grid[1];
  const shown = (...sizes: readonly number[]): string => `[${[...lead, ...sizes]}]`;
  if (row.kinds.length === 1 && row.kinds[0] === "group") {
    const group = groupOf(row, shapes) ?? 1;
    const grid = [rows, columns / group] as const;
    if (columns % group !== 0) return say("block-divides", `a last dimension that is a multiple of ${group}`);
    if (transposed(grid)) return say("scale-axis", shown(...grid));
    if (!swizzled && countOf(own) === padded(grid)) return say("scales-swizzled", shown(...grid));
    return say("scale-shape", shown(...grid));
  }
  const block = blockOf(row, shapes);
  const gridOf = ([height, width]: readonly [number, number]) =>
    [Math.ceil(rows / height), Math.ceil(columns / width)] as const;
  if (row.kinds.includes("tile")) {
    const grid = gridOf(block);
    const usual = row.block ?? block;
    if (claim && saidOf(row, shapes).block && sameShape(own, [...lead, ...gridOf(usual)]))
      return finding(
        "config-block",
        name,
        `${claim.path} says blocks of ${block.join("x")}; ${describe(scale)}`,
      );
    if (transposed(grid)) return say("scale-axis", shown(...grid));
    if (row.kinds.length === 1)
      return say("scale-shape", `${shown(...grid)}, one for each ${block.join("x")}`);
  }
  const ofRows = row.kinds.includes("row");
  if (ofRows && (sameShape(own, [...lead, 1, columns]) || sameShape(own, [...lead, columns, 1])))
    return say("scale-axis", shown(rows, 1));
  if (
    row.kinds.includes("column") &&
    (sameShape(own, [...lead, rows, 1]) || sameShape(own, [...lead, 1, rows]))
  )
    return say("scale-axis", shown(1, columns));
  const needs = row.kinds.map((kind) => NEEDS[kind](rows, columns, block, lead));
  return say("scale-shape", needs.join(", or "));
}

type Need = (rows: number, columns: number, block: readonly [number, number], lead: Shape) => string;

const NEEDS: Readonly<Record<ScaleKind, Need>> = {
  whole: () => "[1]",
  row: (rows, _columns, _block, lead) => `[${[...lead, rows, 1]}]`,
  column: (_rows, columns, _block, lead) => `[${[...lead, 1, columns]}]`,
  tile: (rows, columns, [height, width], lead) =>
    `[${[...lead, Math.ceil(rows / height), Math.ceil(columns / width)]}]`,
  group: (rows, _columns, _block, lead) => `[${[...lead, rows]}, groups]`,
};
