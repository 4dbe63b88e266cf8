/**
 * Checkpoints of several ranks are restored with the same bits on other numbers of ranks and other meshes, or refused with the
 * reason.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { ArgumentError, FileError } from "../../../src/errors.js";
import { mseLoss } from "../../../src/functional/loss.js";
import { loadShardedCheckpoint, saveShardedCheckpoint } from "../../../src/io/index.js";
import { watchTemporaries } from "../../../src/io/replace/temporaries.js";
import { Embedding } from "../../../src/modules/embedding.js";
import { LayerNormMLP } from "../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../src/modules/linear.js";
import { Module } from "../../../src/modules/module.js";
import { Parameter, wideTensor } from "../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../src/modules/quantized-init.js";
import { Sequential } from "../../../src/modules/sequential.js";
import { tensor } from "../../../src/ops/create.js";
import { AdamW } from "../../../src/optimizers/adamw.js";
import type { Optimizer } from "../../../src/optimizers/optimizer.js";
import { SGD } from "../../../src/optimizers/sgd.js";
import type { MasterOptions } from "../../../src/optimizers/state.js";
import { DataParallel } from "../../../src/parallel/data/data-parallel.js";
import { fullyShard } from "../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal, randomWords } from "../../../src/random.js";
import { membersOf } from "../../../src/tape/value.js";
import { memoryOf } from "../../../src/tensor/memory.js";
import { partAlong, shapeOfPart, type TensorPart, wholePart } from "../../../src/tensor/part.js";
import { Scope } from "../../../src/tensor/scope.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { draws } from "../harness/draws.js";
import { useBackends } from "../harness/ranks/backends.js";
import { RECIPES_UNDER_TEST, type RecipeName } from "../harness/training/run.js";
import { useFolder } from "./folder.js";

const MOST = 8;
const backends = useBackends(MOST);
const groupsOf = (size: number): ProcessGroup[] => loopbackOver(backends.slice(0, size), 20_000);

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

/** A model that has one parameter for each of the given parts. */
class Parts extends Module {
  constructor(
    group: ProcessGroup,
    tensorParts: readonly TensorPart[],
    values: (i: number, part: TensorPart) => Float32Array,
  ) {
    super(group.backend, { dtype: "f32", random: new RandomState(9n) });
    for (const [i, part] of tensorParts.entries()) {
      const ownValues = wideTensor(
        group.backend,
        values(i, part),
        shapeOfPart(part),
        i % 2 === 0 ? "f32" : "bf16",
      );
      const parameter = this.addParameter(`p${i}`, new Parameter(ownValues));
      parameter.part = part;
    }
  }
}

/** The index in the whole tensor of each element of a part. */
function numbersOf(part: TensorPart): number[] {
  const indicesAlong = part.ranges.map((ranges) =>
    ranges.flatMap(([begin, end]) => Array.from({ length: end - begin }, (_, i) => begin + i)),
  );
  return indicesAlong.reduce<number[]>(
    (offsets, indices, i) =>
      offsets.flatMap((offset) => indices.map((index) => offset * (part.shape[i] as number) + index)),
    [0],
  );
}

/** A way to divide a tensor among ranks: every rank has all of it, or each has pieces along one dimension or along two. */
type Division = {
  readonly ranks: number;
  readonly splits: readonly { readonly dimension: number; readonly count: number; readonly pieces: number }[];
};

/** Divides a size into ranges for `count` ranks, `pieces` times. Ranges are uneven and may be empty. */
function rangesOf(size: number, count: number, pieces: number, rank: number): (readonly [number, number])[] {
  return Array.from({ length: pieces }, (_, pieceIndex) => {
    const [begin, end] = [
      Math.floor((pieceIndex * size) / pieces),
      Math.floor(((pieceIndex + 1) * size) / pieces),
    ];
    const rowsPerRank = Math.ceil((end - begin) / count);
    return [
      Math.min(end, begin + rank * rowsPerRank),
      Math.min(end, begin + (rank + 1) * rowsPerRank),
    ] as const;
  });
}

function partOf(shape: Shape, { splits }: Division, rank: number): TensorPart {
  let [part, remainingRank] = [wholePart(shape), rank];
  for (const { dimension, count, pieces } of splits) {
    if (dimension < shape.length) {
      const ranges = rangesOf(shape[dimension] as number, count, pieces, remainingRank % count);
      part = { shape, ranges: part.ranges.map((axisRanges, i) => (i === dimension ? ranges : axisRanges)) };
    }
    remainingRank = Math.floor(remainingRank / count);
  }
  return part;
}

