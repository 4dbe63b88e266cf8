/** Checkpoints: a run that was saved and loaded has the same bits as an uninterrupted one; invalid files are refused. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, FileError } from "../../../src/errors.js";
import { fileBytes } from "../../../src/io/dtypes.js";
import { loadCheckpoint, type Metadata, saveCheckpoint, type TensorPlan } from "../../../src/io/index.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { Linear } from "../../../src/modules/linear.js";
import { defaultRandom, type Module, manualSeed } from "../../../src/modules/module.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { zeros } from "../../../src/ops/create.js";
import { dequantize } from "../../../src/ops/quantize/dequantize.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { type DrawnPlan, DrawnRun, drawnPlans } from "../harness/training/drawn.js";
import { RECIPE_NAMES } from "../harness/training/run.js";
import { useFolder } from "./folder.js";

let folder = "";
let path = "";
useFolder((made) => {
  folder = made;
  path = join(folder, "run.safetensors");
});

const backend = useBackend({ threads: 1, datapath: "hopper" });
const few = fc.integer({ min: 0, max: 3 });
const PLAN: DrawnPlan = {
  recipe: "delayed",
  layers: ["bare", "mlp"],
  optimizer: "adamw",
  dtype: "bf16",
  quantizesWeights: true,
  seed: 5n,
};
const anyPlan = fc.constantFrom(...RECIPE_NAMES).chain(drawnPlans);

const stateOf = ({ model: module, optimizer, random }: DrawnRun) => ({ module, optimizer, random });
const save = (run: DrawnRun, extra?: unknown) => saveCheckpoint(path, { ...stateOf(run), extra });
const load = (run: DrawnRun) => loadCheckpoint(path, stateOf(run));

/** A run with other parameters and random numbers, after `used` steps. */
function otherRun(plan: DrawnPlan, used: number): DrawnRun {
  const run = new DrawnRun(backend(), plan, plan.seed ^ 1n);
  run.train(10, 10 + used);
  return run;
}

/** A run that is saved after two steps. */
async function savedRun(plan: DrawnPlan): Promise<DrawnRun> {
  const run = new DrawnRun(backend(), plan);
  run.train(0, 2);
  await save(run);
  return run;
}

describe("a run resumed from a checkpoint", () => {
  it.each(sampleCases(RECIPE_NAMES))("has the bits of one that was not interrupted: %s", async (recipe) => {
    const counts = fc.record({ before: few, after: fc.integer({ min: 1, max: 3 }), used: few });
    await fc.assert(
      fc.asyncProperty(drawnPlans(recipe), counts, async (plan, { before, after, used }) => {
        using whole = new DrawnRun(backend(), plan);
        const expected = whole.train(0, before + after).slice(before);
        using first = new DrawnRun(backend(), plan);
        first.train(0, before);
        await save(first);
        using second = otherRun(plan, used);
        await load(second);
        expect(second.state()).toBe(first.state());
        expect(second.train(before, before + after)).toEqual(expected);
        expect(first.train(before, before + after)).toEqual(expected);
      }),
      { numRuns: draws(12) },
    );
  });

  it("can be saved again at once, to the same bytes, and alone in its folder", async () => {
    await fc.assert(
      fc.asyncProperty(anyPlan, few, fc.jsonValue(), async (plan, before, extra) => {
        using run = new DrawnRun(backend(), plan);
        run.train(0, before);
        await save(run, extra);
        const bytes = readFileSync(path);
        await save(run, extra);
        expect(readFileSync(path).equals(bytes)).toBe(true);
        using second = otherRun(plan, before);
        expect(JSON.stringify(await load(second))).toBe(JSON.stringify(extra));
        await save(second, extra);
        expect(readFileSync(path).equals(bytes)).toBe(true);
        expect(readdirSync(folder)).toEqual(["run.safetensors"]);
      }),
      { numRuns: draws(20) },
    );
  });

  it("has the state at the time of the save, even if training continues before the file is written", async () => {
    using run = new DrawnRun(backend(), { ...PLAN, recipe: "nvfp4" });
    run.train(0, 1);
    const before = run.state();
    const saving = save(run);
    run.train(1, 2);
    await saving;
    await load(run);
    expect(run.state()).toBe(before);
  });
});

