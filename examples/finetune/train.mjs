/** Training of the last layers of a language model on windows of a text, as one process or divided among ranks. */
import {
  AdamW,
  autocast,
  DataParallel,
  Float8BlockScaling,
  functional,
  MXFP8BlockScaling,
  noGrad,
  Scope,
  Sequential,
  tensor,
} from "lockstep";
import { loadCheckpoint, saveCheckpoint } from "lockstep/io";
import { loadCausalLM, loadTokenizer } from "lockstep/models";
import { digestOf } from "../shared/digest.mjs";

/** The recipes by name. None of them keeps state from step to step, or draws random bits. */
export const RECIPES = {
  bf16: undefined,
  block: new Float8BlockScaling(),
  mxfp8: new MXFP8BlockScaling(),
};
/** The windows of a step. Each is a microbatch; they are divided among the ranks. */
const WINDOWS = 2;
/** The number of tokens that a window predicts. */
const LENGTH = 32;
/** The number of decoder layers, counted from the end, that are trained. The final norm is trained too. */
const TRAINED_LAYERS = 2;
const LEARNING_RATE = 2e-4;

/** A run: a model, its optimizer, and the number of completed steps. */
export class Finetuning {
  #model;
  #trained;
  #optimizer;
  #parallel;
  #recipe;
  #group;
  #tokens;
  #step = 0;

  /** Loads the model at `path` in bf16. All ranks of `group` call it. */
  static async create(group, path, text, recipe) {
    if (group.size > WINDOWS)
      throw new Error(`${group.size} ranks; a step has ${WINDOWS} windows, one a rank`);
    const run = new Finetuning();
    run.#group = group;
    run.#recipe = RECIPES[recipe];
    run.#tokens = (await loadTokenizer(path)).encode(text);
    run.#model = await loadCausalLM(group.backend, path, { dtype: "bf16" });
    const modules = run.#model.namedModules();
    const count = run.#model.config.layers.length;
    const layers = Array.from({ length: TRAINED_LAYERS }, (_, i) => count - TRAINED_LAYERS + i);
    const names = [...layers.map((layer) => `model.layers.${layer}`), "model.norm"];
    for (const parameter of run.#model.parameters()) parameter.requiresGrad = false;
    run.#trained = new Sequential(group.backend, ...names.map((name) => modules.get(name)));
    for (const parameter of run.#trained.parameters()) parameter.requiresGrad = true;
    run.#optimizer = new AdamW(run.#trained, { learningRate: LEARNING_RATE });
    run.#parallel = new DataParallel(run.#trained, group, { reduction: "sum" });
    return run;
  }

  /** Runs a step. Returns its loss, and a digest of the loss and of all trained parameters after it. */
  async advance() {
    const mean = this.#advanced();
    this.#step++;
    const values = [mean, ...this.#trained.parameters().map(({ tensor: value }) => value)];
    const [loss, ...parameters] = await Promise.all(values.map((value) => value.data()));
    mean.dispose();
    return { loss: loss[0], digest: digestOf([loss, ...parameters]) };
  }

  /** Runs a step. Returns the mean of the losses of all windows. */
  #advanced() {
    const scope = new Scope();
    const { rank, size, backend } = this.#group;
    const share = tensor(backend, [1 / WINDOWS]);
    const own = Array.from({ length: WINDOWS }, (_, i) => i).filter((i) => i % size === rank);
    const losses = own.map((i) => {
      const region = this.#recipe ? { recipe: this.#recipe } : { enabled: false };
      const loss = autocast(region, () => this.#lossOf(i));
      // gradients are exchanged once, with the last window of this rank
      if (i === own.at(-1)) loss.backward(share);
      else this.#parallel.noSync(() => loss.backward(share));
      return loss.tensor;
    });
    this.#optimizer.step();
    this.#optimizer.zeroGrad();
    const sum = noGrad(() => losses.reduce((total, loss) => functional.add(total, loss).tensor));
    const mean = functional.multiply(this.#group.allReduce(sum), share).tensor;
    scope.keep(mean);
    scope.dispose();
    return mean;
  }

  /** The loss of a window of this step: the cross entropy of each token, given the tokens before it in the window. */
  #lossOf(window) {
    const { backend } = this.#group;
    const windows = Math.floor((this.#tokens.length - 1) / LENGTH);
    const begin = ((this.#step * WINDOWS + window) % windows) * LENGTH;
    const part = (from, shape) => tensor(backend, this.#tokens.slice(from, from + LENGTH), shape, "i32");
    const logits = this.#model.forward(part(begin, [1, LENGTH]));
    const rows = functional.reshape(logits, [LENGTH, logits.shape.at(-1)]);
    return functional.crossEntropyLoss(rows, part(begin + 1, [LENGTH]));
  }

  /** Saves the trained layers, the optimizer and the number of steps. */
  async save(path) {
    await saveCheckpoint(path, { module: this.#trained, optimizer: this.#optimizer, extra: this.#step });
  }

  /** Continues from a checkpoint. */
  async resume(path) {
    this.#step = await loadCheckpoint(path, { module: this.#trained, optimizer: this.#optimizer });
  }

  /** The number of completed steps. */
  get step() {
    return this.#step;
  }

  dispose() {
    this.#parallel.dispose();
    this.#optimizer.dispose();
    this.#model.dispose();
  }
}