const divisions: fc.Arbitrary<Division> = fc
  .record({
    extra: fc.constantFrom(1, 1, 2),
    splits: fc.uniqueArray(
      fc.record({
        dimension: fc.nat(2),
        count: fc.integer({ min: 1, max: 3 }),
        pieces: fc.integer({ min: 1, max: 2 }),
      }),
      { maxLength: 2, selector: ({ dimension }) => dimension },
    ),
  })
  .map(
    ({ extra, splits }): Division => ({
      ranks: splits.reduce((product, { count }) => product * count, Number(extra)),
      splits,
    }),
  )
  .filter(({ ranks }) => ranks <= MOST);

const shapes = fc.array(fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 3,
});

/** The sizes of a mesh: `fullyShard` divides the parameters of a rank along tp again, and has `replicate` copies of them. */
interface LayerMesh {
  readonly tp: number;
  readonly replicate: number;
  readonly shard: number;
}

const ranksOf = ({ tp, replicate, shard }: LayerMesh): number => tp * replicate * shard;

/** A layer whose rows `fullyShard` divides among the ranks of `mesh.dp`, after dividing the rows among the ranks of `mesh.tp`. */
function shardedLayer(
  world: ProcessGroup,
  { tp, ...mesh }: LayerMesh,
  { rows, seed, masters }: { readonly rows: number; readonly seed: bigint; readonly masters: MasterOptions },
) {
  const { tp: group, dp } = world.split({ tp, dp: world.size / tp });
  const random = new RandomState(seed);
  const module = new Linear(world.backend, 4, rows, { group, parallelMode: "column", random });
  const shardedModule = fullyShard(module, dp as ProcessGroup, { mesh });
  const optimizer = new AdamW(module, { learningRate: 0.1, ...masters });
  /** The full parameters and their masters, gathered from the ranks. */
  const wholeValues = async (): Promise<string[]> => {
    using _ = new Scope();
    const masters = new Map([...optimizer.slots].map(([name, { master }]) => [name, master]));
    const texts: string[] = [];
    for (const [name, parameter] of module.namedParameters())
      for (const ownTensor of [parameter.tensor, masters.get(name)])
        if (ownTensor) {
          const rowsOfRank = shardedModule.gather(parameter, ownTensor);
          texts.push(String(await (group as ProcessGroup).allGather(rowsOfRank).data()));
        }
    return texts;
  };
  return { state: { module, optimizer, group: world, random }, wholeValues };
}

describe("a layer that fullyShard divides", () => {
  it("is loaded on any number of ranks, also within tensor parallelism, with any rows", async () => {
    const meshes = fc
      .record({
        ...{ tp: fc.constantFrom(1, 2), replicate: fc.constantFrom(1, 1, 2, 3) },
        shard: fc.integer({ min: 1, max: 4 }),
      })
      .filter((mesh) => ranksOf(mesh) <= MOST);
    const forms = fc.constantFrom<MasterOptions>(
      ...[{}, { masterWeightDtype: "f16" as const }, { storeParamRemainders: true }],
    );
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 9 }),
        meshes,
        meshes,
        forms,
        async (isHalf, divisionBefore, divisionAfter, masters) => {
          const make = (mesh: LayerMesh, seed: bigint) =>
            groupsOf(ranksOf(mesh)).map((world) =>
              shardedLayer(world, mesh, { rows: 2 * isHalf, seed, masters }),
            );
          const savedParts = make(divisionBefore, 1n);
          await Promise.all(savedParts.map(({ state }) => saveShardedCheckpoint(folder, state)));
          const expected = await Promise.all(savedParts.map(({ wholeValues }) => wholeValues()));
          const loadedParts = make(divisionAfter, 2n);
          await Promise.all(loadedParts.map(({ state }) => loadShardedCheckpoint(folder, state)));
          const actual = await Promise.all(loadedParts.map(({ wholeValues }) => wholeValues()));
          for (const values of [...expected, ...actual]) expect(values).toEqual(expected[0]);
          for (const { state } of [...savedParts, ...loadedParts]) {
            state.optimizer.dispose();
            state.module.dispose();
          }
        },
      ),
      { numRuns: draws(25) },
    );
  }, 60_000);
});

