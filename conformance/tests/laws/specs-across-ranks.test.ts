/** Ranks that gather the rows of one quantized tensor fail if their specs, nominal types or tensor-wide scales differ. */
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { gatherQuantized } from "../../../src/collectives/quantized.js";
import { DistributedError } from "../../../src/errors.js";
import { blockFormat, isDirectionless, isLineWide, usesTensorAmax } from "../../../src/formats/block.js";
import { tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import {
  COLUMNWISE,
  type QuantizedTensor,
  type QuantizeSpec,
  ROWWISE,
  type ScaleLayout,
  type Usage,
} from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { makeSpec, SCALE_LAYOUTS } from "../../../src/tensor/spec.js";
import { QUANTIZERS } from "../../arbitraries/specs.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { useRanks } from "../modules/tensor-parallel/ranks.js";
import { casesOf, FIELD_NAMES } from "./spec-pairs.js";

const groups = useRanks(2, "exact", 1000);

/** The rows that a rank quantizes, and gathers with the other rank's rows. */
interface Rows {
  readonly spec: QuantizeSpec;
  readonly dtype: WideDType;
  /** The value of each element. Default: 0. */
  readonly value?: number;
  /** The scale of FP8 with delayed scaling. Default: 64. */
  readonly scale?: number;
  /** Default: logical. */
  readonly scaleLayout?: ScaleLayout | undefined;
}

/** The outcome of each rank's gather: an error, or undefined. */
async function gatherOutcomes(
  rows: readonly Rows[],
  usage: Usage,
  readLocal: (local: QuantizedTensor, gathered: QuantizedTensor) => void = () => {},
): Promise<readonly unknown[]> {
  const members = groups(2);
  const failures = members.map((group: ProcessGroup, rank): unknown => {
    using _ = new Scope();
    const { spec, dtype, value = 0, scale = 64, scaleLayout = "logical" } = rows[rank] as Rows;
    const sentUsage = isDirectionless(spec) ? ROWWISE : usage;
    const delayedOptions = spec.quantizer === "fp8-delayed" ? { scale: tensor(group.backend, [scale]) } : {};
    const quantizer = new SpecQuantizer(
      spec,
      { ...sentUsage, scaleLayout },
      { ...delayedOptions, random: RANDOM },
    );
    const wideTensor = scaled(
      tensor(group.backend, new Float32Array(SIZE * SIZE).fill(value), [SIZE, SIZE]),
      1,
      {
        outDtype: dtype,
      },
    );
    try {
      const local = quantizer.quantize(wideTensor);
      readLocal(local, gatherQuantized(group, local, usage, quantizer));
    } catch (error) {
      return error;
    }
    return undefined;
  });
  return Promise.all(
    members.map((group, rank) => failures[rank] ?? group.barrier().catch((error: unknown) => error)),
  );
}

function requireDisagreement(ends: readonly unknown[]): void {
  for (const end of ends) expect(end).toBeInstanceOf(DistributedError);
  expect(ends.map((end) => (end as DistributedError).failure)).toContain("disagreement");
}

/** The state of stochastic rounding. */
const RANDOM = { seed: 7n, offset: 0n };

/** The size of a rank's matrix, so that no block extends past it. */
const SIZE = 128;

const USAGES = [ROWWISE, COLUMNWISE];

/** Cases whose blocks do not extend past a rank's rows. */
function gatheredCases(field: (typeof FIELD_NAMES)[number]) {
  const isDivided = ({ tile }: QuantizeSpec): boolean => !isLineWide(tile);
  return casesOf(field, USAGES).filter(([pair, usage]) => usage === ROWWISE || pair.every(isDivided));
}

describe("ranks that gather one quantized tensor", () => {
  it.each(FIELD_NAMES)("disagree about other values of %s", async (field) => {
    for (const [[spec, otherSpec], usage] of gatheredCases(field)) {
      const rows = [spec, otherSpec].map((rankSpec) => ({ spec: rankSpec, dtype: "bf16" }) as const);
      requireDisagreement(await gatherOutcomes(rows, usage));
    }
  });

  it("disagree about the type that was quantized", async () => {
    const spec = makeSpec("mxfp8", {});
    const rows = (["bf16", "f32"] as const).map((dtype) => ({ spec, dtype }));
    for (const usage of USAGES) requireDisagreement(await gatherOutcomes(rows, usage));
  });

  it("agree about equal specs", async () => {
    for (const [[spec], usage] of FIELD_NAMES.flatMap((field) => gatheredCases(field).slice(0, 2))) {
      const rows = [spec, { ...spec }].map((rankSpec) => ({ spec: rankSpec, dtype: "bf16" }) as const);
      expect(await gatherOutcomes(rows, usage)).toEqual([undefined, undefined]);
    }
  });

  const defaults = QUANTIZERS.map((name) => makeSpec(name, {}));
  /** The default specs, and specs with a power-of-two tensor scale. */
  const tensorWide = [
    ...defaults.filter((spec) => usesTensorAmax(spec) || spec.quantizer === "fp8-delayed"),
    makeSpec("fp8-current", { pow2Scales: true }),
  ];
  const differentScales = [{ value: 1 }, { value: 3, scale: 32 }];

  it.each(tensorWide)("disagree about other scales and amaxes of the tensor, by $quantizer", async (spec) => {
    for (const usage of USAGES) {
      const rows = differentScales.map((rankValues) => ({ spec, dtype: "bf16", ...rankValues }) as const);
      requireDisagreement(await gatherOutcomes(rows, usage));
      const signs = [1, -1].map((value) => ({ spec, dtype: "bf16", value }) as const);
      expect(await gatherOutcomes(signs, usage)).toEqual([undefined, undefined]);
    }
  });

  const blockWise = defaults.filter((spec) => !tensorWide.includes(spec));

  const layoutPairsOf = ({ quantizer }: QuantizeSpec) => {
    const isPossible = (layout: ScaleLayout): boolean =>
      layout !== "swizzled" || blockFormat(quantizer).padding === "tiles";
    const layouts = SCALE_LAYOUTS.filter(isPossible);
    return layouts.flatMap((firstLayout) =>
      layouts.map((secondLayout) => [firstLayout, secondLayout] as const),
    );
  };

  it.each(blockWise)(
    "keep the values of each rank in every layout of scales, by $quantizer",
    async (spec) => {
      for (const layouts of layoutPairsOf(spec)) {
        const rows = differentScales.map(
          (rankValues, rank) => ({ spec, dtype: "f32", ...rankValues, scaleLayout: layouts[rank] }) as const,
        );
        const reads: Promise<readonly (readonly number[])[]>[] = [];
        const ends = await gatherOutcomes(rows, ROWWISE, (...tensors) => {
          const pending = tensors.map(async (rankTensor) =>
            Array.from((await rankTensor.dequantize("f32").data()) as Float32Array),
          );
          reads.push(Promise.all(pending));
        });
        expect(ends).toEqual([undefined, undefined]);
        const [firstReads = [], secondReads = []] = await Promise.all(reads);
        const results = [...(firstReads[0] ?? []), ...(secondReads[0] ?? [])];
        expect(new Set(results).size).toBe(2);
        expect([firstReads[1], secondReads[1]]).toEqual([results, results]);
      }
    },
  );
});
