// The reference equals TransformerEngine's quantizers, recorded on an H100, in every bit of codes, scales and
// dequantized values.
import { describe, expect, it } from "vitest";
import {
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  type QuantizedTensor,
  type Quantizer,
  type ScalarFormat,
  Scope,
  type Tensor,
  tensor,
  type WideDType,
} from "../../../src/index.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { type DrawKind, draw } from "../harness/te/draws.js";
import { canonicalBytes, type RecordedResult, readWitness, toRecordedForm } from "../harness/te/recorded.js";

interface Drawing {
  readonly shape: readonly number[];
  readonly dtype: WideDType;
  readonly kind: DrawKind;
  readonly seed: number;
}

interface Case extends Drawing {
  readonly quantizer: "delayed" | "current" | "block";
  readonly format: ScalarFormat;
  readonly scale?: string;
  readonly pow2?: boolean;
  readonly epsilon?: number;
  readonly dim?: 1 | 2;
  readonly data?: RecordedResult;
  readonly transpose?: RecordedResult;
  readonly scale_inv?: RecordedResult;
  readonly rowwise_data?: RecordedResult;
  readonly columnwise_data?: RecordedResult;
  readonly rowwise_scale_inv?: RecordedResult;
  readonly columnwise_scale_inv?: RecordedResult;
  readonly dequantized: RecordedResult;
  readonly amax?: RecordedResult;
}

const { origin, cases } = readWitness<Case>("quantizations");
const backend = useBackend();
const BOTH = { rowwise: true, columnwise: true } as const;

let cachedDraw: { readonly key: string; readonly data: Uint16Array | Float32Array } | undefined;

/** The input of a case. Consecutive cases share it. */
function source({ kind, dtype, seed, shape }: Drawing): Tensor<WideDType> {
  const key = JSON.stringify([kind, dtype, seed, shape]);
  if (cachedDraw?.key !== key) cachedDraw = { key, data: draw(kind, dtype, seed, shape) };
  return tensor(backend(), cachedDraw.data, shape, dtype);
}

/** The first columns of a matrix of padded scales, as many as were recorded. */
function cropPadding(
  bytes: Uint8Array,
  { shape: [, paddedColumns = 0] }: Tensor,
  { shape: [, columns = 0] }: RecordedResult,
) {
  const rows = bytes.length / (4 * paddedColumns);
  const parts = Array.from({ length: rows }, (_, i) =>
    bytes.subarray(4 * i * paddedColumns, 4 * (i * paddedColumns + columns)),
  );
  return new Uint8Array(Buffer.concat(parts));
}

function quantizerOf(testCase: Case, amax: Tensor<"f32">): Quantizer {
  const { format, pow2, epsilon } = testCase;
  switch (testCase.quantizer) {
    case "delayed": {
      const scale = new Float32Array(Uint32Array.of(Number.parseInt(testCase.scale ?? "", 16)).buffer);
      return new Float8Quantizer({ format, scale: tensor(backend(), scale, [1]), amax, ...BOTH });
    }
    case "current":
      return new Float8CurrentScalingQuantizer({ format, pow2Scales: pow2, amaxEpsilon: epsilon, ...BOTH });
    case "block": {
      const tile = testCase.dim === 2 ? "128x128" : "1x128";
      return new Float8BlockQuantizer({
        ...{ format, pow2Scales: pow2, amaxEpsilon: epsilon, tile, scaleLayout: "padded" },
        ...BOTH,
      });
    }
  }
}

/** The tensors of a quantized tensor under TransformerEngine's names, in the order of its record. */
function partsOf(testCase: Case, out: QuantizedTensor, dequantized: Tensor, amax: Tensor) {
  const { rowwise, columnwise } = out;
  const perTensor = {
    data: rowwise?.data,
    transpose: columnwise?.data,
    scale_inv: rowwise?.scaleInv,
    ...(testCase.amax ? { amax } : {}),
  };
  const perBlock = {
    rowwise_data: rowwise?.data,
    columnwise_data: columnwise?.data,
    rowwise_scale_inv: rowwise?.scaleInv,
    columnwise_scale_inv: columnwise?.scaleInv,
  };
  return { ...(testCase.quantizer === "block" ? perBlock : perTensor), dequantized };
}

describe(`quantizers of ${origin.version} on an ${origin.gpu}`, () => {
  it.each(["delayed", "current", "block"] as const)(
    "%s: the reference gives every recorded bit",
    async (quantizer) => {
      const ownCases = cases.filter((candidate) => candidate.quantizer === quantizer);
      let comparedCount = 0;
      expect(ownCases.length).toBe({ delayed: 90, current: 360, block: 720 }[quantizer]);
      for (const testCase of sampleCases(ownCases, 16)) {
        using _scope = new Scope();
        const amax = tensor(backend(), [0]);
        const out = quantizerOf(testCase, amax).quantize(source(testCase));
        const parts = Object.entries(partsOf(testCase, out, out.dequantize(testCase.dtype), amax));
        const { shape, dtype, kind, seed, format, scale, pow2, epsilon, dim } = testCase;
        const named = JSON.stringify({ shape, dtype, kind, seed, format, scale, pow2, epsilon, dim });
        for (const [name, part] of parts) {
          const recordedResult = testCase[name as keyof Case] as RecordedResult;
          const bytes = await canonicalBytes(part as Tensor);
          const croppedBytes = name.endsWith("wise_scale_inv")
            ? cropPadding(bytes, part as Tensor, recordedResult)
            : bytes;
          expect(toRecordedForm(croppedBytes, recordedResult), `${name} of ${named}`).toEqual(recordedResult);
          comparedCount += croppedBytes.length;
        }
      }
      expect(comparedCount).toBeGreaterThan(draws(1e6) / 4);
    },
  );
});
