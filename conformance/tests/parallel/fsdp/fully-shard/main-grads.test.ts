/** Main gradients of sharded weights: gradients of all rows accumulate in f32, are reduced once, and added to a rank's rows. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../../src/collectives/loopback/loopback.js";
import {
  ArgumentError,
  autocast,
  clipGradNorm,
  DataParallel,
  DelayedScaling,
  Float8CurrentScaling,
  type FullyShardOptions,
  fullyShard,
  functional,
  Linear,
  MXFP8BlockScaling,
  normal,
  quantizedModelInit,
  RandomState,
  type Recipe,
  Scope,
  SGD,
  ShapeError,
  type Tensor,
  tensor,
  type WideDType,
  zeros,
} from "../../../../../src/index.js";
import { persistent, wideTensor } from "../../../../../src/modules/parameter.js";
import { castTo } from "../../../../../src/ops/cast/cast.js";
import { meanOfSums, rankedSum } from "../../../../oracle/collective/collective.js";
import { draws } from "../../../harness/draws.js";
import { useBackends } from "../../../harness/ranks/backends.js";

const MOST = 4;
const [BATCH, FROM] = [16, 32];
const backends = useBackends(MOST);
const groupsOf = (ranks: number): readonly ProcessGroup[] => loopbackOver(backends.slice(0, ranks), 20_000);

const RECIPES: Readonly<Record<string, (() => Recipe) | undefined>> = {
  none: undefined,
  delayed: () => new DelayedScaling({ amaxHistoryLen: 2 }),
  current: () => new Float8CurrentScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
};

/** What a program does: a pass, a call of `backwardDw`, or the release of all gradients. */
type Action =
  | {
      readonly kind: "pass";
      readonly first: boolean | undefined;
      readonly synced: boolean;
      /** Whether the weight is also the table of an embedding, so that it has a `grad` too. */
      readonly tied: boolean;
    }
  | { readonly kind: "backwardDw"; readonly synced: boolean }
  | { readonly kind: "clear" };

interface Case {
  readonly mesh: { readonly replicate: number; readonly shard: number };
  readonly rows: number;
  readonly recipe: string;
  readonly quantized: boolean;
  readonly delayed: boolean;
  readonly reduction: "mean" | "sum";
  readonly actions: readonly Action[];
}

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("pass" as const),
      first: fc.constantFrom(undefined, true, false),
      ...{ synced: fc.boolean(), tied: fc.boolean() },
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("backwardDw" as const), synced: fc.boolean() }) },
  { weight: 1, arbitrary: fc.constant({ kind: "clear" as const }) },
);

const cases: fc.Arbitrary<Case> = fc
  .record({
    mesh: fc.constantFrom(
      ...[1, 2, 3, 4].map((shard) => ({ replicate: 1, shard })),
      { replicate: 2, shard: 2 },
      { replicate: 3, shard: 1 },
    ),
    // some ranks have fewer rows, or none
    rows: fc.constantFrom(32, 64, 96),
    recipe: fc.constantFrom(...Object.keys(RECIPES)),
    quantized: fc.boolean(),
    delayed: fc.boolean(),
    reduction: fc.constantFrom("mean", "sum"),
    actions: fc.array(action, { minLength: 1, maxLength: 6 }),
  })
  .map((choices) => ({ ...choices, quantized: choices.quantized && choices.recipe !== "none" }));

/** A layer with a main gradient, and its passes. */
class Program {
  readonly layer: Linear;
  readonly #recipe: Recipe | undefined;
  #passes = 0;

