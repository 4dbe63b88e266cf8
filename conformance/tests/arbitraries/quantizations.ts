/**
 * All options of a quantization, and small sets of combinations that contain every combination of any few option values. Tests
 * add a shape, a seed and a matrix.
 */
import type { BlockFormatName } from "../../../src/formats/block.js";
import type { QuantizeSpec, ScaleLayout, Usage } from "../../../src/tensor/quantized.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { covering, product } from "../../arbitraries/covering.js";
import { layoutsOf, sourceTypes, specsOf, USAGES } from "../../arbitraries/specs.js";
import { NOOPS } from "../../operations/quantize/quantize.js";

/** One value for each option of a quantization. */
export interface ToldSpec {
  readonly spec: QuantizeSpec;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
  readonly dtype: WideDType;
  readonly noop: number | undefined;
  /** Delayed scaling only: whether the call records an amax. */
  readonly records: boolean;
}

/** Every valid combination of options of a quantizer. */
function everythingTold(name: BlockFormatName, noops: readonly (number | undefined)[]): readonly ToldSpec[] {
  return specsOf(name).flatMap((spec) =>
    product({
      spec: [spec],
      usage: USAGES,
      scaleLayout: layoutsOf(spec),
      dtype: sourceTypes(spec),
      noop: noops,
      records: name === "fp8-delayed" ? [true, false] : [true],
    }),
  );
}

/** The options of a quantization, including the options of the spec, as one flat object. */
function flattenOptions({ spec, ...rest }: ToldSpec): Readonly<Record<string, unknown>> {
  return { ...spec, ...rest };
}

/** A subset of all combinations, of the specs among `specs`, that contains every combination of `strength` option values. */
export function toldTogether(
  name: BlockFormatName,
  strength: number,
  noops: readonly (number | undefined)[] = NOOPS,
  specs: (spec: QuantizeSpec) => boolean = () => true,
): readonly ToldSpec[] {
  const results = everythingTold(name, noops).filter(({ spec }) => specs(spec));
  const inputs = new Map(results.map((result) => [flattenOptions(result), result]));
  return covering([...inputs.keys()], strength).map((row) => inputs.get(row) as ToldSpec);
}

/** A name for a test case. */
export function nameOf({ spec, usage, scaleLayout, dtype, noop, records }: ToldSpec): string {
  const { quantizer, ...fields } = spec;
  const settings = Object.entries(fields).filter(([, value]) => value && value !== "none" && value !== 448);
  const copies = Object.entries(usage).filter(([, isWanted]) => isWanted);
  return [
    quantizer,
    dtype,
    scaleLayout,
    ...copies.map(([copy]) => copy),
    ...settings.map(([key, value]) => (value === true ? key : `${key} ${value}`)),
    ...(noop === undefined ? [] : [`noop ${noop}`]),
    ...(records ? [] : ["no record"]),
  ].join(" ");
}
