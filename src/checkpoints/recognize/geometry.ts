/** Derives from the shapes of codes and scales the elements that share a scale. */
import { SWIZZLE_TILE } from "../../tensor/places.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import { type Finding, type FindingName, finding } from "../judge/findings.js";
import type { Claim } from "../stored/config/claim.js";
import type { Scheme } from "../stored/config/scheme.js";
import { type Convention, type ConventionName, conventionOf, type ScaleKind } from "../stored/conventions.js";
import type { StoredTensor } from "../stored/tensors.js";
import { matricesOf, type ScaleGeometry } from "../stored/weight.js";

/** The inputs of `fitGeometry`. */
export interface Shapes {
  readonly convention: ConventionName;
  /** The name of the weight, for findings. */
  readonly name: string;
  readonly shape: Shape;
  readonly scale: StoredTensor;
  readonly claim?: Claim | undefined;
  /** The scheme that the configuration declares for the weight. */
  readonly scheme?: Scheme | undefined;
  /** Whether the file says that the scales are swizzled. */
  readonly swizzled: boolean;
}

/** A geometry, or findings that explain why there is none. Findings about a geometry do not prevent reading. */
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

/** Derives the geometry from the shape of the scales. */
export function fitGeometry(shapes: Shapes): Fitted {
  const row = conventionOf(shapes.convention);
  const { strategy: declared } = declaredScheme(row, shapes);
  const strategy = declared === undefined ? undefined : STRATEGIES[declared];
  const geometries = row.kinds.map((kind) => fitKind(kind, row, shapes)).filter((each) => each !== undefined);
  const declaredGeometry = geometries.find(({ kind }) => strategy === undefined || kind === strategy);
  if (declaredGeometry)
    return { geometry: declaredGeometry, findings: partialBlockFindings(shapes, declaredGeometry) };
  const [otherGeometry] = geometries;
  return { findings: [otherGeometry ? kindFinding(shapes, otherGeometry, strategy) : misfitOf(shapes, row)] };
}

/** The declared scheme of a weight, if the configuration's method declares the convention. Otherwise empty. */
function declaredScheme(row: Convention, { claim, scheme }: Shapes): Partial<Scheme> {
  return claim && scheme && row.methods.includes(claim.method) ? scheme : {};
}

/** The sizes of a weight and its blocks, from which a row of `CANDIDATES` derives a geometry. */
interface Sizes {
  readonly lead: Shape;
  readonly rows: number;
  readonly columns: number;
  readonly tile: readonly [number, number];
  readonly group: number | undefined;
}

/** A possible geometry, and the shapes of its scale tensor. */
interface Candidate extends Pick<ScaleGeometry, "block" | "grid"> {
  /** The shapes that are possible under every convention. Findings name the first shape. */
  readonly shapes: readonly Shape[];
  /** The additional shape of a single matrix's scales under a convention with `reducedScales`. */
  readonly reduced?: Shape;
}

/** The geometry of each kind of scales; undefined if the blocks do not divide the weight. */
const CANDIDATES: Readonly<Record<ScaleKind, (sizes: Sizes) => Candidate | undefined>> = {
  whole: ({ rows, columns }) => ({
    block: [Math.max(rows, 1), Math.max(columns, 1)],
    grid: [1, 1],
    shapes: [[1], []],
  }),
  row: ({ lead, rows, columns }) => ({
    block: [1, Math.max(columns, 1)],
    grid: [rows, 1],
    shapes: [[...lead, rows, 1]],
    reduced: [rows],
  }),
  column: ({ lead, rows, columns }) => ({
    block: [Math.max(rows, 1), 1],
    grid: [1, columns],
    shapes: [
      [...lead, 1, columns],
      [...lead, columns, 1],
    ],
  }),
  tile: ({ lead, rows, columns, tile }) => {
    const grid = gridOf(rows, columns, tile);
    return { block: tile, grid, shapes: [[...lead, ...grid]], reduced: [grid[0], 1, grid[1], 1] };
  },
  group: ({ lead, rows, columns, group }) =>
    group === undefined || columns % group !== 0
      ? undefined
      : { block: [1, group], grid: [rows, columns / group], shapes: [[...lead, rows, columns / group]] },
};

