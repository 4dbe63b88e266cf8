/**
 * Unchanged files of every convention are sound. No field of the configuration and no tensor can be lost or altered without a
 * finding.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { inspectFiles } from "../../../../src/checkpoints/inspect.js";
import type { Finding } from "../../../../src/checkpoints/judge/findings.js";
import { type ConventionName, conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { surveyFiles } from "../../../../src/checkpoints/survey.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { type Contents, errorsIn, inFolder, type StoredTensor, writeContents } from "../files/checkpoints.js";
import {
  addWeight,
  configFor,
  contentsOf,
  drawsFrom,
  FORMS,
  type Form,
  STORED_NAMES,
} from "../files/drawn-files.js";

/** More than one block for tiles, and whole groups for other kinds. */
const shapeFor = ({ kind }: Form): readonly [number, number] => (kind === "tile" ? [256, 128] : [16, 64]);
const MODULES = [0, 1, 2].flatMap((layer) =>
  [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "mlp.experts.0.up_proj",
    "mlp.experts.1.up_proj",
  ].map((name) => `model.layers.${layer}.${name}`),
);

async function findingsOf(contents: Contents, convention?: ConventionName): Promise<readonly Finding[]> {
  return inFolder(async (folder) => {
    await writeContents(folder, contents);
    const checkpoint = await openCheckpointFiles(folder);
    try {
      return (await inspectFiles(checkpoint, await surveyFiles(checkpoint, convention))).findings;
    } finally {
      await checkpoint.close();
    }
  });
}

/** The findings that need no codes. */
async function surveyFindings(contents: Contents, convention?: ConventionName): Promise<readonly Finding[]> {
  return inFolder(async (folder) => {
    await writeContents(folder, contents);
    const checkpoint = await openCheckpointFiles(folder);
    try {
      return (await surveyFiles(checkpoint, convention)).findings;
    } finally {
      await checkpoint.close();
    }
  });
}

/** Whether a form has modules of linear layers, not tensors with other names. */
const isOfModules = ({ name }: Form): boolean => /^\._?weight/.test(conventionOf(name).codes.suffix);

/** A file of a form: one weight, or some weights of three layers with every optional tensor. */
function fileOf(form: Form, modules: readonly string[], options = {}): Contents {
  const tensors = new Map<string, StoredTensor>();
  const draw = drawsFrom(7);
  for (const module of modules) addWeight(tensors, module, form, shapeFor(form), draw, options);
  return contentsOf(tensors, configFor(form, options));
}

const titledForms = FORMS.map((form) => [form.name, form.kind, form] as const);

describe.each(sampleCases(titledForms, 3))("a file of %s, a scale for each %s", (_, __, form) => {
  it("has no error, whether its convention is recognized or specified", async () => {
    const contents = fileOf(form, [MODULES[0] as string]);
    for (const convention of [undefined, form.name]) {
      const findings = await findingsOf(contents, convention);
      expect(findings.filter(({ severity }) => severity !== "note")).toEqual([]);
    }
  });

  it("is not read in silence as of another convention", async () => {
    const contents = fileOf(form, [MODULES[0] as string]);
    const otherNames = fc.sample(fc.constantFrom(...STORED_NAMES.filter((name) => name !== form.name)), {
      numRuns: draws(6),
    });
    for (const otherName of new Set(otherNames))
      expect(await surveyFindings(contents, otherName), otherName).not.toEqual([]);
  });
});

const orderedForms = titledForms.filter(
  ([name, kind]) => kind === "group" && conventionOf(name).order !== undefined,
);

it.each(sampleCases(orderedForms, 4))("a file of %s with group indices has no error", async (_, __, form) => {
  const findings = await findingsOf(fileOf(form, [MODULES[0] as string], { order: true }));
  expect(findings.filter(({ severity }) => severity !== "note")).toEqual([]);
});

/** Fields that each describe a weight, with a wrong value. */
const ALTERED: readonly (readonly [field: string, value: (value: unknown) => unknown])[] = [
  ["num_bits", (value) => (value === 4 ? 8 : 4)],
  ["type", (value) => (value === "int" ? "float" : "int")],
  ["strategy", (value) => (value === "group" ? "tensor_group" : value === "channel" ? "group" : "channel")],
  ["group_size", (value) => 2 * Number(value)],
  ["block_structure", () => [64, 64]],
  ["scale_dtype", (value) => (value === "torch.uint8" ? "torch.float8_e4m3fn" : "torch.uint8")],
];