describe("a tensor divided among ranks", () => {
  it("is loaded on any number of ranks, however it was divided when saved and is divided now", async () => {
    await fc.assert(
      fc.asyncProperty(shapes, divisions, divisions, async (drawnShapes, divisionBefore, divisionAfter) => {
        const valuesOf = (i: number, part: TensorPart): Float32Array =>
          Float32Array.from(numbersOf(part), (number) => number - 17 * i);
        const make = (group: ProcessGroup, division: Division, values: typeof valuesOf): Parts =>
          new Parts(
            group,
            drawnShapes.map((shape) => partOf(shape, division, group.rank)),
            values,
          );
        await Promise.all(
          groupsOf(divisionBefore.ranks).map(async (group) => {
            using module = make(group, divisionBefore, valuesOf);
            await saveShardedCheckpoint(folder, { module, group });
          }),
        );
        await Promise.all(
          groupsOf(divisionAfter.ranks).map(async (group) => {
            using module = make(
              group,
              divisionAfter,
              (_, part) => new Float32Array(elementCount(shapeOfPart(part))),
            );
            using expectedParts = make(group, divisionAfter, valuesOf);
            await loadShardedCheckpoint(folder, { module, group });
            const [actual, expected] = [module, expectedParts].map((parts) =>
              parts.parameters().map(({ tensor }) => String(tensor.dataSync())),
            );
            expect(actual).toEqual(expected);
          }),
        );
      }),
      { numRuns: draws(30) },
    );
  });

  it("is written once if all ranks have it, and no rank writes more than another but the largest", async () => {
    const sizes = fc.array(fc.constantFrom(8, 64, 512), { minLength: 8, maxLength: 32 });
    const eightOf = (size: number) => Array.from({ length: 8 }, () => size);
    await fc.assert(
      fc.asyncProperty(sizes, async (elements) => {
        await Promise.all(
          groupsOf(4).map(async (group) => {
            using module = new Parts(
              group,
              elements.map((size) => wholePart([size])),
              (i) => new Float32Array(elements[i] as number),
            );
            await saveShardedCheckpoint(folder, { module, group });
          }),
        );
        const [generation] = readdirSync(folder).filter((name) => name.startsWith("generation"));
        const writtenSizes = readdirSync(join(folder, generation as string)).map((name) => {
          const bytes = readFileSync(join(folder, generation as string, name));
          return bytes.length - 8 - Number(bytes.readBigUInt64LE());
        });
        expect(writtenSizes).toHaveLength(4);
        // parameters are alternately f32 and bf16
        const rankBytes = elements.map((size, i) => size * (i % 2 === 0 ? 4 : 2));
        expect(writtenSizes.reduce((a, b) => a + b)).toBe(rankBytes.reduce((a, b) => a + b));
        expect(Math.max(...writtenSizes) - Math.min(...writtenSizes)).toBeLessThanOrEqual(
          Math.max(...rankBytes),
        );
      }),
      { numRuns: draws(15), examples: [[eightOf(64)]] },
    );
  });

  it("is refused if its parts overlap, leave elements out, or are not those of the parameter", async () => {
    const invalidParts: readonly (readonly [(rank: number) => TensorPart, RegExp])[] = [
      [(rank) => partAlong([4], 0, [[rank, rank + 2]]), /overlap and are not the same/],
      [(rank) => partAlong([5], 0, [[2 * rank, 2 * rank + 2]]), /have 4 elements; \[5\] has 5/],
      [
        (rank) => partAlong([rank + 4], 0, [[2 * rank, 2 * rank + 2]]),
        /is F32 \[5\] as a whole on rank 1 and F32 \[4\]/,
      ],
    ];
    for (const [part, message] of invalidParts) {
      const errors = await Promise.all(
        groupsOf(2).map(async (group) => {
          using module = new Parts(group, [part(group.rank)], () => new Float32Array(2));
          return await saveShardedCheckpoint(folder, { module, group }).catch((error: unknown) => error);
        }),
      );
      for (const error of errors) {
        expect(error).toBeInstanceOf(ArgumentError);
        expect((error as Error).message).toMatch(message);
      }
    }
    const [group] = groupsOf(1) as [ProcessGroup];
    using module = new Parts(group, [wholePart([2])], () => new Float32Array(2));
    const parameter = module.parameters()[0] as Parameter;
    for (const [part, message] of [
      [wholePart([3]), /is \[3\] and its parameter \[2\]/],
      [
        partAlong([4], 0, [
          [2, 3],
          [1, 2],
        ]),
        /must be ascending/,
      ],
      [{ shape: [2], ranges: [] }, /give ranges for each dimension/],
    ] as const) {
      parameter.part = part;
      await expect(saveShardedCheckpoint(folder, { module, group })).rejects.toThrow(message);
    }
    expect(readdirSync(folder)).toEqual([]);
  });
});

const FEATURES = 32;
const HIDDEN = 64;
const ROWS = 32;
const VOCABULARY = 12;

/** A training run on a mesh: layers are divided along `tp`, and replicated along `dp`. */
class Run {
  readonly model: Sequential;
  readonly optimizer: AdamW;
  readonly random = new RandomState(3n);
  readonly #tp: ProcessGroup | undefined;
  readonly #dp: ProcessGroup;
  readonly #parallel: DataParallel;