function candidateOf(kind: ScaleKind, row: Convention, shapes: Shapes): Candidate | undefined {
  const [, rows, columns] = matricesOf(shapes.shape);
  const leadingShape = shapes.shape.slice(0, -2);
  return CANDIDATES[kind]({
    lead: leadingShape,
    rows,
    columns,
    tile: blockOf(row, shapes),
    group: groupOf(row, shapes),
  });
}

function fitKind(kind: ScaleKind, row: Convention, shapes: Shapes): ScaleGeometry | undefined {
  const candidate = candidateOf(kind, row, shapes);
  if (!candidate) return undefined;
  const { block, grid } = candidate;
  const { swizzled } = shapes;
  const isFit =
    kind === "group" && swizzled ? hasSwizzledSize(shapes, grid) : hasShape(kind, row, shapes, candidate);
  return isFit ? { kind, block, grid, swizzled } : undefined;
}

/** Whether the number of scales is the size of one swizzled grid per matrix. */
function hasSwizzledSize({ shape, scale }: Shapes, grid: readonly [number, number]): boolean {
  return countOf(scale.entry.shape) === matricesOf(shape)[0] * padded(grid);
}

/** Whether the scale tensor has one of the shapes of a candidate. */
function hasShape(
  kind: ScaleKind,
  row: Convention,
  { shape, scale, claim }: Shapes,
  { shapes, reduced, grid }: Candidate,
): boolean {
  const isReducible =
    row.reducedScales === true && shape.length <= 2 && (!claim || row.methods.includes(claim.method));
  const possible = [
    ...shapes,
    ...(reduced && isReducible ? [reduced] : []),
    ...(kind === "whole" && row.maySwizzle ? [[1, 1]] : []),
    ...(kind === "group" && row.codes.suffix === ".weight" ? [[grid[0] * grid[1], 1]] : []),
  ];
  return possible.some((each) => sameShape(scale.entry.shape, each));
}

function gridOf(rows: number, columns: number, [height, width]: readonly [number, number]) {
  return [Math.ceil(rows / height), Math.ceil(columns / width)] as const;
}

const countOf = (shape: Shape): number => shape.reduce((product, size) => product * size, 1);

/** The number of scales of a swizzled grid, padded to full tiles. */
function padded([rows, columns]: readonly [number, number]): number {
  const [height, width] = SWIZZLE_TILE;
  return Math.ceil(rows / height) * height * Math.ceil(columns / width) * width;
}

function blockOf(row: Convention, shapes: Shapes): readonly [number, number] {
  return declaredScheme(row, shapes).block ?? row.block ?? [128, 128];
}

function groupOf(row: Convention, shapes: Shapes): number | undefined {
  const { shape, scale } = shapes;
  if (row.group !== undefined) return row.group;
  const { group } = declaredScheme(row, shapes);
  if (group !== undefined) return group;
  const groups = scale.entry.shape.at(-1) ?? 0;
  const columns = shape.at(-1) ?? 0;
  return groups > 0 && columns % groups === 0 ? columns / groups : undefined;
}

/** Findings about partial blocks at the end of a dimension. */
function partialBlockFindings(
  { convention, name, shape }: Shapes,
  { kind, block }: ScaleGeometry,
): Finding[] {
  if (kind !== "tile") return [];
  const [, ...sizes] = matricesOf(shape);
  const partialAxes = sizes.flatMap((size, axis) => {
    const length = block[axis] ?? 1;
    const blocks = Math.ceil(size / length);
    if (size % length === 0 || blocks <= 1) return [];
    const derived = convention === "block-fp8" && size % blocks === 0;
    return [{ derived, what: `${size} is no multiple of ${length}, and has ${blocks} blocks` }];
  });
  return partialAxes.map(({ derived, what }) =>
    finding(derived ? "block-derived" : "block-ragged", name, what),
  );
}

