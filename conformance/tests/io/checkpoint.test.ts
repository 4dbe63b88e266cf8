/** Checkpoints: a run that was saved and loaded has the same bits as an uninterrupted run; invalid files are refused. */
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
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "run.safetensors");
});

const backend = useBackend({ threads: 1, datapath: "hopper" });
const smallCount = fc.integer({ min: 0, max: 3 });
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
function otherRun(plan: DrawnPlan, numSteps: number): DrawnRun {
  const run = new DrawnRun(backend(), plan, plan.seed ^ 1n);
  run.train(10, 10 + numSteps);
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
    const counts = fc.record({
      stepsBeforeSaving: smallCount,
      stepsAfterLoading: fc.integer({ min: 1, max: 3 }),
      stepsBeforeLoading: smallCount,
    });
    await fc.assert(
      fc.asyncProperty(
        drawnPlans(recipe),
        counts,
        async (plan, { stepsBeforeSaving, stepsAfterLoading, stepsBeforeLoading }) => {
          using uninterruptedRun = new DrawnRun(backend(), plan);
          const expected = uninterruptedRun
            .train(0, stepsBeforeSaving + stepsAfterLoading)
            .slice(stepsBeforeSaving);
          using firstRun = new DrawnRun(backend(), plan);
          firstRun.train(0, stepsBeforeSaving);
          await save(firstRun);
          using loadedRun = otherRun(plan, stepsBeforeLoading);
          await load(loadedRun);
          expect(loadedRun.state()).toBe(firstRun.state());
          expect(loadedRun.train(stepsBeforeSaving, stepsBeforeSaving + stepsAfterLoading)).toEqual(expected);
          expect(firstRun.train(stepsBeforeSaving, stepsBeforeSaving + stepsAfterLoading)).toEqual(expected);
        },
      ),
      { numRuns: draws(12) },
    );
  });

  it("can be saved again at once, to the same bytes, and alone in its folder", async () => {
    await fc.assert(
      fc.asyncProperty(anyPlan, smallCount, fc.jsonValue(), async (plan, stepsBeforeSaving, extra) => {
        using run = new DrawnRun(backend(), plan);
        run.train(0, stepsBeforeSaving);
        await save(run, extra);
        const bytes = readFileSync(path);
        await save(run, extra);
        expect(readFileSync(path).equals(bytes)).toBe(true);
        using loadedRun = otherRun(plan, stepsBeforeSaving);
        expect(JSON.stringify(await load(loadedRun))).toBe(JSON.stringify(extra));
        await save(loadedRun, extra);
        expect(readFileSync(path).equals(bytes)).toBe(true);
        expect(readdirSync(folder)).toEqual(["run.safetensors"]);
      }),
      { numRuns: draws(20) },
    );
  });

  it("has the state at the time of the save, even if training continues before the file is written", async () => {
    using run = new DrawnRun(backend(), { ...PLAN, recipe: "nvfp4" });
    run.train(0, 1);
    const stateBefore = run.state();
    const pendingSave = save(run);
    run.train(1, 2);
    await pendingSave;
    await load(run);
    expect(run.state()).toBe(stateBefore);
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
    using otherModule = quantizedModelInit(init, () => make(2n));
    await saveCheckpoint(path, { module });
    await loadCheckpoint(path, { module: otherModule });
    expect(valuesOf(otherModule)).toEqual(valuesOf(module));
    using optimizer = new SGD(otherModule, { learningRate: 1 });
    using wideTensor = dequantize(otherModule.weight.value as QuantizedTensor, "f32");
    expect(optimizer.slots.get("weight")?.master.dataSync()).toEqual(wideTensor.dataSync());
  });

  it("leave the optimizer unchanged if it is not given", async () => {
    using firstRun = await savedRun(PLAN);
    using secondRun = otherRun(PLAN, 1);
    const [slot] = secondRun.optimizer.slots.values();
    const masterBefore = slot?.master.dataSync();
    await loadCheckpoint(path, { module: secondRun.model, random: secondRun.random });
    expect(valuesOf(secondRun.model)).toEqual(valuesOf(firstRun.model));
    expect(slot?.master.dataSync()).toEqual(masterBefore);
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
    using loadingRun = otherRun(PLAN, 0);
    const state = { module: run.model, optimizer: loadingRun.optimizer };
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
  ])("are refused if JSON would change them: %o", async (extra, message) => {
    using module = new Linear(backend(), 32, 32);
    const error: unknown = await saveCheckpoint(path, { module, extra }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ArgumentError);
    expect((error as ArgumentError).message).toMatch(message);
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
  async function expectRefusal(run: DrawnRun, message: RegExp): Promise<void> {
    const stateBefore = run.state();
    const error: unknown = await load(run).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(FileError);
    expect((error as FileError).message).toMatch(message);
    expect((error as FileError).message).toContain(path);
    expect(run.state()).toBe(stateBefore);
  }

  it("is refused if any byte differs or is missing, and the run is unchanged", async () => {
    using _first = await savedRun(PLAN);
    using loadingRun = otherRun(PLAN, 1);
    const bytes = readFileSync(path);
    const header = new TextDecoder().decode(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE())));
    const padding = { begin: 8 + Buffer.byteLength(header.trimEnd()), end: 8 + Buffer.byteLength(header) };
    const place = fc
      .nat(bytes.length - 1)
      .filter((position) => position < padding.begin || position >= padding.end);
    const headerPlace = fc.nat(padding.begin - 1);
    const flip = fc.integer({ min: 1, max: 255 });
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(place, headerPlace),
        flip,
        fc.boolean(),
        async (position, mask, isTruncated) => {
          const damagedBytes = Buffer.from(isTruncated ? bytes.subarray(0, position) : bytes);
          if (!isTruncated) damagedBytes[position] = (damagedBytes[position] as number) ^ mask;
          writeFileSync(path, damagedBytes);
          await expectRefusal(loadingRun, /./);
        },
      ),
      { numRuns: draws(200) },
    );
  });

  it("is refused if the run has another model, recipe or optimizer", async () => {
    const base: DrawnPlan = { ...PLAN, recipe: "mxfp8", layers: ["linear"] };
    using _run = await savedRun(base);
    const otherPlans: readonly (readonly [Partial<DrawnPlan>, RegExp])[] = [
      [{ layers: ["linear", "bare"] }, /"1.weight" is quantized in the module and not there/],
      [{ layers: ["bare"] }, /updates "0.bias" and this one does not/],
      [{ dtype: "f32" }, /"0.weight" has dtype "bf16" there and "f32" in the module/],
      [{ quantizesWeights: false }, /"0.weight" is quantized there and not in the module/],
      [{ recipe: "current" }, /"0.weight" has quantizer "mxfp8" there and "fp8-current"/],
      [{ optimizer: "momentum" }, /"optimizer.0.weight.v" has no place/],
      [{ optimizer: "sgd" }, /"optimizer.0.weight.m" has no place/],
    ];
    for (const [planChanges, message] of otherPlans) {
      using loadingRun = otherRun({ ...base, ...planChanges }, 0);
      await expectRefusal(loadingRun, message);
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
      using loadingRun = otherRun({ ...base, optimizer: "momentum" }, 0);
      await expectRefusal(loadingRun, /"optimizer.0.weight.m" is needed and not there/);
      using longer = otherRun({ ...base, layers: ["bare", "bare"] }, 0);
      await expectRefusal(longer, /step count of "1.weight" is absent/);
    }
    using run = otherRun(base, 1);
    const scales = "quantization.0.linear";
    await editTensors((tensors) => tensors.delete(`${scales}.backward.amaxHistory`));
    await expectRefusal(run, /"quantization.0.linear.backward.amaxHistory" is needed and not there/);
    using _again = await savedRun(base);
    await editTensors((tensors) => tensors.set(`${scales}.forward.scale`, { dtype: "F32", shape: [2] }));
    await expectRefusal(run, /forward.scale": is F32 \[2\]; it must be F32 \[3\]/);
    using _oncemore = await savedRun(base);
    await editTensors((tensors) => tensors.set("module.0.weight", { dtype: "F32", shape: [32, 64] }));
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
  ])("is refused if its record is %s", async (record, message) => {
    using run = otherRun(PLAN, 1);
    const metadata: Record<string, string> = record === undefined ? {} : { "lockstep.checkpoint": record };
    await writeSafetensors(path, { tensors: [], metadata }, async () => {});
    await expectRefusal(run, message);
  });

  it("is refused by a tensor's name if that tensor has another type or shape or is missing", async () => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    const savedBytes = readFileSync(path);
    const plans = await plansOf();
    expect(plans.length).toBeGreaterThan(20);
    for (const [i, { name, dtype, shape }] of sampleCases([...plans.entries()], 4)) {
      const [firstSize = 1, ...otherSizes] = shape;
      const otherDeclarations: readonly (Pick<TensorPlan, "dtype" | "shape"> | undefined)[] = [
        undefined,
        { dtype: dtype === "F32" ? "I32" : dtype === "U8" ? "I8" : "U16", shape },
        { dtype, shape: [...shape, 1] },
        { dtype, shape: [firstSize + 1, ...otherSizes] },
        { dtype, shape: [firstSize, ...otherSizes.map((size) => 2 * size)] },
        { dtype, shape: [firstSize * otherSizes.reduce((a, b) => a * b, 1)] },
        // a history may have any length except 0
        { dtype, shape: [0, ...otherSizes] },
      ];
      const isHistory = name.endsWith(".amaxHistory");
      for (const otherDeclaration of otherDeclarations) {
        const isSame = otherDeclaration?.dtype === dtype && String(otherDeclaration.shape) === String(shape);
        const [length = 0, ...columns] = otherDeclaration?.shape ?? [];
        const isLonger =
          isHistory &&
          otherDeclaration?.dtype === dtype &&
          length > 0 &&
          String(columns) === String(otherSizes);
        if (isSame || isLonger) continue;
        writeFileSync(path, savedBytes);
        await rewriteFile(
          plans.flatMap((plan, planIndex) =>
            planIndex === i ? (otherDeclaration ? [{ name, ...otherDeclaration }] : []) : [plan],
          ),
        );
        await expectRefusal(run, new RegExp(`"${name.replaceAll(".", "\\.")}"`));
      }
    }
  });

  it("is refused if it has an additional tensor", async () => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    const plans = await plansOf();
    const savedBytes = readFileSync(path);
    for (const name of [
      "more",
      "module.more",
      "optimizer.more",
      "quantization.more.forward.scale",
      "xoptimizer.",
    ]) {
      writeFileSync(path, savedBytes);
      await rewriteFile([...plans, { name, dtype: "F32", shape: [1] }]);
      await expectRefusal(run, new RegExp(`"${name}" has no place`));
      const error: unknown = await loadCheckpoint(path, { module: run.model }).catch(
        (reason: unknown) => reason,
      );
      // without an optimizer, the optimizer's tensors are not read
      const message = name.startsWith("optimizer.")
        ? /contents have changed since it was saved/
        : /has no place/;
      expect(String(error)).toMatch(message);
    }
  });

  it.each([-1, 0.5, 2 ** 53, "1", null, true, [1], undefined])(
    "is refused if a step count is %j",
    async (count) => {
      using _run = await savedRun(PLAN);
      using run = otherRun(PLAN, 1);
      await rewriteRecord("lockstep.checkpoint", ({ steps, ...record }) => {
        const [name] = Object.keys(steps as object) as [string];
        return { ...record, steps: { ...(steps as object), [name]: count } };
      });
      await expectRefusal(run, /step count of "0.weight" is/);
    },
  );

  it.each([
    ["a step count of a parameter that the optimizer does not have", { "9.weight": 1 }, /updates "9.weight"/],
    ["no step counts", undefined, /saved without an optimizer/],
  ])("is refused if its record has %s", async (_what, extraFields, message) => {
    using _run = await savedRun(PLAN);
    using run = otherRun(PLAN, 1);
    await rewriteRecord("lockstep.checkpoint", ({ steps, ...record }) => ({
      ...record,
      ...(extraFields ? { steps: { ...(steps as object), ...extraFields } } : {}),
    }));
    await expectRefusal(run, message);
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
    let stateBefore: unknown;
    await rewriteRecord("lockstep.module.0.weight", (record) => {
      stateBefore = record[field];
      return { ...record, [field]: value };
    });
    expect(value).not.toEqual(stateBefore);
    const name = { scales: "scaleLayout" }[field] ?? field;
    await expectRefusal(run, new RegExp(`"0.weight" has ${name} .* there and .* in the module`));
  });

  it("is refused if any of the library's metadata or any byte of the tensors differs", async () => {
    const plan: DrawnPlan = { ...PLAN, recipe: "mxfp8", layers: ["bare", "linear"] };
    using _run = await savedRun(plan);
    using run = otherRun(plan, 1);
    await rewriteRecord("lockstep.module.1.weight", (record) => ({ ...record, version: "0" }));
    await expectRefusal(run, /contents have changed since it was saved/);
  });

  async function plansOf(): Promise<readonly TensorPlan[]> {
    const file = await SafetensorsFile.open(path);
    const plans = [...file.tensors.values()].map(({ name, dtype, shape }) => ({ name, dtype, shape }));
    await file.close();
    return plans;
  }

  /** Rewrites the file with these tensors, all zero, or with other metadata and the same bytes. */
  async function rewriteFile(
    plans: readonly TensorPlan[] | undefined,
    alter: (metadata: Metadata) => Metadata = (metadata) => metadata,
  ): Promise<void> {
    const file = await SafetensorsFile.open(path);
    const tensors =
      plans ?? [...file.tensors.values()].map(({ name, dtype, shape }) => ({ name, dtype, shape }));
    const bytes = new Map<string, Uint8Array>();
    for (const { name, dtype, shape } of tensors)
      bytes.set(name, plans ? new Uint8Array(fileBytes(dtype, shape)) : await file.read(file.entry(name)));
    const { metadata } = file;
    await file.close();
    await writeSafetensors(path, { tensors, metadata: alter(metadata) }, async (writeTensor) => {
      for (const [name, tensorBytes] of bytes) await writeTensor(name, tensorBytes);
    });
  }

  function rewriteRecord(
    key: string,
    alter: (record: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>,
  ): Promise<void> {
    return rewriteFile(undefined, (metadata) => ({
      ...metadata,
      [key]: JSON.stringify(alter(JSON.parse(metadata[key] as string))),
    }));
  }

  /** Rewrites the file with other tensors, all zero. */
  async function editTensors(
    alter: (tensors: Map<string, { dtype: "F32"; shape: readonly number[] }>) => void,
  ): Promise<void> {
    const plans = await plansOf();
    const tensors = new Map(plans.map(({ name, shape }) => [name, { dtype: "F32" as const, shape }]));
    alter(tensors);
    await rewriteFile([...tensors].map(([name, plan]) => ({ name, ...plan })));
  }
});