  constructor(
    readonly group: ProcessGroup,
    tp: number,
    readonly recipe: RecipeName,
    readonly isQuantized = false,
    readonly reduces = true,
  ) {
    const { backend } = group;
    const mesh = group.split({ tp, dp: group.size / tp });
    this.#tp = tp > 1 ? mesh.tp : undefined;
    this.#dp = mesh.dp;
    const shared = { dtype: "f32", random: this.random, ...(this.#tp ? { group: this.#tp } : {}) } as const;
    const recipeUnderTest = RECIPES_UNDER_TEST[recipe]?.();
    this.model = quantizedModelInit(
      { enabled: isQuantized, ...(recipeUnderTest ? { recipe: recipeUnderTest } : {}) },
      () =>
        new Sequential(
          backend,
          new Embedding(backend, VOCABULARY, FEATURES, shared),
          new Linear(backend, FEATURES, HIDDEN, {
            ...shared,
            ...(this.#tp ? { parallelMode: "column", pieces: 2 } : {}),
          }),
          new Linear(backend, HIDDEN, FEATURES, { ...shared, ...(this.#tp ? { parallelMode: "row" } : {}) }),
          new LayerNormMLP(backend, FEATURES, HIDDEN, { ...shared, activation: "swiglu" }),
        ),
    );
    // states of f32, of low precision without a scale and with one
    this.optimizer = new AdamW(this.model, {
      ...{ learningRate: 0.01, masterWeightDtype: "f16" },
      ...(recipe === "bf16" ? { expAvgDtype: "bf16" } : { expAvgDtype: "e4m3", expAvgSqDtype: "f16" }),
    });
    this.#parallel = new DataParallel(this.model, this.#dp, { reduction: "sum" });
  }

  /** Runs a step. Each replica has its own samples. */
  step(number: number): void {
    using _ = new Scope();
    const offset = BigInt(number * this.#dp.size + this.#dp.rank);
    const { backend } = this.group;
    const target = wideTensor(
      backend,
      normal({ seed: 2n, offset }, ROWS * FEATURES, 1),
      [ROWS, FEATURES],
      "f32",
    );
    const randomBits = randomWords({ seed: 1n, offset }, ROWS);
    const ids = tensor(
      backend,
      Int32Array.from(randomBits, (word) => word % VOCABULARY),
      [ROWS],
      "i32",
    );
    const recipe = RECIPES_UNDER_TEST[this.recipe]?.();
    const group = this.reduces ? { amaxReductionGroup: this.#dp } : {};
    const region = recipe ? { recipe, ...group } : { enabled: false };
    autocast(region, () => mseLoss(this.model.forward(ids), target)).backward();
    this.optimizer.step();
    this.optimizer.zeroGrad();
  }

  async bits(): Promise<readonly string[]> {
    const tensors = this.model.parameters().flatMap(({ value }) => membersOf(value));
    const slots = [...this.optimizer.slots.values()].flatMap(({ master, buffers }) => [
      master,
      ...buffers.values(),
    ]);
    const texts: string[] = [];
    for (const tensorToRead of [...tensors, ...slots]) texts.push(String(await tensorToRead.data()));
    for (const [name, quantization] of this.model.namedQuantizations())
      texts.push(`${name} ${JSON.stringify(quantization.snapshotSync())}`);
    return [...texts, `${this.random.seed} ${this.random.offset}`];
  }

  get state() {
    const { model: module, optimizer, random, group } = this;
    return { module, optimizer, random, group };
  }

  dispose(): void {
    this.#parallel.dispose();
    this.optimizer.dispose();
    this.model.dispose();
  }
}

const settle = (runs: readonly Run[], body: (run: Run) => Promise<unknown>) =>
  Promise.all(runs.map((run) => body(run).catch((error: unknown) => error)));
const end = (runs: readonly Run[]): void => {
  for (const run of runs) run.dispose();
};
const runs = (size: number, tp: number, recipe: RecipeName, ...flags: boolean[]): Run[] =>
  groupsOf(size).map((group) => new Run(group, tp, recipe, ...flags));

describe("a run of several ranks", () => {
  it.each([
    ["delayed", true],
    ["mxfp8", true],
    ["current", false],
  ] as const)(
    "resumes from its checkpoint with the bits of one that was not interrupted: %s, quantized: %s",
    async (recipe, isQuantized) => {
      const savedRuns = runs(4, 2, recipe, isQuantized, false);
      for (const run of savedRuns) run.step(0);
      const saves = await settle(savedRuns, (run) =>
        saveShardedCheckpoint(folder, { ...run.state, extra: { step: 1 } }),
      );
      expect(saves).toEqual([undefined, undefined, undefined, undefined]);
      for (const run of savedRuns) run.step(1);
      const bitsAfter = await Promise.all(savedRuns.map((run) => run.bits()));
      end(savedRuns);
      const loadedRuns = runs(4, 2, recipe, isQuantized, false);
      for (const run of loadedRuns) run.step(7);
      expect(await settle(loadedRuns, (run) => loadShardedCheckpoint(folder, run.state))).toEqual(
        Array.from({ length: 4 }, () => ({ step: 1 })),
      );
      for (const run of loadedRuns) run.step(1);
      expect(await Promise.all(loadedRuns.map((run) => run.bits()))).toEqual(bitsAfter);
      end(loadedRuns);
    },
  );

  it.each([
    [4, 2, 1, 1],
    [1, 1, 4, 4],
    [2, 2, 4, 2],
    [4, 1, 2, 2],
  ] as const)(
    "of %i ranks, with layers divided among %i of them, resumes on %i ranks with layers divided among %i",
    async (size, tp, otherSize, otherTp) => {
      const firstRuns = runs(size, tp, "delayed");
      for (const run of firstRuns) run.step(0);
      await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
      const bits = await wholeBits(firstRuns);
      end(firstRuns);
      const secondRuns = runs(otherSize, otherTp, "delayed");
      for (const run of secondRuns) run.step(5);
      expect(await settle(secondRuns, (run) => loadShardedCheckpoint(folder, run.state))).toEqual(
        secondRuns.map(() => undefined),
      );
      expect(await wholeBits(secondRuns)).toEqual(bits);
      end(secondRuns);
    },
  );

  it("is refused on another number of ranks if the bits would differ, and nothing has changed", async () => {
    const firstRuns = runs(2, 1, "delayed", false, false);
    for (const run of firstRuns) run.step(0);
    await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
    end(firstRuns);
    for (const size of [4, 1]) {
      const otherRuns = runs(size, 1, "delayed", false, false);
      await expectRefusal(otherRuns, /had other bits on ranks 0 than on ranks 1/);
      end(otherRuns);
    }
    const quantizedRuns = runs(2, 2, "mxfp8", true);
    await settle(quantizedRuns, (run) => saveShardedCheckpoint(folder, run.state));
    end(quantizedRuns);
    const singleRun = runs(1, 1, "mxfp8", true);
    await expectRefusal(singleRun, /is quantized, and this rank has ranges/);
    end(singleRun);
    const plainRuns = runs(2, 2, "mxfp8");
    await expectRefusal(plainRuns, /"module.1.weight": is needed and not there/);
    end(plainRuns);
  });

  it("is refused if parameters are quantized otherwise, even if their codes and scales have the same shapes", async () => {
    const firstRuns = runs(2, 2, "mxfp8", true);
    await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
    end(firstRuns);
    const otherRecipes = (Object.keys(RECIPES_UNDER_TEST) as RecipeName[]).filter((name) => name !== "mxfp8");
    for (const name of otherRecipes) {
      const otherRuns = runs(2, 2, name, true);
      await expectRefusal(
        otherRuns,
        /is quantized as|is needed and not there|is .* as a whole and|is not in the module/,
      );
      end(otherRuns);
    }
  });

  it("is refused for another kind of optimizer, and loaded without one", async () => {
    const KINDS: Readonly<Record<string, (module: Module) => Optimizer>> = {
      adamw: (module) => new AdamW(module, { learningRate: 0.1 }),
      "adamw of e4m3": (module) => new AdamW(module, { learningRate: 0.1, expAvgDtype: "e4m3" }),
      "adamw with remainders": (module) =>
        new AdamW(module, { learningRate: 0.1, storeParamRemainders: true }),
      "adamw of f16 masters": (module) => new AdamW(module, { learningRate: 0.1, masterWeightDtype: "f16" }),
      momentum: (module) => new SGD(module, { learningRate: 0.1, momentum: 0.5 }),
      plain: (module) => new SGD(module, { learningRate: 0.1 }),
    };
    const groups = groupsOf(2);
    const states = groups.map((group) => {
      const random = new RandomState(3n);
      return { module: new Linear(group.backend, 16, 16, { random }), group, random };
    });
    const stateWithOptimizer = (kind: string) =>
      states.map((state) => ({ ...state, optimizer: KINDS[kind]?.(state.module) as Optimizer }));
    for (const [savedKind, loadedKind] of Object.keys(KINDS).flatMap((a) =>
      Object.keys(KINDS).map((b) => [a, b]),
    )) {
      const [savedState, loadedState] = [
        stateWithOptimizer(savedKind as string),
        stateWithOptimizer(loadedKind as string),
      ];
      await Promise.all(savedState.map((state) => saveShardedCheckpoint(folder, state)));
      const results = await Promise.allSettled(
        loadedState.map((state) => loadShardedCheckpoint(folder, state)),
      );
      for (const result of results) {
        expect(result.status, `${savedKind} into ${loadedKind}`).toBe(
          savedKind === loadedKind ? "fulfilled" : "rejected",
        );
        if (result.status === "rejected") expect(result.reason).toBeInstanceOf(FileError);
      }
      await Promise.all(states.map((state) => loadShardedCheckpoint(folder, state)));
      for (const { optimizer } of [...savedState, ...loadedState]) optimizer.dispose();
    }
    for (const { module } of states) module.dispose();
  });

  it("replaces preserved values, from which a later optimizer would make its masters", async () => {
    const createRun = (seed: bigint) =>
      groupsOf(2).map((group) => {
        const init = { recipe: RECIPES_UNDER_TEST.mxfp8?.(), preserveHighPrecisionInitVal: true };
        const random = new RandomState(seed);
        const module = quantizedModelInit(init, () => new Linear(group.backend, 64, 64, { random }));
        return { module, group, random };
      });
    const [savedStates, loadedStates] = [createRun(1n), createRun(2n)];
    const mastersOf = async ({ module }: (typeof savedStates)[number]): Promise<string[]> => {
      using optimizer = new AdamW(module, { learningRate: 0.1 });
      const texts: string[] = [];
      for (const { master } of optimizer.slots.values()) texts.push(String(await master.data()));
      return texts;
    };
    for (const { module } of savedStates) module.weight.clearHighPrecisionInitVal();
    await Promise.all(savedStates.map((state) => saveShardedCheckpoint(folder, state)));
    await Promise.all(loadedStates.map((state) => loadShardedCheckpoint(folder, state)));
    for (const [i, state] of loadedStates.entries()) {
      expect(state.module.weight.highPrecisionInitVal).toBeUndefined();
      expect(await mastersOf(state)).toEqual(await mastersOf(savedStates[i] as typeof state));
    }
    for (const { module } of [...savedStates, ...loadedStates]) module.dispose();
  });

  it("is refused on another number of ranks if each rank has its own random state, unless those are not loaded", async () => {
    const firstRuns = runs(2, 1, "bf16");
    for (const [i, run] of firstRuns.entries()) run.random.offset = BigInt(i);
    await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
    end(firstRuns);
    const [singleRun] = runs(1, 1, "bf16") as [Run];
    await expectRefusal([singleRun], /had different random states/);
    await loadShardedCheckpoint(folder, { ...singleRun.state, restoreRandom: false });
    end([singleRun]);
  });

  it("is refused on all ranks if one of them cannot load or gives another folder", async () => {
    const firstRuns = runs(2, 2, "bf16");
    await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
    const [generation] = readdirSync(folder).filter((name) => name.startsWith("generation"));
    const path = join(folder, generation as string, "rank-00001-of-00002.safetensors");
    const bytes = readFileSync(path);
    bytes[bytes.length - 1] = (bytes.at(-1) as number) ^ 1;
    writeFileSync(path, bytes);
    await expectRefusal(firstRuns, /damaged/);
    const otherFolder = join(folder, "elsewhere");
    await settle(firstRuns, (run) => saveShardedCheckpoint(otherFolder, run.state));
    await settle(firstRuns, (run) => saveShardedCheckpoint(folder, run.state));
    const errors = await settle(firstRuns, (run) =>
      loadShardedCheckpoint(run.group.rank === 0 ? folder : otherFolder, run.state),
    );
    for (const error of errors) expect(String(error)).toMatch(/found another checkpoint there than rank 0/);
    end(firstRuns);
  });

  async function expectRefusal(runsToLoad: readonly Run[], message: RegExp): Promise<void> {
    const bitsBefore = await Promise.all(runsToLoad.map((run) => run.bits()));
    for (const error of await settle(runsToLoad, (run) => loadShardedCheckpoint(folder, run.state))) {
      expect(error).toBeInstanceOf(FileError);
      expect((error as Error).message).toMatch(message);
    }
    expect(await Promise.all(runsToLoad.map((run) => run.bits()))).toEqual(bitsBefore);
  }

  /** The bits of each whole tensor, assembled from the parts of all ranks. */
  async function wholeBits(runsOfRanks: readonly Run[]): Promise<unknown> {
    const bitsByName: Record<string, number[]> = {};
    for (const { model, optimizer, random } of runsOfRanks) {
      for (const [name, slot] of optimizer.slots) {
        const parameterPart = slot.parameter.part ?? wholePart(slot.parameter.shape);
        for (const [field, x] of [
          ["value", slot.parameter.tensor],
          ["master", slot.master],
          ...slot.buffers,
        ] as const) {
          const key = `${name} ${field}`;
          const part = field.endsWith(".scale") ? wholePart(x.shape) : parameterPart;
          const numbers = numbersOf(part);
          const fullBits = bitsByName[key] ?? new Array<number>(elementCount(part.shape)).fill(Number.NaN);
          bitsByName[key] = fullBits;
          (await x.data()).forEach((value, i) => {
            fullBits[numbers[i] as number] = Number(value);
          });
        }
        bitsByName[`${name} steps`] = [slot.steps];
      }
      for (const [name, quantization] of model.namedQuantizations()) {
        const { forward, backward } = quantization.snapshotSync() ?? {};
        bitsByName[`${name} scales`] = [forward, backward].flatMap((pass) => [
          ...(pass?.scale ?? []),
          ...(pass?.amaxHistory ?? []),
        ]);
      }
      bitsByName.random = [Number(random.seed), Number(random.offset)];
    }
    return bitsByName;
  }
});

/** The paths of all files in a folder and in its folders. */
const filesIn = (path: string): string[] =>
  readdirSync(path, { withFileTypes: true })
    .flatMap((entry) => (entry.isDirectory() ? filesIn(join(path, entry.name)) : [join(path, entry.name)]))
    .sort();

describe("a save whose ranks do not see one folder", () => {
  let otherFolder = "";
  useFolder((createdFolder) => {
    otherFolder = createdFolder;
  });

  it.each([
    [2, 1],
    [2, 0],
    [4, 2],
  ])(
    "of %i ranks fails on all if rank %i has another, and the previous one stays",
    async (size, differingRank) => {
      const runsOfRanks = runs(size, 1, "bf16");
      await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
      const [bits, files] = [await Promise.all(runsOfRanks.map((run) => run.bits())), filesIn(folder)];
      for (const run of runsOfRanks) run.step(0);
      const errors = await settle(runsOfRanks, (run) =>
        saveShardedCheckpoint(run.group.rank === differingRank ? otherFolder : folder, run.state),
      );
      for (const error of errors) {
        expect(error).toBeInstanceOf(FileError);
        expect((error as Error).message).toMatch(
          /rank-0000(\d)-of-0000\d\.safetensors: rank \1 has written .* finds no file/,
        );
      }
      if (differingRank > 0)
        expect(String(errors[0])).toMatch(new RegExp(`: rank ${differingRank} has written`));
      expect(filesIn(folder)).toEqual(files);
      expect(readdirSync(otherFolder)).toEqual([]);
      await settle(runsOfRanks, (run) => loadShardedCheckpoint(folder, run.state));
      expect(await Promise.all(runsOfRanks.map((run) => run.bits()))).toEqual(bits);
      end(runsOfRanks);
    },
  );

  it("fails even if the rank that has another writes nothing", async () => {
    const errors = await Promise.all(
      groupsOf(2).map(async (group) => {
        using module = new Parts(group, [wholePart([4])], () => new Float32Array(4));
        const ownFolder = group.rank === 0 ? folder : otherFolder;
        return await saveShardedCheckpoint(ownFolder, { module, group }).catch((error: unknown) => error);
      }),
    );
    for (const error of errors) expect(error).toBeInstanceOf(FileError);
    expect([...readdirSync(folder), ...readdirSync(otherFolder)]).toEqual([]);
  });

  it("fails if one of them cannot write, and the files of the others are removed", async () => {
    const blockedFolder = join(otherFolder, "blocked");
    writeFileSync(blockedFolder, "");
    const errors = await Promise.all(
      groupsOf(3).map(async (group) => {
        using module = new Parts(group, [partAlong([3], 0, [[group.rank, group.rank + 1]])], () =>
          Float32Array.of(1),
        );
        const ownFolder = group.rank === 1 ? blockedFolder : folder;
        return await saveShardedCheckpoint(ownFolder, { module, group }).catch((error: unknown) => error);
      }),
    );
    for (const error of errors) expect(error).toBeInstanceOf(FileError);
    expect(String(errors[0])).toMatch(/rank 1 failed/);
    expect(readdirSync(folder)).toEqual([]);
  });

  it("fails if a file of that name has another size there", async () => {
    const plant = (): void => {
      for (const generation of readdirSync(otherFolder)) {
        const path = join(folder, generation, "rank-00001-of-00002.safetensors");
        // reads follow while rank 0 checks the file's size, which is 0 while the file is written
        if (existsSync(path)) continue;
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, "short");
      }
    };
    const errors = await Promise.all(
      groupsOf(2).map(async (group) => {
        using module = new Parts(
          group,
          [partAlong([4], 0, [[2 * group.rank, 2 * group.rank + 2]])],
          () => new Float32Array(2),
        );
        const { tensor: weight } = module.parameters()[0] as Parameter;
        const memory = memoryOf(weight.backend);
        const readMemory = memory.read.bind(memory);
        if (group.rank === 1)
          memory.read = (...range) => {
            plant();
            return readMemory(...range);
          };
        const targetFolder = group.rank === 0 ? folder : otherFolder;
        return await saveShardedCheckpoint(targetFolder, { module, group }).catch((error: unknown) => error);
      }),
    );
    expect(String(errors[0])).toMatch(/rank 1 has written \d+ bytes, and rank 0 finds 5 bytes/);
    expect(readdirSync(folder)).not.toContain("checkpoint.index.json");
  });
});

describe("the extra of a save", () => {
  it("is the value of rank 0: values of other ranks are neither saved nor checked", async () => {
    const otherExtras: readonly unknown[] = [undefined, { step: 2 }, Number.NaN, () => 1, 1n];
    for (const otherExtra of otherExtras) {
      const runsOfRanks = runs(2, 1, "bf16");
      const extras = [{ step: 1 }, otherExtra];
      expect(
        await settle(runsOfRanks, (run) =>
          saveShardedCheckpoint(folder, { ...run.state, extra: extras[run.group.rank] }),
        ),
      ).toEqual([undefined, undefined]);
      expect(await settle(runsOfRanks, (run) => loadShardedCheckpoint(folder, run.state))).toEqual([
        { step: 1 },
        { step: 1 },
      ]);
      end(runsOfRanks);
    }
  });
});

describe("interrupted saves", () => {
  it("leave unfinished files, which the next save removes; those of other programs stay", async () => {
    const runsOfRanks = runs(2, 2, "bf16");
    const unfinishedFiles = new Set<string>();
    watchTemporaries((_, path) => unfinishedFiles.add(path));
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    watchTemporaries(() => {});
    expect(unfinishedFiles.size).toBe(3);
    const strayFiles = [".lockstep-0123456789abcdef01234567.tmp", "index.tmp", ".lockstep-index-0.tmp"].map(
      (name) => join(folder, name),
    );
    for (const path of [...unfinishedFiles, ...strayFiles]) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, "part");
    }
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    const keptFiles = filesIn(folder).filter((path) => !path.endsWith(".safetensors"));
    expect(keptFiles).toEqual([...strayFiles, join(folder, "checkpoint.index.json")].sort());
    end(runsOfRanks);
  });

  it("leave the previous checkpoint complete, whatever they have written", async () => {
    const runsOfRanks = runs(2, 2, "bf16");
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    const bits = await Promise.all(runsOfRanks.map((run) => run.bits()));
    const index = readFileSync(join(folder, "checkpoint.index.json"));
    for (const run of runsOfRanks) run.step(0);
    // this rank cannot write, because a file has the name of the folder
    const blockedFolder = join(folder, "blocked");
    writeFileSync(blockedFolder, "");
    for (const error of await settle(runsOfRanks, (run) => saveShardedCheckpoint(blockedFolder, run.state)))
      expect(error).toBeInstanceOf(FileError);
    // the state after a killed save: complete and incomplete files of another generation, and no index for them
    for (const name of ["generation-0123456789abcdef01234567", "generation-ffffffffffffffffffffffff"]) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, "rank-00000-of-00002.safetensors"), "part");
      writeFileSync(join(folder, name, ".lockstep-0.tmp"), "part");
    }
    expect(await settle(runsOfRanks, (run) => loadShardedCheckpoint(folder, run.state))).toEqual([
      undefined,
      undefined,
    ]);
    expect(await Promise.all(runsOfRanks.map((run) => run.bits()))).toEqual(bits);
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    expect(readFileSync(join(folder, "checkpoint.index.json")).equals(index)).toBe(false);
    expect(readdirSync(folder).filter((name) => name.startsWith("generation"))).toHaveLength(1);
    end(runsOfRanks);
  });

  it("leave the previous checkpoint complete if the index cannot be replaced", async () => {
    const runsOfRanks = runs(2, 2, "bf16");
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    const bits = await Promise.all(runsOfRanks.map((run) => run.bits()));
    const [index, movedIndex] = [join(folder, "checkpoint.index.json"), join(folder, "aside.json")];
    const files = filesIn(folder).filter((path) => path.endsWith(".safetensors"));
    for (const run of runsOfRanks) run.step(0);
    // no file can replace a folder that is not empty
    renameSync(index, movedIndex);
    mkdirSync(join(index, "something"), { recursive: true });
    for (const error of await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state)))
      expect(error).toBeInstanceOf(FileError);
    expect(filesIn(folder)).toEqual(expect.arrayContaining(files));
    rmSync(index, { recursive: true });
    renameSync(movedIndex, index);
    await settle(runsOfRanks, (run) => loadShardedCheckpoint(folder, run.state));
    expect(await Promise.all(runsOfRanks.map((run) => run.bits()))).toEqual(bits);
    end(runsOfRanks);
  });

  it("are detected if an index was edited or truncated", async () => {
    const runsOfRanks = runs(1, 1, "bf16");
    await settle(runsOfRanks, (run) => saveShardedCheckpoint(folder, run.state));
    const path = join(folder, "checkpoint.index.json");
    const bytes = readFileSync(path);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(bytes.length - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        async (position, mask, isTruncated) => {
          const damagedBytes = Buffer.from(isTruncated ? bytes.subarray(0, position) : bytes);
          if (!isTruncated) damagedBytes[position] = (damagedBytes[position] as number) ^ mask;
          writeFileSync(path, damagedBytes);
          const [error] = await settle(runsOfRanks, (run) => loadShardedCheckpoint(folder, run.state));
          expect(error).toBeInstanceOf(FileError);
        },
      ),
      { numRuns: draws(40) },
    );
    end(runsOfRanks);
  });
});