function describe({ entry }: StoredTensor): string {
  return `${entry.name} is ${entry.dtype} [${entry.shape}]`;
}

function kindFinding(shapes: Shapes, { kind }: ScaleGeometry, strategy: ScaleKind | undefined): Finding {
  const name: FindingName = strategy === "row" && kind === "whole" ? "scale-flattened" : "scale-shape";
  const problem = `${describe(shapes.scale)}, one for each ${kind}; the configuration says one for each ${strategy}`;
  return finding(name, shapes.name, problem);
}

/** The finding about scales of a shape that the convention does not allow. */
function misfitOf(shapes: Shapes, row: Convention): Finding {
  const { name, shape, scale, swizzled, claim } = shapes;
  const [, rows, columns] = matricesOf(shape);
  const scaleShape = scale.entry.shape;
  const misfitFinding = (findingName: FindingName, expected: string): Finding =>
    finding(findingName, name, `${describe(scale)}; codes of [${shape}] need ${expected}`);
  const leadingShape = shape.slice(0, -2);
  const isTransposedGrid = (grid: readonly [number, number]): boolean =>
    sameShape(scaleShape, [...leadingShape, grid[1], grid[0]]) && grid[0] !== grid[1];
  const shapeText = (...sizes: readonly number[]): string => `[${[...leadingShape, ...sizes]}]`;
  if (row.kinds.length === 1 && row.kinds[0] === "group") {
    const group = groupOf(row, shapes) ?? 1;
    const grid = [rows, columns / group] as const;
    if (columns % group !== 0)
      return misfitFinding("block-divides", `a last dimension that is a multiple of ${group}`);
    if (isTransposedGrid(grid)) return misfitFinding("scale-axis", shapeText(...grid));
    if (!swizzled && countOf(scaleShape) === padded(grid))
      return misfitFinding("scales-swizzled", shapeText(...grid));
    return misfitFinding("scale-shape", shapeText(...grid));
  }
  const block = blockOf(row, shapes);
  if (row.kinds.includes("tile")) {
    const grid = gridOf(rows, columns, block);
    const declaredBlock = row.block ?? block;
    if (
      claim &&
      declaredScheme(row, shapes).block &&
      sameShape(scaleShape, [...leadingShape, ...gridOf(rows, columns, declaredBlock)])
    )
      return finding(
        "config-block",
        name,
        `${claim.path} says blocks of ${block.join("x")}; ${describe(scale)}`,
      );
    if (isTransposedGrid(grid)) return misfitFinding("scale-axis", shapeText(...grid));
    if (row.kinds.length === 1)
      return misfitFinding("scale-shape", `${shapeText(...grid)}, one for each ${block.join("x")}`);
  }
  const ofRows = row.kinds.includes("row");
  if (
    ofRows &&
    (sameShape(scaleShape, [...leadingShape, 1, columns]) ||
      sameShape(scaleShape, [...leadingShape, columns, 1]))
  )
    return misfitFinding("scale-axis", shapeText(rows, 1));
  if (
    row.kinds.includes("column") &&
    (sameShape(scaleShape, [...leadingShape, rows, 1]) || sameShape(scaleShape, [...leadingShape, 1, rows]))
  )
    return misfitFinding("scale-axis", shapeText(1, columns));
  const needs = row.kinds.map((kind) =>
    kind === "group"
      ? `[${[...leadingShape, rows]}, groups]`
      : `[${candidateOf(kind, row, shapes)?.shapes[0]?.join() ?? ""}]`,
  );
  return misfitFinding("scale-shape", needs.join(", or "));
}
