/** The recorded values that libraries read from converted checkpoints equal the values that `convert` and `inspect` read. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Changes } from "../../../../../src/checkpoints/convert/changes/changes.js";
import { encodeWide } from "../../../../../src/checkpoints/convert/dequantize/round.js";
import { DIALECT_TARGETS } from "../../../../../src/checkpoints/convert/targets/named.js";
import { sampleCases } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";
import {
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  VECTORS,
  valuesIn,
  writeContents,
} from "../../files/checkpoints.js";

interface LoadedRecord {
  readonly packages: readonly string[];
  readonly differing: number;
  readonly sha256: Readonly<Record<string, string>>;
}

const RECORD: {
  readonly versions: Readonly<Record<string, string>>;
  readonly loaded: Readonly<Record<string, LoadedRecord>>;
} = JSON.parse(readFileSync(join(VECTORS, "loaded.json"), "utf8"));

/** Forms that no library loads on a CPU, or from a model that has linear layers only. */
const UNLOADED = ["gpt-oss", "deepseek-mxfp4"];
/** Libraries that round the scale to the type of the model before it multiplies (`typedScale` of the dialect). */
const TYPED = ["modelopt-fp8"];
/** Libraries that read the code of minus zero as plus zero. */
const PLUS_ZERO = /modelopt-nvfp4$/;

const backend = useBackend({ threads: 1 });

const [HIDDEN, WIDE, VOCABULARY] = [128, 256, 8];
const LAYER = "model.layers.0.";
const SHAPES: Readonly<Record<string, readonly number[]>> = {
  "model.embed_tokens.weight": [VOCABULARY, HIDDEN],
  ...Object.fromEntries(
    [..."qkvo"].map((name) => [`${LAYER}self_attn.${name}_proj.weight`, [HIDDEN, HIDDEN]]),
  ),
  [`${LAYER}mlp.gate_proj.weight`]: [WIDE, HIDDEN],
  [`${LAYER}mlp.up_proj.weight`]: [WIDE, HIDDEN],
  [`${LAYER}mlp.down_proj.weight`]: [HIDDEN, WIDE],
  [`${LAYER}input_layernorm.weight`]: [HIDDEN],
  [`${LAYER}post_attention_layernorm.weight`]: [HIDDEN],
  "model.norm.weight": [HIDDEN],
  "lm_head.weight": [VOCABULARY, HIDDEN],
};

/** The model that scripts/witness/checkpoints/load.py draws. */
function drawTensor(index: number, shape: readonly number[]): StoredTensor {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Float64Array.from({ length: count }, (_, i) => {
    if (shape.length === 1) return 1;
    let hash = (Math.imul(i, 2654435761 | 0) + Math.imul(index + 1, 2654419969 | 0)) >>> 0;
    hash = Math.imul(hash ^ (hash >>> 15), 2246822519 | 0) >>> 0;
    hash = (hash ^ (hash >>> 13)) >>> 0;
    return (hash / 2 ** 32 - 0.5) * 2 ** ((i % 5) - 4);
  });
  return { dtype: "BF16", shape, bytes: encodeWide("bf16", values, new Changes()) };
}

async function writeModel(folder: string): Promise<void> {
  const tensors = new Map(
    Object.entries(SHAPES).map(([name, shape], index) => [name, drawTensor(index, shape)]),
  );
  const config = { architectures: ["LlamaForCausalLM"], dtype: "bfloat16" };
  await writeContents(folder, {
    tensors,
    metadata: { format: "pt" },
    json: new Map([["config.json", config]]),
  });
}

const bf16 = (values: Float64Array): Uint8Array => encodeWide("bf16", values, new Changes());

/** The values of a checkpoint in bf16, as its library computes them. */
async function bytesIn(folder: string, target: string): Promise<Map<string, Uint8Array>> {
  const values = await valuesIn(folder);
  for (const [name, ownValues] of values) {
    const scale = TYPED.includes(target) && (await readContents(folder)).tensors.get(`${name}_scale`)?.bytes;
    if (scale) {
      const f32Scale = new DataView(scale.buffer, scale.byteOffset).getFloat32(0, true);
      const [lowByte = 0, highByte = 0] = bf16(Float64Array.of(f32Scale));
      const lowValue = new Float32Array(Uint32Array.of((lowByte | (highByte << 8)) << 16).buffer)[0] ?? 0;
      ownValues.forEach((value, i) => {
        ownValues[i] = Math.round((value / f32Scale) * 2 ** 9) * 2 ** -9 * lowValue;
      });
    }
    if (PLUS_ZERO.test(target))
      ownValues.forEach((value, i) => {
        ownValues[i] = value + 0;
      });
  }
  return new Map([...values].map(([name, ownValues]) => [name, bf16(ownValues)]));
}

it("the record has every form that a library loads, and what the loaders read is what convert says", () => {
  const singleTargets = Object.keys(RECORD.loaded).filter((targets) => !targets.includes(":"));
  expect(singleTargets.toSorted()).toEqual(
    DIALECT_TARGETS.filter((target) => !UNLOADED.includes(target)).toSorted(),
  );
  for (const [targets, { differing, packages }] of Object.entries(RECORD.loaded)) {
    expect(differing > 0, targets).toBe(TYPED.includes(targets));
    for (const packageName of packages) expect(RECORD.versions[packageName]).toMatch(/^\d/);
  }
});

describe.each(sampleCases(Object.entries(RECORD.loaded), 3))("%s", (targets, { sha256 }) => {
  it("has the values that the library reads, and verify finds no error", async () => {
    await inFolder(async (folder) => {
      await writeModel(folder);
      let [path, target] = [folder, ""];
      for (const link of targets.split(":")) {
        const next = join(folder, `${target}-${link}`);
        await convertTo(backend(), path, next, link);
        [path, target] = [next, link];
      }
      const { findings, weights } = await reportOf(path);
      expect(errorsIn(findings)).toEqual([]);
      expect(weights).toHaveLength(7);
      const digests = [...(await bytesIn(path, target))].map(([name, bytes]) => [
        name,
        createHash("sha256").update(bytes).digest("hex"),
      ]);
      expect(Object.fromEntries(digests)).toEqual(sha256);
    });
  });
});
