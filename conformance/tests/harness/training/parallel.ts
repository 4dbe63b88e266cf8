/** Training runs of a network that is divided among ranks, with a hash of the parameters of all ranks after each step. */
import { createHash } from "node:crypto";
import { autocast } from "../../../../src/autocast/autocast.js";
import type { ProcessGroup } from "../../../../src/distributed/group.js";
import { mseLoss } from "../../../../src/functional/loss.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { RandomState } from "../../../../src/quantizers/quantizer.js";
import { normal } from "../../../../src/random.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { RECIPES_UNDER_TEST, type RecipeName } from "./run.js";

/** A recorded run. */
export interface ParallelRun {
  readonly recipe: RecipeName;
  readonly ranks: number;
  readonly sequence: boolean;
  /** For each step: the hash of the losses of all ranks up to that step, and of their parameters. */
  readonly hashes: readonly string[];
}

const ROWS = 64;
const FEATURES = 64;
const HIDDEN = 256;
const RATE = 0.05;

/**
 * A network of a column-parallel layer, a row-parallel one, and a layer that consists of both, with a norm before and a gated
 * activation in between. On four ranks some parts are not whole blocks: they either have their own blocks or are gathered before
 * they are quantized.
 */
function parallelRun(group: ProcessGroup, recipe: RecipeName, sequence: boolean) {
  const { backend, rank, size } = group;
  const shared = { group, sequenceParallel: sequence, random: new RandomState(21n) };
  const model = new Sequential(
    backend,
    new Linear(backend, FEATURES, HIDDEN, { ...shared, parallelMode: "column" }),
    new Linear(backend, HIDDEN, FEATURES, { ...shared, parallelMode: "row" }),
    new LayerNormMLP(backend, FEATURES, HIDDEN, { ...shared, activation: "swiglu" }),
  );
  const optimizer = new SGD(model, { learningRate: RATE, momentum: 0.9 });
  const own = RECIPES_UNDER_TEST[recipe]?.();
  const rows = sequence ? ROWS / size : ROWS;
  const hash = createHash("sha256");
  let step = 0;
  const drawn = (seed: bigint) => {
    const values = normal({ seed, offset: BigInt(step) }, ROWS * FEATURES, 1);
    const begin = sequence ? rank * rows * FEATURES : 0;
    return wideTensor(
      backend,
      values.subarray(begin, begin + rows * FEATURES).slice(),
      [rows, FEATURES],
      "bf16",
    );
  };
  return {
    /** Runs one step. The returned function reads the results and resolves to the hash. */
    advance(): () => Promise<string> {
      using scope = new Scope();
      const [x, target] = [drawn(1n), drawn(2n)];
      const loss = autocast(own ? { recipe: own } : { enabled: false }, () =>
        mseLoss(model.forward(x), target),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      step++;
      const seen = [loss.tensor, ...model.parameters().map((each) => each.tensor)].map((each) =>
        scope.keep(each.clone()),
      );
      return async () => {
        for (const each of seen) {
          hash.update(new Uint8Array((await each.data()).buffer as ArrayBuffer));
          each.dispose();
        }
        return hash.copy().digest("hex").slice(0, 16);
      };
    },
    dispose(): void {
      optimizer.dispose();
      model.dispose();
    },
  };
}

/** Runs the first steps on all ranks of a group. Returns one hash per step, of the hashes of all ranks. */
export async function parallelSteps(
  groups: readonly ProcessGroup[],
  { recipe, sequence }: Pick<ParallelRun, "recipe" | "sequence">,
  steps: number,
): Promise<readonly string[]> {
  const runs = groups.map((group) => parallelRun(group, recipe, sequence));
  const hashes: string[] = [];
  for (let step = 0; step < steps; step++) {
    const reads = runs.map((run) => run.advance());
    const each = await Promise.all(reads.map((read) => read()));
    hashes.push(createHash("sha256").update(each.join(" ")).digest("hex").slice(0, 16));
  }
  for (const run of runs) run.dispose();
  return hashes;
}