describe("the parts of a run that a checkpoint stores", () => {
  it("replace the state of a used module, whose gradients are cleared", async () => {
    const random = new RandomState(1n);
    using module = new Linear(backend(), 32, 32, { random, fuseWgradAccumulation: true });
    using main = zeros(backend(), "f32", [32, 32]);
    module.weight.mainGrad = main;
    await saveCheckpoint(path, { module, random });
    const x = zeros(backend(), "bf16", [32, 32]).write(new Uint16Array(1024).fill(0x3f80));
    using scope = new Scope();
    scope.keep(x);
    module.forward(x).backward(x);
    expect(main.dataSync().some((value) => value !== 0)).toBe(true);
    expect(module.bias?.grad).toBeDefined();
    await loadCheckpoint(path, { module, random });
    expect(main.dataSync().every((value) => value === 0)).toBe(true);
    expect(module.bias?.grad).toBeUndefined();
    x.dispose();
  });

  it("load without an optimizer, and a new optimizer's masters are the loaded values", async () => {
    const make = (seed: bigint): Linear =>
      new Linear(backend(), 32, 32, { bias: false, random: new RandomState(seed) });
    const init = { recipe: new DelayedScaling(), preserveHighPrecisionInitVal: true };
    using module = quantizedModelInit(init, () => make(1n));
    using other = quantizedModelInit(init, () => make(2n));
    await saveCheckpoint(path, { module });
    await loadCheckpoint(path, { module: other });
    expect(valuesOf(other)).toEqual(valuesOf(module));
    using optimizer = new SGD(other, { learningRate: 1 });
    using wide = dequantize(other.weight.value as QuantizedTensor, "f32");
    expect(optimizer.slots.get("weight")?.master.dataSync()).toEqual(wide.dataSync());
  });

  it("leave the optimizer unchanged if it is not given", async () => {
    using first = await savedRun(PLAN);
    using second = otherRun(PLAN, 1);
    const [slot] = second.optimizer.slots.values();
    const before = slot?.master.dataSync();
    await loadCheckpoint(path, { module: second.model, random: second.random });
    expect(valuesOf(second.model)).toEqual(valuesOf(first.model));
    expect(slot?.master.dataSync()).toEqual(before);
    expect(slot?.steps).toBe(1);
  });

  it("saved without an optimizer are refused by a load with one", async () => {
    using run = new DrawnRun(backend(), PLAN);
    await saveCheckpoint(path, { module: run.model });
    await expect(load(run)).rejects.toThrow(/saved without an optimizer; load it without one/);
  });

  it("must belong to one module: an optimizer of another module is refused, and the file is unchanged", async () => {
    using run = await savedRun(PLAN);
    const bytes = readFileSync(path);
    using other = otherRun(PLAN, 0);
    const state = { module: run.model, optimizer: other.optimizer };
    await expect(saveCheckpoint(path, state)).rejects.toThrow(ArgumentError);
    await expect(loadCheckpoint(path, state)).rejects.toThrow(
      /"0.weight", which is not a parameter of the module/,
    );
    expect(readFileSync(path).equals(bytes)).toBe(true);
  });

  it("include every bit of the random state that modules share", async () => {
    const shared = defaultRandom(backend());
    const word64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    await fc.assert(
      fc.asyncProperty(word64, word64, async (seed, offset) => {
        using module = new Linear(backend(), 32, 32);
        Object.assign(shared, { seed, offset });
        await saveCheckpoint(path, { module });
        manualSeed(backend(), 0n);
        await loadCheckpoint(path, { module });
        expect(shared).toMatchObject({ seed, offset });
      }),
      { numRuns: draws(20) },
    );
  });

  it.each([
    [{ at: [1, undefined] }, /extra.at\[1\] is undefined/],
    [Number.NaN, /extra is number NaN/],
    [{ step: 1n }, /extra.step is bigint 1/],
    [{ when: new Date(0) }, /extra.when is object/],
    [[new Map()], /extra\[0\] is object/],
  ])("are refused if JSON would change them: %o", async (extra, words) => {
    using module = new Linear(backend(), 32, 32);
    const error: unknown = await saveCheckpoint(path, { module, extra }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as ArgumentError).message).toMatch(words);
    expect(readdirSync(folder)).toEqual([]);
  });

  function valuesOf(module: Module): readonly ArrayBufferView[] {
    return module.parameters().flatMap(({ value }) => {
      const members: readonly Tensor[] = value instanceof QuantizedTensor ? value.members : [value];
      return members.map((member) => member.dataSync());
    });
  }
});

