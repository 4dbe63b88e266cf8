/** Ranks that gather the rows of one quantized tensor fail if their specs or nominal types differ. */
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { gatherQuantized } from "../../../src/collectives/quantized.js";
import { DistributedError } from "../../../src/errors.js";
import { isDirectionless, isLineWide } from "../../../src/formats/block.js";
import { zeros } from "../../../src/ops/create.js";
import { COLUMNWISE, type QuantizeSpec, ROWWISE, type Usage } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { useRanks } from "../modules/tensor-parallel/ranks.js";
import { casesOf, FIELD_NAMES, quantizerOf } from "./spec-pairs.js";

const groups = useRanks(2, "exact", 1000);

/** The rows that a rank quantizes, and gathers with those of the other rank. */
interface Rows {
  readonly spec: QuantizeSpec;
  readonly dtype: WideDType;
}

/** The outcome of each rank's gather: an error, or undefined. */
async function gathers(rows: readonly Rows[], usage: Usage): Promise<readonly unknown[]> {
  const members = groups(2);
  const failures = members.map((group: ProcessGroup, rank): unknown => {
    using _ = new Scope();
    const { spec, dtype } = rows[rank] as Rows;
    const sent = isDirectionless(spec) ? ROWWISE : usage;
    const quantizer = quantizerOf(group.backend, spec, sent);
    try {
      gatherQuantized(group, quantizer.quantize(zeros(group.backend, dtype, [SIZE, SIZE])), usage, quantizer);
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
    for (const [[spec, other], usage] of gatheredCases(field)) {
      const rows = [spec, other].map((each) => ({ spec: each, dtype: "bf16" }) as const);
      requireDisagreement(await gathers(rows, usage));
    }
  });

  it("disagree about the type that was quantized", async () => {
    const spec = makeSpec("mxfp8", {});
    const rows = (["bf16", "f32"] as const).map((dtype) => ({ spec, dtype }));
    for (const usage of USAGES) requireDisagreement(await gathers(rows, usage));
  });

  it("agree about equal specs", async () => {
    for (const [[spec], usage] of FIELD_NAMES.flatMap((field) => gatheredCases(field).slice(0, 2))) {
      const rows = [spec, { ...spec }].map((each) => ({ spec: each, dtype: "bf16" }) as const);
      expect(await gathers(rows, usage)).toEqual([undefined, undefined]);
    }
  });
});
