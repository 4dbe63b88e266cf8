/**
 * A pass of a layer frees each intermediate tensor directly after the last operation that reads it, so the peak memory of a pass
 * has no dead tensors.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { interceptRun } from "../../../../src/backends/run.js";
import { zeros } from "../../../../src/ops/create.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { memoryOf } from "../../../../src/tensor/memory.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Tensor } from "../../../../src/tensor/tensor.js";
import { combineResults, createInputs, inputsWithGradients, rowsWhere } from "../../harness/modules/calls.js";
import { recipeByName, SINGLE_QUANTIZER_RECIPE_NAMES } from "../../harness/step/library-recipes.js";

// products in high precision keep their operands to the end of the operation, in a region and outside
const NAMES = SINGLE_QUANTIZER_RECIPE_NAMES;
const SIZES = { rows: 32, from: 64, to: 32, middle: 96 };

interface Block {
  readonly address: number;
  readonly bytes: number;
  /** The last operation that has read or written the block, and its number. */
  last: { readonly op: string; readonly number: number };
}

/** Records blocks of memory that are not freed directly after the last operation that used them. */
class Watched {
  readonly #live = new Map<number, Block>();
  #ops: string[] = [];
  #late: string[] = [];

  constructor(backend: Backend) {
    const memory = memoryOf(backend);
    const [allocate, free] = [memory.allocate.bind(memory), memory.free.bind(memory)];
    // an operation that the backend composes of others counts as one
    let depth = 0;
    interceptRun(backend, (run) => (op, args) => {
      if (depth++ === 0) this.#ops.push(op);
      this.#uses(args, { op, number: this.#ops.length });
      run(op, args);
      depth--;
    });
    memory.allocate = (bytes) => {
      const address = allocate(bytes);
      this.#live.set(address, { address, bytes, last: { op: "nothing", number: this.#ops.length } });
      return address;
    };
    memory.free = (address) => {
      const block = this.#live.get(address);
      this.#live.delete(address);
      const laterOps = block ? this.#ops.slice(block.last.number) : [];
      if (block && laterOps.length > 0)
        this.#late.push(`${block.bytes} bytes, used last by ${block.last.op}, are freed after ${laterOps}`);
      free(address);
    };
  }

  /** Runs `body`. Returns the blocks that were freed late, and the operations. Blocks that existed before do not count. */
  during(body: () => void): { readonly latelyFreed: readonly string[]; readonly ops: readonly string[] } {
    this.#live.clear();
    [this.#ops, this.#late] = [[], []];
    body();
    return { latelyFreed: [...this.#late], ops: this.#ops };
  }

  #uses(value: unknown, operation: Block["last"]): void {
    if (value instanceof Tensor) {
      for (const block of this.#live.values())
        if (value.address >= block.address && value.address < block.address + block.bytes)
          block.last = operation;
    } else if (value instanceof QuantizedTensor) {
      this.#uses([value.rowwise, value.columnwise], operation);
    } else if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value)) {
      for (const field of Object.values(value)) this.#uses(field, operation);
    }
  }
}

// composed modules leave results to the scope of the caller until the backward pass ends
const FREEING = rowsWhere(({ products }) => products !== undefined);

describe.each(FREEING)("%s", (_, row) => {
  it.each(NAMES)("under %s", async (recipe) => {
    const backend = await openBackend("wasm", { threads: 1, datapath: "exact" });
    const watchedBackend = new Watched(backend);
    for (const saveOriginalInput of recipe.startsWith("delayed") ? [false] : [false, true]) {
      const builtModule = row.build(backend, SIZES, { saveOriginalInput });
      const inputs = createInputs(backend, builtModule, { ...SIZES, isZero: true });
      let grad: Tensor | undefined;
      const step = () => {
        let y: Variable | undefined;
        const forward = watchedBackend.during(() => {
          y = autocast({ recipe: recipeByName(recipe) }, () => combineResults(builtModule.run(inputs)));
        });
        grad ??= zeros(backend, "bf16", y?.shape ?? []);
        const dy = grad;
        const backward = watchedBackend.during(() => y?.backward(dy));
        y?.value.dispose();
        for (const variable of [...inputsWithGradients(inputs), ...builtModule.module.parameters()])
          variable.zeroGrad();
        return { forward, backward };
      };
      step();
      const { forward, backward } = step();
      const description = JSON.stringify({ saveOriginalInput });
      expect(forward.ops, description).toContain("gemm");
      expect(backward.ops, description).toContain("gemm");
      expect(forward.latelyFreed, `${description}, forward: ${forward.ops}`).toEqual([]);
      expect(backward.latelyFreed, `${description}, backward: ${backward.ops}`).toEqual([]);
      for (const disposable of [builtModule.module, grad, ...inputs.map(({ value }) => value)])
        disposable?.dispose();
    }
    await backend.dispose();
  });
});
