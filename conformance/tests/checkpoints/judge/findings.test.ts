/** Published failures of real checkpoints, planted in files that libraries wrote: each is named. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FINDINGS, type FindingName } from "../../../../src/checkpoints/judge/findings.js";
import { FileError } from "../../../../src/errors.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import {
  type Contents,
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOfContents,
  type StoredTensor,
  VECTORS,
  writeContents,
} from "../files/checkpoints.js";

const backend = useBackend({ threads: 1 });

const Q = "model.layers.0.self_attn.q_proj";
const GATE = "model.layers.0.mlp.gate_proj";
const EXPERTS = "model.layers.0.feed_forward.experts";
const ORIGINAL = join(VECTORS, "original");

const get = ({ tensors }: Contents, name: string): StoredTensor => {
  const tensor = tensors.get(name);
  if (!tensor) throw new Error(`${name} is not there`);
  return tensor;
};
const editTensor = (contents: Contents, name: string, edit: (tensor: StoredTensor) => void): void => {
  const tensor = get(contents, name);
  tensor.bytes = tensor.bytes.slice();
  edit(tensor);
};
const drop = (contents: Contents, name: string): void => {
  get(contents, name);
  contents.tensors.delete(name);
};
const floats = ({ bytes }: StoredTensor): Float32Array =>
  new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
const bits16 = ({ bytes }: StoredTensor): Uint16Array =>
  new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
const scalar = (tensor: StoredTensor, value: number): void => {
  tensor.bytes = new Uint8Array(Float32Array.of(value).buffer);
};
const asF32 = (tensor: StoredTensor, values: Float32Array): void => {
  tensor.dtype = "F32";
  tensor.bytes = new Uint8Array(values.buffer);
};
const bf16 = (tensor: StoredTensor): Float32Array =>
  new Float32Array(Uint32Array.from(bits16(tensor), (word) => word << 16).buffer);
const quantization = ({ json }: Contents): Record<string, unknown> => {
  const config = json.get("config.json") ?? {};
  return config.quantization_config as Record<string, unknown>;
};

interface Plant {
  readonly what: string;
  readonly fixture: string;
  readonly name: FindingName;
  readonly alter: (contents: Contents) => void;
  /** Whether only a comparison with the original checkpoint reveals the planted fault. */
  readonly hasOriginal?: true;
}