describe("a checkpoint that does not fit the run", () => {
  async function expectRefusal(run: DrawnRun, words: RegExp): Promise<void> {
    const before = run.state();
    const error: unknown = await load(run).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(FileError);
    expect((error as FileError).message).toMatch(words);
    expect((error as FileError).message).toContain(path);
    expect(run.state()).toBe(before);
  }

  it("is refused if any byte differs or is missing, and the run is unchanged", async () => {
    using _first = await savedRun(PLAN);
    using second = otherRun(PLAN, 1);
    const bytes = readFileSync(path);
    const header = new TextDecoder().decode(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE())));
    const padding = { begin: 8 + Buffer.byteLength(header.trimEnd()), end: 8 + Buffer.byteLength(header) };
    const place = fc.nat(bytes.length - 1).filter((at) => at < padding.begin || at >= padding.end);
    const headerPlace = fc.nat(padding.begin - 1);
    const flip = fc.integer({ min: 1, max: 255 });
    await fc.assert(
      fc.asyncProperty(fc.oneof(place, headerPlace), flip, fc.boolean(), async (at, mask, cut) => {
        const damaged = Buffer.from(cut ? bytes.subarray(0, at) : bytes);
        if (!cut) damaged[at] = (damaged[at] as number) ^ mask;
        writeFileSync(path, damaged);
        await expectRefusal(second, /./);
      }),
      { numRuns: draws(200) },
    );
  });

  it("is refused if the run has another model, recipe or optimizer", async () => {
    const base: DrawnPlan = { ...PLAN, recipe: "mxfp8", layers: ["linear"] };
    using _run = await savedRun(base);
    const others: readonly (readonly [Partial<DrawnPlan>, RegExp])[] = [
      [{ layers: ["linear", "bare"] }, /"1.weight" is quantized in the module and not there/],
      [{ layers: ["bare"] }, /updates "0.bias" and this one does not/],
      [{ dtype: "f32" }, /"0.weight" has dtype "bf16" there and "f32" in the module/],
      [{ quantizesWeights: false }, /"0.weight" is quantized there and not in the module/],
      [{ recipe: "current" }, /"0.weight" has quantizer "mxfp8" there and "fp8-current"/],
      [{ optimizer: "momentum" }, /"optimizer.0.weight.v" has no place/],
      [{ optimizer: "sgd" }, /"optimizer.0.weight.m" has no place/],
    ];
    for (const [changes, words] of others) {
      using other = otherRun({ ...base, ...changes }, 0);
      await expectRefusal(other, words);
    }
  });

  it("is refused if it lacks buffers, scales or a step count, or has shapes of another model", async () => {
    const base: DrawnPlan = {
      ...PLAN,
      layers: ["bare"],
      optimizer: "sgd",
      dtype: "f32",
      quantizesWeights: false,
    };
    {
      using _run = await savedRun(base);
      using other = otherRun({ ...base, optimizer: "momentum" }, 0);
      await expectRefusal(other, /"optimizer.0.weight.m" is needed and not there/);
      using longer = otherRun({ ...base, layers: ["bare", "bare"] }, 0);
      await expectRefusal(longer, /step count of "1.weight" is absent/);
    }
    using run = otherRun(base, 1);
    const scales = "quantization.0.linear";
    await edited((tensors) => tensors.delete(`${scales}.backward.amaxHistory`));
    await expectRefusal(run, /"quantization.0.linear.backward.amaxHistory" is needed and not there/);
    using _again = await savedRun(base);
    await edited((tensors) => tensors.set(`${scales}.forward.scale`, { dtype: "F32", shape: [2] }));
    await expectRefusal(run, /forward.scale": is F32 \[2\]; it must be F32 \[3\]/);
    using _oncemore = await savedRun(base);
    await edited((tensors) => tensors.set("module.0.weight", { dtype: "F32", shape: [32, 64] }));
    await expectRefusal(run, /is F32 \[32,64\] and F32 \[32,32\] is needed/);
  });

  it.each([
    [undefined, /is not a checkpoint/],
    ["{", /is not a JSON object/],
    ['{"version":0}', /is a checkpoint of version 0; this release reads versions 1 and 2/],
    ['{"version":3}', /is a checkpoint of version 3/],
    ['{"version":2}', /random state is missing/],
    ['{"version":2,"random":{"seed":"1","offset":"0"}}', /digest is missing/],
    ['{"quantized":{}}', /version absent/],
    ['{"version":1}', /list of quantized parameters is missing/],
    ['{"version":1,"quantized":{},"steps":[]}', /step counts are not an object/],
    ['{"version":1,"quantized":{}}', /random state is missing/],
    ['{"version":1,"quantized":{},"random":{"seed":1,"offset":"0"}}', /seed and offset are not decimal/],
    ['{"version":1,"quantized":{},"random":{"seed":"1","offset":"0"}}', /digest is missing/],
    ['{"version":1,"version":1}', /is not a JSON object/],
  ])("is refused if its record is %s", async (record, words) => {
    using run = otherRun(PLAN, 1);
    const metadata: Record<string, string> = record === undefined ? {} : { "lockstep.checkpoint": record };
    await writeSafetensors(path, { tensors: [], metadata }, async () => {});
    await expectRefusal(run, words);
  });

  it("is refused by a tensor's name if that tensor has another type or shape or is missing", async () => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    const saved = readFileSync(path);
    const plans = await plansOf();
    expect(plans.length).toBeGreaterThan(20);
    for (const [i, { name, dtype, shape }] of sampleCases([...plans.entries()], 4)) {
      const [first = 1, ...rest] = shape;
      const others: readonly (Pick<TensorPlan, "dtype" | "shape"> | undefined)[] = [
        undefined,
        { dtype: dtype === "F32" ? "I32" : dtype === "U8" ? "I8" : "U16", shape },
        { dtype, shape: [...shape, 1] },
        { dtype, shape: [first + 1, ...rest] },
        { dtype, shape: [first, ...rest.map((size) => 2 * size)] },
        { dtype, shape: [first * rest.reduce((a, b) => a * b, 1)] },
        // a history may have any length except 0
        { dtype, shape: [0, ...rest] },
      ];
      const isHistory = name.endsWith(".amaxHistory");
      for (const other of others) {
        const isSame = other?.dtype === dtype && String(other.shape) === String(shape);
        const [length = 0, ...columns] = other?.shape ?? [];
        const isLonger =
          isHistory && other?.dtype === dtype && length > 0 && String(columns) === String(rest);
        if (isSame || isLonger) continue;
        writeFileSync(path, saved);
        await rewritten(
          plans.flatMap((plan, at) => (at === i ? (other ? [{ name, ...other }] : []) : [plan])),
        );
        await expectRefusal(run, new RegExp(`"${name.replaceAll(".", "\\.")}"`));
      }
    }
  });

  it("is refused if it has an additional tensor", async () => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    const plans = await plansOf();
    const saved = readFileSync(path);
    for (const name of [
      "more",
      "module.more",
      "optimizer.more",
      "quantization.more.forward.scale",
      "xoptimizer.",
    ]) {
      writeFileSync(path, saved);
      await rewritten([...plans, { name, dtype: "F32", shape: [1] }]);
      await expectRefusal(run, new RegExp(`"${name}" has no place`));
      const error: unknown = await loadCheckpoint(path, { module: run.model }).catch(
        (reason: unknown) => reason,
      );
      // without an optimizer, the optimizer's tensors are not read
      const words = name.startsWith("optimizer.")
        ? /contents have changed since it was saved/
        : /has no place/;
      expect(String(error)).toMatch(words);
    }
  });

  it.each([-1, 0.5, 2 ** 53, "1", null, true, [1], undefined])(
    "is refused if a step count is %j",
    async (count) => {
      using _run = await savedRun(PLAN);
      using run = otherRun(PLAN, 1);
      await recordChanged("lockstep.checkpoint", ({ steps, ...record }) => {
        const [name] = Object.keys(steps as object) as [string];
        return { ...record, steps: { ...(steps as object), [name]: count } };
      });
      await expectRefusal(run, /step count of "0.weight" is/);
    },
  );

  it.each([
    ["a step count of a parameter that the optimizer does not have", { "9.weight": 1 }, /updates "9.weight"/],
    ["no step counts", undefined, /saved without an optimizer/],
  ])("is refused if its record has %s", async (_what, more, words) => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    await recordChanged("lockstep.checkpoint", ({ steps, ...record }) => ({
      ...record,
      ...(more ? { steps: { ...(steps as object), ...more } } : {}),
    }));
    await expectRefusal(run, words);
  });

  it.each<[DrawnPlan["recipe"], string, unknown]>([
    ["delayed", "format", "e5m2"],
    ["delayed", "scales", "padded"],
    ["delayed", "shape", [16, 64]],
    ["delayed", "dtype", "f16"],
    ["current", "pow2Scales", true],
    ["current", "epsilon", 0.5],
    ["mxfp8", "format", "e5m2"],
    ["mxfp8", "tile", "32x32"],
    ["mxfp8", "scales", "padded"],
    ["nvfp4", "tile", "1x16"],
    ["nvfp4", "fourOverSix", "mse"],
  ])("under %s is refused where a weight has another %s", async (recipe, field, value) => {
    const plan: DrawnPlan = { ...PLAN, recipe, layers: ["bare"] };
    using _run = await savedRun(plan);
    using run = otherRun(plan, 1);
    let before: unknown;
    await recordChanged("lockstep.module.0.weight", (record) => {
      before = record[field];
      return { ...record, [field]: value };
    });
    expect(value).not.toEqual(before);
    const name = { scales: "scaleLayout" }[field] ?? field;
    await expectRefusal(run, new RegExp(`"0.weight" has ${name} .* there and .* in the module`));
  });

  it("is refused if any of the library's metadata or any byte of the tensors differs", async () => {
    const plan: DrawnPlan = { ...PLAN, recipe: "mxfp8", layers: ["bare", "linear"] };
    using _run = await savedRun(plan);
    using run = otherRun(plan, 1);
    await recordChanged("lockstep.module.1.weight", (record) => ({ ...record, version: "0" }));
    await expectRefusal(run, /contents have changed since it was saved/);
  });

  async function plansOf(): Promise<readonly TensorPlan[]> {
    const file = await SafetensorsFile.open(path);
    const plans = [...file.tensors.values()].map(({ name, dtype, shape }) => ({ name, dtype, shape }));
    await file.close();
    return plans;
  }

  /** Rewrites the file with these tensors, all zero, or with other metadata and the same bytes. */
  async function rewritten(
    plans: readonly TensorPlan[] | undefined,
    change: (metadata: Metadata) => Metadata = (metadata) => metadata,
  ): Promise<void> {
    const file = await SafetensorsFile.open(path);
    const tensors =
      plans ?? [...file.tensors.values()].map(({ name, dtype, shape }) => ({ name, dtype, shape }));
    const bytes = new Map<string, Uint8Array>();
    for (const { name, dtype, shape } of tensors)
      bytes.set(name, plans ? new Uint8Array(fileBytes(dtype, shape)) : await file.read(file.entry(name)));
    const { metadata } = file;
    await file.close();
    await writeSafetensors(path, { tensors, metadata: change(metadata) }, async (put) => {
      for (const [name, each] of bytes) await put(name, each);
    });
  }

  function recordChanged(
    key: string,
    change: (record: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>,
  ): Promise<void> {
    return rewritten(undefined, (metadata) => ({
      ...metadata,
      [key]: JSON.stringify(change(JSON.parse(metadata[key] as string))),
    }));
  }

  /** Rewrites the file with other tensors, all zero. */
  async function edited(
    change: (tensors: Map<string, { dtype: "F32"; shape: readonly number[] }>) => void,
  ): Promise<void> {
    const plans = await plansOf();
    const tensors = new Map(plans.map(({ name, shape }) => [name, { dtype: "F32" as const, shape }]));
    change(tensors);
    await rewritten([...tensors].map(([name, plan]) => ({ name, ...plan })));
  }
});