describe.each(
  sampleCases(
    titledForms.filter(([name]) => conventionOf(name).methods[0] === "compressed-tensors"),
    4,
  ),
)("the configuration of %s, a scale for each %s", (_, __, form) => {
  it("is an error with any altered field", async () => {
    const { tensors } = fileOf(form, [MODULES[0] as string]);
    for (const [field, value] of ALTERED) {
      const config = structuredClone(configFor(form)) as ReturnType<typeof quantizationOf>;
      const { weights } = config.quantization_config.config_groups.group_0;
      if (weights[field] === undefined || weights[field] === null) continue;
      weights[field] = value(weights[field]);
      const findings = await surveyFindings(contentsOf(tensors, config));
      expect(errorsIn(findings), field).not.toEqual([]);
    }
  });

  it("names another method or format, leaves the weight out, or has other groups", async () => {
    const { tensors } = fileOf(form, [MODULES[0] as string]);
    const EDITS: readonly ((config: ReturnType<typeof quantizationOf>) => void)[] = [
      ({ quantization_config: quantization }) => Object.assign(quantization, { quant_method: "fbgemm_fp8x" }),
      ({ quantization_config: quantization }) => quantization.ignore.push("re:.*q_proj$"),
      ({ quantization_config: quantization }) =>
        Object.assign(quantization, { format: "mxfp5-pack-quantized" }),
      ({ quantization_config: quantization }) =>
        Object.assign(quantization.config_groups.group_0, { format: "dense" }),
      ({ quantization_config: quantization }) =>
        Object.assign(quantization.config_groups.group_0, { targets: ["re:.*k_proj$"] }),
    ];
    for (const edit of EDITS) {
      const config = structuredClone(configFor(form)) as ReturnType<typeof quantizationOf>;
      edit(config);
      expect(errorsIn(await surveyFindings(contentsOf(tensors, config))), edit.toString()).not.toEqual([]);
    }
  });
});

it.each(titledForms.filter(([name]) => ["ct-float", "ct-int8", "ct-mxfp8", "ct-nvfp4"].includes(name)))(
  "activations of %s, a scale for each %s, have the bits of their format",
  async (_, __, form) => {
    const { tensors } = fileOf(form, [MODULES[0] as string], { inputs: true });
    const config = structuredClone(configFor(form, { inputs: true })) as ReturnType<typeof quantizationOf>;
    const { input_activations: inputs } = config.quantization_config.config_groups.group_0;
    expect(errorsIn(await surveyFindings(contentsOf(tensors, config)))).toEqual([]);
    inputs.num_bits = inputs.num_bits === 4 ? 8 : 4;
    const findings = errorsIn(await surveyFindings(contentsOf(tensors, config)));
    expect(findings.map((finding) => finding.name)).toEqual(["config-scheme"]);
  },
);

/** Scales, and whether a configuration of ue8m0 contradicts them. Other scales are judged separately. */
const SCALES = {
  power: [(power: number) => 2 ** power, false],
  zero: [() => 0, false],
  negative: [(power: number) => -1.5 * 2 ** power, false],
  infinite: [() => Number.POSITIVE_INFINITY, false],
  odd: [(power: number) => 1.5 * 2 ** power, true],
} as const;

