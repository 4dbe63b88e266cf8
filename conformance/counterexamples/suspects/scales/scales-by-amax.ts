/** Scales from a wrong amax: over other elements, or with changed values. */
import type { Region } from "../../../../src/explain/blocks.js";
import { roundedTo } from "../../../../src/explain/steps.js";
import { blockFormat, isLineWide, isTensorWide, tileSize } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { unitAmax } from "../amaxes.js";
import type { View } from "../view.js";
import type { ScaleSuspect } from "./scale-suspect.js";

const largest = (values: readonly number[]): number =>
  values.reduce((most, x) => Math.max(most, Number.isNaN(x) ? 0 : Math.abs(x)), 0);

/** Scales from another amax of the block, or from other elements. */
export function ofAmaxes(spec: QuantizeSpec): ScaleSuspect[] {
  const { tile } = spec;
  const isWide = isTensorWide(tile);
  const [lines, length] = isWide ? [0, 0] : tileSize(tile);
  const amaxOf = (
    words: string,
    of: (view: View, region: Region, block: number) => number | undefined,
  ): ScaleSuspect => ({
    words,
    of(view, block) {
      const amax = of(view, view.blocks[block]?.region as Region, block);
      return amax === undefined
        ? undefined
        : view.scaleBy(block, isWide ? { amax, tensorAmax: amax } : { amax });
    },
  });
  const over = (words: string, region: (view: View, region: Region, block: number) => Region | undefined) =>
    amaxOf(words, (view, blockRegion, block) => {
      const other = region(view, blockRegion, block);
      return other && view.amaxIn(other);
    });
  const finite = (value: number) => (Number.isFinite(value) ? value : 0);
  const common = [
    amaxOf(
      "NaN enters the amax: a block with NaN gets a NaN scale, where NaN has to be ignored",
      (view, region) => {
        const values = view.valuesIn(region);
        return values.some(Number.isNaN) ? Number.NaN : largest(values);
      },
    ),
    amaxOf("the amax is the maximum without the absolute value", (view, region) =>
      view.valuesIn(region).reduce((most, x) => Math.max(x, most), 0),
    ),
    amaxOf("infinities are ignored in the amax", (view, region) =>
      largest(view.valuesIn(region).map(finite)),
    ),
    amaxOf("infinities count as the largest finite number in the amax", (view, region) =>
      Math.min(largest(view.valuesIn(region)), factsOf("bf16").max * 2),
    ),
    amaxOf("subnormal numbers are flushed to zero in the amax", (view, region) =>
      largest(view.valuesIn(region).filter((x) => Math.abs(x) >= 2 ** -126)),
    ),
    ...(["bf16", "f16"] as const).map((type) =>
      amaxOf(`the amax is rounded to ${type}`, (view, region) => roundedTo(view.amaxIn(region), type)),
    ),
  ];
  if (isWide)
    return [
      ...common,
      over("the amax is that of the first row alone", (_, region) => ({
        ...region,
        bottom: Math.min(1, region.bottom),
      })),
    ];
  const shifted = (by: number) => (view: View, _own: Region, block: number) => {
    const [row, column] = [Math.floor(block / view.across), block % view.across];
    const other = column + by;
    if (other < 0 || other >= view.across) return view.blocks[block]?.region;
    return view.blocks[row * view.across + other]?.region;
  };
  // block lengths that are shorter than the line
  const ofLengths = [
    amaxOf(
      "the last block of a line includes what lies behind the line in memory: the next row",
      (view, region) => pastEnd(view, region, length),
    ),
    amaxOf("the last block of a line includes 1 of its padding", (view, region) =>
      region.right - region.left < (view.direction === "rowwise" ? length : lines) ||
      region.bottom - region.top < lines
        ? Math.max(1, view.amaxIn(region))
        : view.amaxIn(region),
    ),
    over(`blocks have ${2 * length} elements, not ${length}`, ({ direction, source }, region) =>
      direction === "rowwise"
        ? {
            ...region,
            left: region.left - (region.left % (2 * length)),
            right: Math.min(source.columns, region.left - (region.left % (2 * length)) + 2 * length),
          }
        : {
            ...region,
            top: region.top - (region.top % (2 * length)),
            bottom: Math.min(source.rows, region.top - (region.top % (2 * length)) + 2 * length),
          },
    ),
  ];
  return [
    ...common,
    over("the amax is that of the block before it", shifted(-1)),
    over("the amax is that of the block after it", shifted(1)),
    over("the last block of a line has the amax of the block before it", (view, region, block) =>
      (block + 1) % view.across === 0 ? shifted(-1)(view, region, block) : region,
    ),
    over("the last block of a line has the amax of the first one", (view, region, block) =>
      (block + 1) % view.across === 0 ? view.blocks[block - (block % view.across)]?.region : region,
    ),
    over(
      "every block has the amax of the first block of its line",
      (view, _, block) => view.blocks[block - (block % view.across)]?.region,
    ),
    ...(isLineWide(tile) ? [] : ofLengths),
    over("the amax is that of the whole row", (view, region) => ({
      ...region,
      left: 0,
      right: view.source.columns,
    })),
    over("the amax is that of the whole column", (view, region) => ({
      ...region,
      top: 0,
      bottom: view.source.rows,
    })),
    over("the amax is that of the whole tensor", (view) => ({
      ...{ top: 0, left: 0 },
      ...{ bottom: view.source.rows, right: view.source.columns },
    })),
    over("the amax is that of the first half of the block", (_, region) => halved(region, lines, length, 0)),
    over("the amax is that of the second half of the block", (_, region) => halved(region, lines, length, 1)),
    over("the last element of the block is left out of the amax", (view, region) =>
      view.direction === "rowwise"
        ? { ...region, right: region.right - 1 }
        : { ...region, bottom: region.bottom - 1 },
    ),
    over("blocks lie along the other dimension", (view, { top, left }) => {
      const { rows, columns } = view.source;
      if (view.direction !== "rowwise" || lines !== 1) return undefined;
      const start = top - (top % length);
      return { top: start, bottom: Math.min(rows, start + length), left, right: Math.min(columns, left + 1) };
    }),
    ...(blockFormat(spec.quantizer).tensorAmax
      ? [
          {
            words: "the scale of the tensor is left out: its amax is not used",
            of: (view: View, block: number) => view.scaleBy(block, { tensorAmax: unitAmax(spec) }),
          },
          {
            words: "the amax of the tensor is that of the row",
            of: (view: View, block: number) => {
              const blockRegion = view.blocks[block]?.region as Region;
              return view.scaleBy(block, {
                tensorAmax: view.amaxIn({ ...blockRegion, left: 0, right: view.source.columns }),
              });
            },
          },
        ]
      : []),
  ];
}

/** The amax over a short last block extended past the end of its row in memory. */
function pastEnd(view: View, region: Region, length: number): number | undefined {
  if (view.direction !== "rowwise") return undefined;
  const { columns, rows } = view.source;
  const missing = length - (region.right - region.left);
  let amax = view.amaxIn(region);
  for (let r = region.top; r < region.bottom; r++)
    for (let i = 0; i < missing; i++) {
      const at = r * columns + region.right + i;
      if (at < rows * columns)
        amax = Math.max(amax, Math.abs(finiteOr(view.source.value(Math.floor(at / columns), at % columns))));
    }
  return amax;
}

const finiteOr = (x: number): number => (Number.isNaN(x) ? 0 : x);

function halved({ top, bottom, left, right }: Region, lines: number, length: number, which: 0 | 1): Region {
  const wide = right - left >= bottom - top || lines === length;
  const middle = wide ? left + Math.ceil((right - left) / 2) : top + Math.ceil((bottom - top) / 2);
  if (wide) return which === 0 ? { top, bottom, left, right: middle } : { top, bottom, left: middle, right };
  return which === 0 ? { top, bottom: middle, left, right } : { top: middle, bottom, left, right };
}
