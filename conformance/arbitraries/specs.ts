/** Everything a quantizer can be told. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, type BlockFormat, type BlockFormatName } from "../../src/formats/block.js";
import { RHT_SIGNS } from "../../src/ops/hadamard.js";
import { makeSpec } from "../../src/quantizers/quantizer.js";
import type { QuantizeSpec, ScaleLayout, Usage } from "../../src/tensor/quantized.js";
import type { WideDType } from "../../src/tensor/shape.js";
import { wideType } from "./wide.js";

export const QUANTIZERS = Object.keys(BLOCK_FORMATS) as readonly BlockFormatName[];

/** Every quantizer with every format, tile and option it has. */
export function quantizeSpec(names: readonly BlockFormatName[] = QUANTIZERS): fc.Arbitrary<QuantizeSpec> {
  return fc.oneof(...names.map(specOf));
}

/** What a quantizer may be given to read: the transform takes bf16 alone. */
export function sourceType({ rht }: QuantizeSpec): fc.Arbitrary<WideDType> {
  return rht ? fc.constant("bf16") : wideType();
}

function specOf(name: BlockFormatName): fc.Arbitrary<QuantizeSpec> {
  const row: BlockFormat = BLOCK_FORMATS[name];
  const common = { format: fc.constantFrom(...row.elements), tile: fc.constantFrom(...row.tiles) };
  const f32Scale = { pow2Scales: fc.boolean(), epsilon: fc.constantFrom(0, 0, 2 ** -10, 1e-12, 1) };
  switch (name) {
    case "fp8-current":
      return fc.record({ ...common, ...f32Scale }).map((fields) => makeSpec(name, fields));
    case "fp8-block":
      return fc.record({ ...common, ...f32Scale, compact: fc.boolean() }).map((fields) => {
        return makeSpec(name, { ...fields, compact: fields.compact && fields.tile === "1x128" });
      });
    case "nvfp4":
      return fc.tuple(fc.record(common), nvfp4Mode()).map(([fields, mode]) => {
        return makeSpec(name, { ...fields, ...mode, tile: mode.rht ? "1x16" : fields.tile });
      });
    default:
      return fc.record(common).map((fields) => makeSpec(name, fields));
  }
}

type Mode = Pick<QuantizeSpec, "rht" | "rhtSigns" | "stochastic" | "fourOverSix" | "e4m3Max">;

/** Plain, transformed, stochastic, both, or 4over6, which goes with neither. */
function nvfp4Mode(): fc.Arbitrary<Mode> {
  const plain = fc.record({ rht: fc.boolean(), signs: fc.boolean(), stochastic: fc.boolean() }).map(
    ({ rht, signs, stochastic }): Mode => ({
      rht,
      rhtSigns: rht && signs ? RHT_SIGNS : 0,
      stochastic,
      fourOverSix: "none",
      e4m3Max: 448,
    }),
  );
  const chosen = fc.record({
    rht: fc.constant(false),
    rhtSigns: fc.constant(0),
    stochastic: fc.constant(false),
    fourOverSix: fc.constantFrom("mae", "mse"),
    e4m3Max: fc.constantFrom(256, 448),
  } as const);
  return fc.oneof({ weight: 2, arbitrary: plain }, chosen);
}

/** Rowwise, columnwise or both. */
export function usage(): fc.Arbitrary<Usage> {
  return fc.constantFrom(
    { rowwise: true, columnwise: false },
    { rowwise: false, columnwise: true },
    { rowwise: true, columnwise: true },
  );
}

/** A scale layout that the spec has. */
export function scaleLayout(spec: QuantizeSpec): fc.Arbitrary<ScaleLayout> {
  const swizzles = BLOCK_FORMATS[spec.quantizer].scale !== "f32";
  return fc.constantFrom(
    ...(["logical", "padded", ...(swizzles ? ["swizzled"] : [])] as const),
  ) as fc.Arbitrary<ScaleLayout>;
}