const PLANTS: readonly Plant[] = [
  ...["ct-fp8-channel", "ct-mxfp8", "modelopt-fp8", "fbgemm-fp8"].map(
    (fixture): Plant => ({
      what: "the scale of an FP8 weight is dropped",
      fixture,
      name: "scale-missing",
      alter: (contents) => drop(contents, `${Q}.weight_scale`),
    }),
  ),
  ...["ct-nvfp4", "ct-mxfp4", "ct-mxfp6", "ct-int4-group", "modelopt-nvfp4"].map(
    (fixture): Plant => ({
      what: "the scales of packed codes are dropped",
      fixture,
      name: "scale-missing",
      alter: (contents) => drop(contents, `${Q}.weight_scale`),
    }),
  ),
  {
    what: "weight_scale_inv is dropped",
    fixture: "transformers-fp8",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${Q}.weight_scale_inv`),
  },
  {
    what: "the scales of blocks are dropped",
    fixture: "gpt-oss",
    name: "scale-missing",
    alter: (contents) => drop(contents, "model.layers.0.mlp.experts.down_proj_scales"),
  },
  {
    what: "torchao's scales are dropped",
    fixture: "torchao-fp8",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${Q}._weight_scale`),
  },
  {
    what: "the scales of experts are dropped",
    fixture: "fbgemm-fp8",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${EXPERTS}.down_proj_scale`),
  },
  {
    what: "the global scale is dropped",
    fixture: "ct-nvfp4",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${Q}.weight_global_scale`),
  },
  {
    what: "weight_scale_2 is dropped",
    fixture: "modelopt-nvfp4",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${Q}.weight_scale_2`),
  },
  {
    what: "the scale of the tensor is dropped",
    fixture: "torchao-nvfp4",
    name: "scale-missing",
    alter: (contents) => drop(contents, `${Q}._weight_per_tensor_scale`),
  },
  {
    what: "the codes are dropped",
    fixture: "ct-nvfp4",
    name: "scale-orphan",
    alter: (contents) => drop(contents, `${Q}.weight_packed`),
  },
  {
    what: "the blocks are dropped",
    fixture: "gpt-oss",
    name: "scale-orphan",
    alter: (contents) => drop(contents, "model.layers.0.mlp.experts.down_proj_blocks"),
  },
  {
    what: "a weight was dequantized and its scale is still there",
    fixture: "transformers-fp8",
    name: "scale-orphan",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight`, (tensor) =>
        Object.assign(tensor, { dtype: "BF16", bytes: new Uint8Array(2 * tensor.bytes.length) }),
      ),
  },
  {
    what: "scales of MX are F32",
    fixture: "ct-mxfp4",
    name: "scale-dtype",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) => asF32(tensor, Float32Array.from(tensor.bytes))),
  },
  {
    what: "scales of NVFP4 are E8M0",
    fixture: "modelopt-nvfp4",
    name: "scale-dtype",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) => Object.assign(tensor, { dtype: "F8_E8M0" })),
  },
  {
    what: "scales have one dimension",
    fixture: "fbgemm-fp8",
    name: "scale-shape",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) => Object.assign(tensor, { shape: [32] })),
  },
  {
    what: "one scale too few",
    fixture: "ct-mxfp8",
    name: "scale-shape",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: [31, 1], bytes: tensor.bytes.slice(0, 31) }),
      ),
  },
  {
    what: "scales of three fused projections are put beside one",
    fixture: "ct-fp8-tensor",
    name: "scale-shape",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: [3], bytes: new Uint8Array(6).fill(60) }),
      ),
  },
  {
    what: "the scales of a row are flattened to one",
    fixture: "ct-fp8-channel",
    name: "scale-flattened",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: [1], bytes: tensor.bytes.slice(0, 2) }),
      ),
  },
  {
    what: "the scales of a row are flattened to one, and no configuration tells",
    fixture: "ct-fp8-channel",
    name: "scale-flattened",
    alter: (contents) => {
      contents.json.clear();
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: [1], bytes: tensor.bytes.slice(0, 2) }),
      );
    },
  },
  {
    what: "groups lie along the other axis",
    fixture: "ct-nvfp4",
    name: "scale-axis",
    alter: (contents) =>
      editTensor(contents, `${GATE}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: tensor.shape.toReversed() }),
      ),
  },
  {
    what: "blocks lie along the other axis",
    fixture: "transformers-fp8",
    name: "scale-axis",
    alter: (contents) =>
      editTensor(contents, `${GATE}.weight_scale_inv`, (tensor) =>
        Object.assign(tensor, { shape: tensor.shape.toReversed() }),
      ),
  },
  {
    what: "scales of experts belong to the rows",
    fixture: "fbgemm-fp8",
    name: "scale-axis",
    alter: (contents) =>
      editTensor(contents, `${EXPERTS}.gate_up_proj_scale`, (tensor) =>
        Object.assign(tensor, { shape: [2, 32, 1], bytes: tensor.bytes.slice(0, 256) }),
      ),
  },
  {
    what: "the last dimension is no multiple of the group",
    fixture: "ct-mxfp8",
    name: "block-divides",
    alter: (contents) => {
      editTensor(contents, `${Q}.weight`, (tensor) =>
        Object.assign(tensor, { shape: [32, 31], bytes: tensor.bytes.slice(0, 32 * 31) }),
      );
    },
  },
  {
    what: "a shard is narrower than a block, and transformers derives another block",
    fixture: "transformers-fp8",
    name: "block-derived",
    alter: (contents) => {
      editTensor(contents, `${GATE}.weight`, (tensor) =>
        Object.assign(tensor, { shape: [60, 32], bytes: tensor.bytes.slice(0, 60 * 32) }),
      );
    },
  },
  {
    what: "the configuration says other blocks",
    fixture: "transformers-fp8",
    name: "scale-shape",
    alter: (contents) => Object.assign(quantization(contents), { weight_block_size: [8, 32] }),
  },
  {
    what: "a scale is NaN",
    fixture: "transformers-fp8",
    name: "scale-not-finite",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale_inv`, (tensor) => floats(tensor).fill(Number.NaN, 0, 1)),
  },
  {
    what: "an E8M0 scale is NaN",
    fixture: "ct-mxfp4",
    name: "scale-not-finite",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, ({ bytes }) => bytes.fill(255, 3, 4)),
  },
  {
    what: "an E4M3 scale is NaN",
    fixture: "ct-nvfp4",
    name: "scale-not-finite",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, ({ bytes }) => bytes.fill(0x7f, 3, 4)),
  },
  {
    what: "the global scale is infinite",
    fixture: "modelopt-nvfp4",
    name: "scale-not-finite",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale_2`, (tensor) => scalar(tensor, Infinity)),
  },
  {
    what: "the scale of activations is infinite",
    fixture: "modelopt-fp8",
    name: "scale-not-finite",
    alter: (contents) => editTensor(contents, `${Q}.input_scale`, (tensor) => scalar(tensor, Infinity)),
  },
  {
    what: "a scale is negative",
    fixture: "fbgemm-fp8",
    name: "scale-negative",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) => floats(tensor).fill(-0.001, 5, 6)),
  },
  {
    what: "an E4M3 scale has a sign",
    fixture: "modelopt-nvfp4",
    name: "scale-negative",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, ({ bytes }) => bytes.fill(0xb8, 3, 4)),
  },
  ...[
    ["ct-fp8-tensor", "weight_scale"],
    ["ct-fp8-channel", "weight_scale"],
    ["modelopt-nvfp4", "weight_scale"],
    ["modelopt-nvfp4", "weight_scale_2"],
    ["ct-nvfp4", "weight_global_scale"],
    ["transformers-fp8", "weight_scale_inv"],
    ["ct-mxfp8", "weight_scale"],
    ["ct-int4-group", "weight_scale"],
  ].map(
    ([fixture = "", end]): Plant => ({
      what: `all of ${end} are zero`,
      fixture,
      name: "scale-zero",
      alter: (contents) => editTensor(contents, `${Q}.${end}`, ({ bytes }) => bytes.fill(0)),
    }),
  ),
  {
    what: "all scales are 1",
    fixture: "fbgemm-fp8",
    name: "scale-constant",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, (tensor) => floats(tensor).fill(1)),
  },
  {
    what: "all scales are equal",
    fixture: "fbgemm-fp8",
    name: "scale-constant",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, (tensor) => floats(tensor).fill(0.0004)),
  },
  {
    what: "the only scale is 1",
    fixture: "modelopt-fp8",
    name: "scale-constant",
    alter: (contents) => editTensor(contents, `${Q}.weight_scale`, (tensor) => scalar(tensor, 1)),
  },
  {
    what: "all scales of NVFP4 are 1",
    fixture: "ct-nvfp4",
    name: "scale-constant",
    alter: (contents) => editTensor(contents, `${GATE}.weight_scale`, ({ bytes }) => bytes.fill(0x39)),
  },
  ...(["modelopt-fp8", "transformers-fp8", "fbgemm-fp8"] as const).map(
    (fixture): Plant => ({
      what: "scales are reciprocals",
      fixture,
      name: "scale-inverted",
      alter: (contents) =>
        editTensor(
          contents,
          fixture === "transformers-fp8" ? `${Q}.weight_scale_inv` : `${Q}.weight_scale`,
          (tensor) =>
            asF32(
              tensor,
              floats(tensor).map((value) => 1 / value),
            ),
        ),
    }),
  ),
  ...["ct-fp8-channel", "ct-int8-channel", "ct-int4-group"].map(
    (fixture): Plant => ({
      what: "scales of bf16 are reciprocals",
      fixture,
      name: "scale-inverted",
      alter: (contents) =>
        editTensor(contents, `${Q}.weight_scale`, (tensor) =>
          asF32(
            tensor,
            bf16(tensor).map((value) => 1 / value),
          ),
        ),
    }),
  ),
  ...["ct-mxfp8", "ct-mxfp4", "ct-mxfp6"].map(
    (fixture): Plant => ({
      what: "exponents of scales are negated",
      fixture,
      name: "scale-inverted",
      alter: (contents) =>
        editTensor(
          contents,
          `${GATE}.weight_scale`,
          (tensor) => (tensor.bytes = tensor.bytes.map((byte) => 254 - byte)),
        ),
    }),
  ),
  {
    what: "the global scale multiplies where it should divide",
    fixture: "ct-nvfp4",
    name: "scale-inverted",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_global_scale`, (tensor) =>
        scalar(tensor, 1 / (floats(tensor)[0] ?? 1)),
      ),
  },
  {
    what: "the global scale divides where it should multiply",
    fixture: "modelopt-nvfp4",
    name: "scale-inverted",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale_2`, (tensor) => scalar(tensor, 1 / (floats(tensor)[0] ?? 1))),
  },
  {
    what: "scales are rounded up to powers of two, and the codes stay",
    fixture: "transformers-fp8",
    name: "scale-rounded",
    alter: (contents) =>
      editTensor(contents, `${GATE}.weight_scale_inv`, (tensor) =>
        asF32(
          tensor,
          floats(tensor).map((value) => 2 ** Math.ceil(Math.log2(value))),
        ),
      ),
  },
  {
    what: "scales are in the order of tensor cores, padded",
    fixture: "ct-nvfp4",
    name: "scales-swizzled",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        Object.assign(tensor, { shape: [128, 4], bytes: new Uint8Array(512).fill(0x38) }),
      ),
  },
  {
    what: "torchao's scales are swizzled, and the file does not say so",
    fixture: "torchao-nvfp4",
    name: "scales-swizzled",
    alter: (contents) => {
      const metadata = contents.metadata as Record<string, string>;
      metadata[`${Q}.weight`] = (metadata[`${Q}.weight`] ?? "").replace(
        '"is_swizzled_scales": true',
        '"is_swizzled_scales": false',
      );
    },
  },
  {
    what: "a code is NaN",
    fixture: "modelopt-fp8",
    name: "codes-nan",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight`, ({ bytes }) => bytes.fill(0x7f, 9, 10).fill(0x80, 0, 1)),
  },
  {
    what: "codes are those of e4m3fnuz, and the file calls them e4m3fn",
    fixture: "ct-fp8-channel",
    name: "codes-fnuz",
    alter: (contents) =>
      editTensor(
        contents,
        `${Q}.weight`,
        (tensor) => (tensor.bytes = tensor.bytes.map((byte) => ((byte & 0x7f) === 0x7e ? byte | 1 : byte))),
      ),
  },
  {
    what: "codes are e4m3fnuz",
    fixture: "fbgemm-fp8",
    name: "codes-fnuz",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight`, (tensor) => Object.assign(tensor, { dtype: "F8_E4M3FNUZ" })),
  },
  {
    what: "values are doubled",
    fixture: "fbgemm-fp8",
    name: "scale-factor",
    hasOriginal: true,
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_scale`, (tensor) =>
        asF32(
          tensor,
          floats(tensor).map((value) => 2 * value),
        ),
      ),
  },
  ...["ct-nvfp4", "modelopt-nvfp4", "ct-mxfp4", "ct-int4-group"].map(
    (fixture): Plant => ({
      what: "nibbles are exchanged",
      fixture,
      name: "nibbles-swapped",
      hasOriginal: true,
      alter: (contents) =>
        editTensor(
          contents,
          contents.tensors.has(`${Q}.weight_packed`) ? `${Q}.weight_packed` : `${Q}.weight`,
          (tensor) => (tensor.bytes = tensor.bytes.map((byte) => (byte >> 4) | (byte << 4))),
        ),
    }),
  ),
  {
    what: "scales of other rows",
    fixture: "ct-mxfp8",
    name: "values-apart",
    hasOriginal: true,
    alter: (contents) =>
      editTensor(
        contents,
        `${Q}.weight_scale`,
        (tensor) => (tensor.bytes = tensor.bytes.map((byte, i) => byte + (i % 3))),
      ),
  },
  {
    what: "fused projections have different global scales",
    fixture: "ct-nvfp4",
    name: "fused-scales-differ",
    alter: (contents) =>
      editTensor(contents, `${Q}.weight_global_scale`, (tensor) =>
        scalar(tensor, 1.5 * (floats(tensor)[0] ?? 1)),
      ),
  },
  {
    what: "gate and up have different scales",
    fixture: "modelopt-nvfp4",
    name: "fused-scales-differ",
    alter: (contents) =>
      editTensor(contents, `${GATE}.weight_scale_2`, (tensor) =>
        scalar(tensor, 1.5 * (floats(tensor)[0] ?? 1)),
      ),
  },
  ...["ct-fp8-channel", "ct-nvfp4", "transformers-fp8", "gpt-oss", "fbgemm-fp8"].map(
    (fixture): Plant => ({
      what: "the configuration says nothing of the quantization",
      fixture,
      name: "config-missing",
      alter: ({ json }) => Reflect.deleteProperty(json.get("config.json") ?? {}, "quantization_config"),
    }),
  ),
  ...["ct-fp8-channel", "ct-nvfp4", "transformers-fp8", "gpt-oss", "modelopt-nvfp4"].map(
    (fixture): Plant => ({
      what: "the configuration names another method",
      fixture,
      name: "config-method",
      alter: (contents) =>
        Object.assign(quantization(contents), { quant_method: fixture === "gpt-oss" ? "fp8" : "mxfp4" }),
    }),
  ),
  {
    what: "the configuration names another format",
    fixture: "ct-nvfp4",
    name: "config-method",
    alter: (contents) =>
      Object.assign(quantization(contents), { format: "mxfp4-pack-quantized", config_groups: {} }),
  },
  {
    what: "no tensor is quantized",
    fixture: "transformers-fp8",
    name: "config-empty",
    alter: (contents) => {
      for (const [name, tensor] of contents.tensors) {
        if (name.endsWith("scale_inv")) contents.tensors.delete(name);
        else if (tensor.dtype === "F8_E4M3")
          Object.assign(tensor, { dtype: "BF16", bytes: new Uint8Array(2 * tensor.bytes.length) });
      }
    },
  },
  {
    what: "a projection is not quantized",
    fixture: "ct-nvfp4",
    name: "config-unquantized",
    alter: (contents) => {
      for (const end of ["weight_packed", "weight_scale", "weight_global_scale"])
        drop(contents, `${Q}.${end}`);
      contents.tensors.set(`${Q}.weight`, { dtype: "BF16", shape: [32, 32], bytes: new Uint8Array(2048) });
    },
  },
  {
    what: "an ignored projection is quantized",
    fixture: "ct-nvfp4",
    name: "config-ignored",
    alter: (contents) => Object.assign(quantization(contents), { ignore: ["lm_head", "re:.*q_proj"] }),
  },
  {
    what: "the scales of the cache are missing",
    fixture: "modelopt-fp8",
    name: "config-kv-cache",
    alter: (contents) =>
      Object.assign(quantization(contents), {
        kv_cache_scheme: { dynamic: false, num_bits: 8, type: "float" },
      }),
  },
  {
    what: "the cache runs at 1",
    fixture: "modelopt-fp8",
    name: "scale-one",
    alter: (contents) =>
      contents.tensors.set("model.layers.0.self_attn.k_proj.k_scale", {
        dtype: "F32",
        shape: [],
        bytes: new Uint8Array(Float32Array.of(1).buffer),
      }),
  },
  {
    what: "codes of GPTQ",
    fixture: "ct-int4-group",
    name: "codes-unrecognized",
    alter: (contents) =>
      contents.tensors.set("a.qweight", { dtype: "I32", shape: [1, 1], bytes: new Uint8Array(4) }),
  },
  {
    what: "all codes are zero",
    fixture: "ct-mxfp8",
    name: "codes-zero",
    alter: (contents) => editTensor(contents, `${Q}.weight`, ({ bytes }) => bytes.fill(0)),
  },
  {
    what: "there are zero points, and the configuration says that there are none",
    fixture: "ct-int4-group",
    name: "config-scheme",
    alter: (contents) =>
      contents.tensors.set(`${Q}.weight_zero_point`, {
        dtype: "I32",
        shape: [4, 1],
        bytes: new Uint8Array(16),
      }),
  },
  {
    what: "codes of FP8 have zero points",
    fixture: "ct-fp8-channel",
    name: "zero-point",
    alter: (contents) =>
      contents.tensors.set(`${Q}.weight_zero_point`, {
        dtype: "F8_E4M3",
        shape: [32, 1],
        bytes: new Uint8Array(32).fill(1),
      }),
  },
];

/** Converts contents to bf16, which reads all codes and scales. */
const wideValuesOf = (contents: Contents) =>
  inFolder(async (folder) => {
    await writeContents(folder, contents);
    return convertTo(backend(), folder, join(folder, "out"), "bf16");
  });

describe("a planted failure is named, and nothing is converted", () => {
  it.each(sampleCases(PLANTS, 24).map((row) => [row.name, row.fixture, row.what, row] as const))(
    "%s in %s: %s",
    async (name, fixture, _, { alter, hasOriginal: original }) => {
      const contents = await readContents(join(VECTORS, fixture));
      alter(contents);
      const { findings } = await reportOfContents(contents, original ? ORIGINAL : undefined);
      if (!original && errorsIn(findings).some((finding) => finding.name !== "fused-scales-differ"))
        await expect(wideValuesOf(contents)).rejects.toThrow(FileError);
      expect(findings.map((finding) => finding.name)).toContain(name);
      const { severity, remedy } = FINDINGS[name];
      expect(findings.find((finding) => finding.name === name)).toMatchObject({ severity, remedy });
      for (const { subject, what } of findings) {
        expect(subject).not.toBe("");
        expect(what).not.toBe("");
      }
    },
  );
});