it("scales that a configuration says to be ue8m0 are powers of two", async () => {
  const scale = fc.record({
    kind: fc.constantFrom("power", "power", ...(Object.keys(SCALES) as (keyof typeof SCALES)[])),
    power: fc.integer({ min: -20, max: 4 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(scale, { minLength: 4, maxLength: 4 }), async (drawnScales) => {
      const scales = Float32Array.from(drawnScales, ({ kind, power }) => SCALES[kind][0](power));
      const codes = Uint8Array.from({ length: 256 * 256 }, (_, i) => 0x30 + (i % 32));
      const tensors = new Map<string, StoredTensor>([
        ["model.layers.0.mlp.down_proj.weight", { dtype: "F8_E4M3", shape: [256, 256], bytes: codes }],
        [
          "model.layers.0.mlp.down_proj.weight_scale_inv",
          { dtype: "F32", shape: [2, 2], bytes: new Uint8Array(scales.buffer) },
        ],
      ]);
      for (const format of ["ue8m0", undefined]) {
        const quantization = { quant_method: "fp8", weight_block_size: [128, 128], scale_fmt: format };
        const findings = await findingsOf(contentsOf(tensors, { quantization_config: quantization }));
        const isWrong = format !== undefined && drawnScales.some(({ kind }) => SCALES[kind][1]);
        expect(findings.some((finding) => finding.name === "config-scheme")).toBe(isWrong);
      }
    }),
    {
      numRuns: draws(40, 6),
      // blocks of zeros
      examples: [[(["power", "zero", "power", "zero"] as const).map((kind) => ({ kind, power: 0 }))]],
    },
  );
});

interface Weights {
  [field: string]: unknown;
}
declare function quantizationOf(): {
  quantization_config: {
    ignore: string[];
    config_groups: { group_0: { weights: Weights; input_activations: Weights } };
  };
};

describe("a tensor that others of its kind have", () => {
  const forms = FORMS.filter((form) => isOfModules(form));
  const options = { zeros: true, inputs: true, factors: true } as const;
  const full = (form: Form): Contents => {
    const { zeros, order } = conventionOf(form.name);
    const packedOptions =
      zeros !== undefined && conventionOf(form.name).type.startsWith("int") && form.kind !== "whole";
    const formOptions = {
      ...options,
      zeros: packedOptions,
      order: packedOptions && order !== undefined && form.kind === "group",
    };
    const contents = fileOf(form, MODULES, formOptions);
    for (const layer of [0, 1, 2])
      for (const end of ["k_proj.k_scale", "v_proj.v_scale"])
        contents.tensors.set(`model.layers.${layer}.self_attn.${end}`, {
          dtype: "F32",
          shape: [],
          bytes: new Uint8Array(Float32Array.of(0.1).buffer),
        });
    return contents;
  };

  it.each(
    sampleCases(
      forms.map((form) => [form.name, form.kind, form] as const),
      8,
    ),
  )("is not lost unseen: %s, a scale for each %s", async (_, __, form) => {
    const contents = full(form);
    expect(errorsIn(await surveyFindings(contents))).toEqual([]);
    // every weight has the same tensors
    const removableNames = [...contents.tensors.keys()].filter((name) =>
      name.includes("layers.1.self_attn.k_proj"),
    );
    const expert = [...contents.tensors.keys()].filter((name) => name.includes("layers.1.mlp.experts.1"));
    for (const name of [
      ...removableNames,
      "model.layers.1.self_attn.v_proj.v_scale",
      ...expert.slice(0, 1),
    ]) {
      const tensors = new Map(contents.tensors);
      expect(tensors.delete(name)).toBe(true);
      expect(errorsIn(await surveyFindings({ ...contents, tensors })), name).not.toEqual([]);
    }
    const tensors = new Map([...contents.tensors].filter(([name]) => !expert.includes(name)));
    // only the last expert may be missing, unless the configuration has a count
    const json = new Map([
      ...contents.json,
      ["config.json", { ...contents.json.get("config.json"), num_experts: 2 }],
    ]);
    const findings = await surveyFindings({ ...contents, tensors, json });
    expect(findings.map(({ name }) => name)).toContain("expert-absent");
  });
});

describe("declarations in two places", () => {
  const modelopt = (quantization: Record<string, unknown>) => ({
    producer: { name: "modelopt" },
    quantization,
  });
  const base = {
    quant_algo: "NVFP4",
    kv_cache_quant_algo: null,
    group_size: 16,
    exclude_modules: ["lm_head"],
  };
  it.each([
    ["are the same", {}, 0],
    ["quant_algo", { quant_algo: "FP8" }, 1],
    ["kv_cache_quant_algo", { kv_cache_quant_algo: "FP8" }, 1],
    ["exclude_modules", { exclude_modules: [] }, 1],
  ] as const)("%s", async (_, alter, count) => {
    const contents = fileOf({ name: "modelopt-nvfp4", kind: "group" }, [MODULES[0] as string]);
    contents.json.set("hf_quant_config.json", modelopt({ ...base, ...alter }));
    const disagreements = (await surveyFindings(contents)).filter(({ name }) => name === "config-disagree");
    expect(disagreements).toHaveLength(count);
  });
});
