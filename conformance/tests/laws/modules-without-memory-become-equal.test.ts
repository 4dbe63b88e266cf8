/**
 * Modules that are created without memory allocate none and refuse to be used. After they get initial values, a checkpoint or a
 * state dictionary, they are bitwise equal to other modules.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  AdamW,
  ArgumentError,
  DisposedError,
  Linear,
  loadStateDictionary,
  loopbackGroup,
  type Module,
  MXFP8BlockScaling,
  manualSeed,
  onMetaDevice,
  type ProcessGroup,
  quantizedModelInit,
  RandomState,
  Scope,
  Sequential,
  stateDictionary,
} from "../../../src/index.js";
import {
  loadCheckpoint,
  loadShardedCheckpoint,
  saveCheckpoint,
  saveShardedCheckpoint,
} from "../../../src/io/index.js";
import {
  combineResults,
  createInputs,
  inputsWithGradients,
  randomGradient,
  rowsWhere,
} from "../harness/modules/calls.js";
import type { BuiltModule, ModuleRow } from "../harness/modules/row.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const SIZES = { rows: 32, from: 64, to: 32, middle: 96 };
const liveBytes = (): number => backend().memoryUse().live;
const folder = mkdtempSync(join(tmpdir(), "lockstep-meta-"));
afterAll(() => rmSync(folder, { recursive: true }));

interface Drawn {
  readonly builtModule: BuiltModule;
  readonly random: RandomState;
}

/** A module whose default random state and option `random` are in their initial state. */
function build(row: ModuleRow, seed = 5n): Drawn {
  manualSeed(backend(), seed);
  const random = new RandomState(seed);
  return { builtModule: row.build(backend(), SIZES, { random }), random };
}

const bitsOf = (module: Module): unknown =>
  [...module.namedParameters()].map(([name, { tensor, dtype, shape }]) => [
    name,
    dtype,
    shape,
    tensor.dataSync(),
  ]);

/** The results and gradients of one step. */
function step(builtModule: BuiltModule): unknown {
  using _ = new Scope();
  const inputs = createInputs(backend(), builtModule, SIZES);
  const y = combineResults(builtModule.run(inputs));
  if (inputsWithGradients(inputs).length + builtModule.module.parameters().length > 0)
    y.backward(randomGradient(y));
  const grads = [...inputsWithGradients(inputs), ...builtModule.module.parameters()].map(({ grad }) =>
    grad?.dataSync(),
  );
  for (const leaf of [...inputs, ...builtModule.module.parameters()]) leaf.zeroGrad();
  return [y.tensor.dataSync(), grads];
}

describe.each(rowsWhere())("%s", (_name, row) => {
  const hasParameters = row.hasNoParameters !== true;

  it("takes no memory and refuses its use until it gets initial values", () => {
    const eagerModule = build(row);
    using builtModule = eagerModule.builtModule;
    const liveBefore = liveBytes();
    const metaModule = onMetaDevice(() => build(row));
    using metaLayer = metaModule.builtModule;
    expect(liveBytes()).toBe(liveBefore);
    const describeModule = ({ module }: BuiltModule) =>
      [...module.namedParameters()].map(([name, { dtype, shape }]) => [name, dtype, shape]);
    expect(describeModule(metaLayer)).toEqual(describeModule(builtModule));
    expect(metaLayer.module.parameters().every(({ isMeta }) => isMeta)).toBe(true);
    if (hasParameters) {
      expect(metaModule.random.offset).toBe(0n);
      expect(() => step(metaLayer)).toThrow(ArgumentError);
      expect(() => step(metaLayer)).toThrow(
        /has no memory, because its module was created by onMetaDevice; call materialize/,
      );
      expect(() => bitsOf(metaLayer.module)).toThrow(ArgumentError);
    }
    metaLayer.module.materializeParameters();
    expect(metaLayer.module.parameters().some(({ isMeta }) => isMeta)).toBe(false);
    expect(bitsOf(metaLayer.module)).toEqual(bitsOf(builtModule.module));
    expect(metaModule.random).toEqual(eagerModule.random);
    metaLayer.module.materializeParameters();
    expect(metaModule.random).toEqual(eagerModule.random);
    expect(step(metaLayer)).toEqual(step(builtModule));
  });

  it("gets the values of a checkpoint and of a state dictionary", async () => {
    using builtModule = build(row).builtModule;
    const path = join(folder, "module.safetensors");
    await saveCheckpoint(path, { module: builtModule.module });
    using metaLayer = onMetaDevice(() => build(row, 6n)).builtModule;
    await loadCheckpoint(path, { module: metaLayer.module });
    expect(bitsOf(metaLayer.module)).toEqual(bitsOf(builtModule.module));
    using otherModule = onMetaDevice(() => build(row, 6n)).builtModule;
    {
      using _ = new Scope();
      const state = stateDictionary(builtModule.module);
      if (hasParameters) {
        const liveBefore = liveBytes();
        const [firstKey] = state.keys();
        const part = new Map([...state].filter(([name]) => name !== firstKey));
        expect(() => loadStateDictionary(otherModule.module, part)).toThrow(ArgumentError);
        expect(liveBytes()).toBe(liveBefore);
        expect(otherModule.module.parameters().every(({ isMeta }) => isMeta)).toBe(true);
        expect(() => stateDictionary(otherModule.module)).toThrow(ArgumentError);
      }
      loadStateDictionary(otherModule.module, state);
    }
    expect(bitsOf(otherModule.module)).toEqual(bitsOf(builtModule.module));
  });
});

