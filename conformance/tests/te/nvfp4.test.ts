// The reference equals TransformerEngine's PyTorch reference of the NVFP4 quantizer in every bit of codes, scales and
// amaxes.
import { expect, it } from "vitest";
import { NVFP4Quantizer, Scope, type Tensor, tensor, type WideDType } from "../../../src/index.js";
import { sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { type DrawKind, draw } from "../harness/te/draws.js";
import { canonicalBytes, type RecordedResult, readWitness, toRecordedForm } from "../harness/te/recorded.js";

interface Case {
  readonly shape: readonly [number, number];
  readonly dtype: WideDType;
  readonly kind: DrawKind;
  readonly seed: number;
  readonly tile: readonly [1, 16] | readonly [16, 16];
  readonly with_rht?: boolean;
  readonly with_random_sign_mask?: boolean;
  readonly row_scaled_nvfp4?: boolean;
  readonly nvfp4_use_4over6?: boolean;
  readonly nvfp4_e4m3_max?: 256 | 448;
  readonly nvfp4_4over6_err_mode?: "MAE" | "MSE";
  readonly data: RecordedResult;
  readonly scale: RecordedResult;
  readonly data_t: RecordedResult;
  readonly scale_t: RecordedResult;
  readonly global_amax_row: RecordedResult;
  readonly global_amax_col: RecordedResult;
}

const { origin, cases } = readWitness<Case>("nvfp4");
const backend = useBackend();

function quantizerOf(testCase: Case): NVFP4Quantizer {
  const { nvfp4_4over6_err_mode: mode, nvfp4_e4m3_max: e4m3Max } = testCase;
  return new NVFP4Quantizer({
    rowwise: true,
    columnwise: true,
    tile: testCase.tile[0] === 16 ? "16x16" : "1x16",
    rht: testCase.with_rht ?? false,
    randomSigns: testCase.with_random_sign_mask ?? true,
    rowScaled: testCase.row_scaled_nvfp4 ?? false,
    ...(mode ? { fourOverSix: mode === "MAE" ? "mae" : "mse", e4m3Max } : {}),
  });
}

/** TransformerEngine's reference does not store the elements with which a line of codes is padded to whole blocks. */
function withoutPadding(bytes: Uint8Array, { type, shape }: RecordedResult): Uint8Array {
  const [lines, stored] = shape;
  if (type !== "u8" || lines === undefined || stored === undefined) return bytes;
  const line = bytes.length / lines;
  return bytes.filter((_, i) => i % line < stored);
}

it.each(sampleCases(cases, 6))(
  `NVFP4 has the recorded bits of ${origin.version}: $shape $dtype $kind, $tile, seed $seed`,
  async (testCase) => {
    using _scope = new Scope();
    const { shape, dtype, kind, seed } = testCase;
    const { rowwise, columnwise } = quantizerOf(testCase).quantize(
      tensor(backend(), draw(kind, dtype, seed, shape), shape, dtype),
    );
    const parts: readonly (readonly [keyof Case, Tensor | undefined])[] = [
      ["data", rowwise?.data],
      ["scale", rowwise?.scaleInv],
      ["data_t", columnwise?.data],
      ["scale_t", columnwise?.scaleInv],
      ["global_amax_row", rowwise?.amax],
      ["global_amax_col", columnwise?.amax],
    ];
    for (const [name, part] of parts) {
      const recordedResult = testCase[name] as RecordedResult;
      const bytes = withoutPadding(await canonicalBytes(part as Tensor), recordedResult);
      expect(toRecordedForm(bytes, recordedResult), name).toEqual(recordedResult);
    }
  },
);