  constructor(
    readonly backend: Backend,
    readonly testCase: Case,
    readonly rank: number,
  ) {
    const { rows, quantized, recipe, delayed } = testCase;
    const options = { bias: false, random: new RandomState(1n), fuseWgradAccumulation: true };
    this.#recipe = RECIPES[recipe]?.();
    this.layer = quantizedModelInit(
      { enabled: quantized, ...(quantized ? { recipe: this.#recipe as Recipe } : {}) },
      () => new Linear(backend, FROM, rows, { ...options, delayWgradCompute: delayed }),
    );
  }

  /** Sets a `mainGrad` of zeros, in the shape that the weight has on this rank. */
  setMainGrad(): void {
    const { weight } = this.layer;
    weight.mainGrad = persistent(zeros(this.backend, "f32", weight.shape));
  }

  #values(seed: bigint, columns: number): Tensor<WideDType> {
    const offset = BigInt(10_000 * (4 * this.#passes + this.rank));
    return wideTensor(this.backend, normal({ seed, offset }, BATCH * columns, 1), [BATCH, columns], "bf16");
  }

  pass({ first }: { readonly first: boolean | undefined }): void {
    using _ = new Scope();
    const { layer, testCase } = this;
    this.#passes++;
    const call = first === undefined ? {} : { isFirstMicrobatch: first };
    const x = this.#values(2n, FROM);
    const y = this.#recipe
      ? autocast({ recipe: this.#recipe }, () => layer.forward(x, call))
      : layer.forward(x, call);
    y.backward(this.#values(3n, testCase.rows));
  }

  /** A pass through an embedding whose table is the weight. */
  tiedPass(): void {
    using _ = new Scope();
    const ids = tensor(
      this.backend,
      Int32Array.from({ length: BATCH }, (_, i) => i),
      [BATCH],
      "i32",
    );
    functional.embedding(this.layer.weight, ids).backward(this.#values(4n, FROM));
  }

  /** The gradient of all rows that this rank has accumulated: its `mainGrad`, to which its `grad` is added. */
  async localGrad(): Promise<readonly number[]> {
    const { mainGrad, grad } = this.layer.weight;
    const values = Array.from((await mainGrad?.data()) ?? []);
    if (!grad) return values;
    const wide = castTo(grad, "f32");
    const addedElements = await wide.data();
    wide.dispose();
    return values.map((x, i) => Math.fround(x + (addedElements[i] as number)));
  }

  /** Computes the oldest delayed gradient, if there is one. Returns whether there was one. */
  backwardDw(): boolean {
    const isWaiting = this.layer.weight.delayedGradients?.isWaiting === true;
    if (isWaiting) this.layer.backwardDw();
    return isWaiting;
  }
}

/** The layers of all ranks, each with all rows and a `mainGrad` for them, and the definition of the reduced main gradient. */
class Definition {
  readonly programs: readonly Program[];
  /** The sum of the reduced gradients since the last clear. */
  total: readonly number[];
  /** Whether a product was added that is not reduced yet. */
  isPending = false;
  #overwrites = false;
  /** For each delayed product: whether it is the first of a step. */
  readonly #waiting: boolean[] = [];

  constructor(private readonly given: Case) {
    const { replicate, shard } = given.mesh;
    this.programs = Array.from(
      { length: replicate * shard },
      (_, rank) => new Program(backends[rank] as Backend, given, rank),
    );
    for (const program of this.programs) program.setMainGrad();
    this.total = Array(given.rows * FROM).fill(0);
  }

  async run(action: Action): Promise<void> {
    const { programs } = this;
    if (action.kind === "clear") {
      this.total = this.total.map(() => 0);
      this.#clear();
    } else if (action.kind === "backwardDw") {
      const programsWithWork = programs.map((program) => program.backwardDw());
      if (programsWithWork[0]) await this.#added(this.#waiting.shift() === true, action.synced);
    } else {
      const isFirst = action.first === true;
      for (const program of programs) program.pass(action);
      if (this.given.delayed) this.#waiting.push(isFirst);
      else await this.#added(isFirst, action.synced);
      const isTied = action.tied && !this.given.quantized;
      if (!isTied) return;
      for (const program of programs) program.tiedPass();
      if (!this.given.delayed && action.synced) await this.#reduce();
    }
  }

  async #added(isFirst: boolean, synced: boolean): Promise<void> {
    this.isPending = true;
    this.#overwrites ||= isFirst;
    if (synced) await this.#reduce();
  }

  /** Reduces within each copy of the parameters, then over the copies, and adds to the total or overwrites it. */
  async #reduce(): Promise<void> {
    const { replicate, shard } = this.given.mesh;
    const inputs = await Promise.all(this.programs.map((program) => program.localGrad()));
    const sumOf = (terms: readonly (readonly number[])[]): number[] => {
      const sums = rankedSum(terms, Math.fround);
      return this.given.reduction === "mean" ? meanOfSums(sums, terms.length, Math.fround) : sums;
    };
    const copies = Array.from({ length: replicate }, (_, i) =>
      sumOf(inputs.slice(i * shard, (i + 1) * shard)),
    );
    const { total } = this;
    const reducedGrad = sumOf(copies);
    this.total = this.#overwrites
      ? reducedGrad
      : reducedGrad.map((x, i) => Math.fround(x + (total[i] as number)));
    this.#clear();
  }

  #clear(): void {
    for (const { layer } of this.programs) layer.weight.clearGrads();
    this.isPending = false;
    this.#overwrites = false;
  }

  dispose(): void {
    for (const { layer } of this.programs) layer.dispose();
  }
}

/** A rank of a sharded layer. */
class ShardedProgram extends Program {
  readonly #sharded;

  constructor(group: ProcessGroup, testCase: Case) {
    super(group.backend, testCase, group.rank);
    const options: FullyShardOptions = { mesh: testCase.mesh, reduction: testCase.reduction };
    this.#sharded = fullyShard(this.layer, group, options);
    this.setMainGrad();
  }

  run(action: Action): void {
    if (action.kind === "clear") {
      this.layer.weight.clearGrads();
      return;
    }
    const body = (): void => {
      if (action.kind === "backwardDw") this.backwardDw();
      else {
        this.pass(action);
        if (action.tied && !this.testCase.quantized) this.tiedPass();
      }
    };
    if (action.synced) body();
    else this.#sharded.noSync(body);
  }

  /** The range of this rank's elements in the weight. */
  get range(): readonly [number, number] {
    const counts = this.#sharded.rowsOf(this.layer.weight);
    const shardIndex = this.rank % this.testCase.mesh.shard;
    const begin = counts.slice(0, shardIndex).reduce((sum, count) => sum + count, 0);
    return [begin * FROM, (begin + (counts[shardIndex] as number)) * FROM];
  }
}

/** A step over gradients that were not cleared: the first microbatch overwrites them, and the later one is added. */
const OVERWRITTEN: Case = {
  ...{ mesh: { replicate: 1, shard: 2 }, rows: 32, recipe: "none", quantized: false, delayed: false },
  reduction: "sum",
  actions: [
    { kind: "pass", first: undefined, synced: true, tied: false },
    { kind: "pass", first: true, synced: false, tied: false },
    { kind: "pass", first: false, synced: true, tied: true },
  ],
};

/** Gradients that are cleared before they are reduced. */
const CLEARED: Case = {
  ...OVERWRITTEN,
  actions: [
    { kind: "pass", first: true, synced: false, tied: false },
    { kind: "clear" },
    { kind: "pass", first: undefined, synced: true, tied: false },
  ],
};

describe("the mainGrad of a sharded weight", () => {
  it("is the sum of what all ranks have accumulated in f32, reduced in each pass that is not inside noSync", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const definition = new Definition(testCase);
        const programs = groupsOf(definition.programs.length).map(
          (group) => new ShardedProgram(group, testCase),
        );
        try {
          for (const action of testCase.actions) {
            for (const program of programs) program.run(action);
            await definition.run(action);
            for (const { layer, range, rank } of programs) {
              const { mainGrad } = layer.weight;
              const expected = definition.total.slice(...range);
              expect(Array.from((await mainGrad?.data()) ?? []), `rank ${rank}`).toEqual(expected);
              expect(layer.weight.sharding?.hasFullMainGrad).toBe(definition.isPending);
              if (!definition.isPending) continue;
              expect(() => clipGradNorm(layer, 1)).toThrow(/^clipGradNorm: a gradient is not reduced/);
              using optimizer = new SGD(layer, { learningRate: 0.1 });
              expect(() => optimizer.step()).toThrow(/^step: a gradient is not reduced/);
            }
          }
        } finally {
          for (const { layer } of programs) layer.dispose();
          definition.dispose();
        }
      }),
      { numRuns: draws(150, 12), examples: [[OVERWRITTEN], [{ ...OVERWRITTEN, delayed: true }], [CLEARED]] },
    );
  });

  it("has the shape of this rank's rows, or the backward pass throws and leaves no gradient", () => {
    const [group] = groupsOf(1) as [ProcessGroup];
    const testCase = { ...OVERWRITTEN, mesh: { replicate: 1, shard: 1 }, actions: [] };
    const program = new ShardedProgram(group, testCase);
    const { weight } = program.layer;
    weight.mainGrad?.dispose();
    weight.mainGrad = undefined;
    const pass = () => program.pass({ first: undefined });
    const live = group.backend.memoryUse().live;
    expect(pass).toThrow(ArgumentError);
    expect(pass).toThrow(/the weight needs a mainGrad/);
    weight.mainGrad = persistent(zeros(group.backend, "f32", [31, FROM]));
    expect(pass).toThrow(ShapeError);
    expect(pass).toThrow(/^linear: mainGrad is/);
    weight.mainGrad.dispose();
    expect(group.backend.memoryUse().live).toBe(live);
    program.setMainGrad();
    pass();
    expect(weight.grad).toBeUndefined();
    program.layer.dispose();
  });
});

it("an element of a mean that underflows to -0 is added to the zero in mainGrad; DataParallel overwrites the element", async () => {
  const elementWith = async (
    reduce: (layer: Linear, group: ProcessGroup) => unknown,
  ): Promise<number | undefined> => {
    const layers = groupsOf(2).map((group) => {
      const { backend } = group;
      const layer = new Linear(backend, 1, 1, { dtype: "f32", bias: false, fuseWgradAccumulation: true });
      reduce(layer, group);
      layer.weight.mainGrad = persistent(zeros(backend, "f32", layer.weight.shape));
      using _ = new Scope();
      const x = tensor(backend, new Float32Array([2 ** -149]), [1, 1]);
      layer.forward(x).backward(tensor(backend, new Float32Array([group.rank === 0 ? -1 : 0]), [1, 1]));
      return layer;
    });
    const [element] = (await layers[0]?.weight.mainGrad?.data()) ?? [];
    for (const layer of layers) layer.dispose();
    return element;
  };
  expect(await elementWith((layer, group) => fullyShard(layer, group))).toBe(0);
  expect(await elementWith((layer, group) => new DataParallel(layer, group))).toBe(-0);
});