describe("onMetaDevice", () => {
  it("initializes parameters in the order of their creation, in whatever order modules contain them", () => {
    const model = (random: RandomState): Sequential => {
      const lastLayer = new Linear(backend(), 32, 32, { random });
      const firstLayer = new Linear(backend(), 32, 32, { random });
      return new Sequential(backend(), firstLayer, lastLayer);
    };
    using eagerModule = model(new RandomState(1n));
    using metaLayer = onMetaDevice(() => model(new RandomState(1n)));
    metaLayer.materializeParameters();
    expect(bitsOf(metaLayer)).toEqual(bitsOf(eagerModule));
  });

  it("refuses optimizers, checkpoints and tensors of parameters without memory, and shows that they have none", async () => {
    using metaLayer = onMetaDevice(() => new Linear(backend(), 32, 32));
    expect(() => new AdamW(metaLayer, { learningRate: 0.1 })).toThrow(/has no memory/);
    await expect(saveCheckpoint(join(folder, "none.safetensors"), { module: metaLayer })).rejects.toThrow(
      /has no memory/,
    );
    expect(() => metaLayer.weight.tensor.reshape([1024])).toThrow(ArgumentError);
    expect(String(metaLayer.weight)).toBe(
      "Variable(requires grad, Tensor(bf16 [32, 32] wasm) without memory)",
    );
    metaLayer.dispose();
    expect(() => metaLayer.weight.tensor.dataSync()).toThrow(DisposedError);
    metaLayer.materializeParameters();
    expect(() => metaLayer.weight.tensor.dataSync()).toThrow(DisposedError);
  });

  it("gets the values of a checkpoint of several ranks", async () => {
    const [group] = (await loopbackGroup(1)) as [ProcessGroup];
    const linear = (seed: bigint) => new Linear(group.backend, 32, 32, { random: new RandomState(seed) });
    {
      using eagerModule = linear(1n);
      using metaLayer = onMetaDevice(() => linear(2n));
      const path = join(folder, "sharded");
      await saveShardedCheckpoint(path, { module: eagerModule, group });
      await loadShardedCheckpoint(path, { module: metaLayer, group });
      expect(bitsOf(metaLayer)).toEqual(bitsOf(eagerModule));
    }
    await group.backend.dispose();
  });

  it("continues where an initializer has thrown", () => {
    let isFailing = true;
    const initMethod = () => {
      if (isFailing) throw new RangeError("no values");
      return new Float32Array(1024).fill(2);
    };
    using metaLayer = onMetaDevice(
      () =>
        new Sequential(
          backend(),
          new Linear(backend(), 32, 32),
          new Linear(backend(), 32, 32, { initMethod }),
        ),
    );
    expect(() => metaLayer.materializeParameters()).toThrow(RangeError);
    const materializedNames = [...metaLayer.namedParameters()]
      .filter(([, { isMeta }]) => !isMeta)
      .map(([name]) => name);
    expect(materializedNames).toEqual(["0.weight", "0.bias"]);
    isFailing = false;
    metaLayer.materializeParameters();
    expect(metaLayer.parameters().some(({ isMeta }) => isMeta)).toBe(false);
  });

  it("refuses weights that are quantized or share memory, and a body that is no function", () => {
    const recipe = new MXFP8BlockScaling();
    const linear = () => new Linear(backend(), 32, 32);
    expect(() => onMetaDevice(() => quantizedModelInit({ recipe }, linear))).toThrow(
      "Linear: quantizedModelInit quantizes the initial weights, and onMetaDevice gives weights no memory",
    );
    expect(() => onMetaDevice(() => new Linear(backend(), 32, 32, { parametersSplit: ["a", "b"] }))).toThrow(
      "Linear: the parameters of parametersSplit share memory",
    );
    expect(() => onMetaDevice(linear as unknown as () => Linear)).not.toThrow();
    expect(() => onMetaDevice({} as unknown as () => Linear)).toThrow(ArgumentError);
  });
});
