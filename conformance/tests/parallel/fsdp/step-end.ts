/** The end of a step: updates, and state that is saved or loaded. */
import {
  clipGradNorm,
  type Module,
  type Optimizer,
  QuantizedTensor,
  Scope,
  type Tensor,
  tensor,
} from "../../../../src/index.js";
import { persistent } from "../../../../src/modules/parameter.js";
import type { QuantizationSnapshot } from "../../../../src/modules/quantization-state.js";
import type { Turn } from "./case.js";

const GRAD_SCALE = 0.375;
const MAX_NORM = 0.25;

/** Updates the parameters and releases their gradients, according to the step's options. */
export function endStep(optimizer: Optimizer, { end, zeroes }: Turn): void {
  using _ = new Scope();
  const slots = [...optimizer.slots.values()];
  const hasGrads = slots.some(({ parameter: { grad } }) => grad);
  const [{ master }] = slots as [(typeof slots)[0]];
  const oneElement = (value: number): Tensor<"f32"> => tensor(master.backend, [value]);
  if (end === "step") optimizer.step();
  else if (end === "noop") optimizer.step({ noop: oneElement(1) });
  else if (end === "scaled") optimizer.step({ gradScale: oneElement(GRAD_SCALE) });
  else if (end === "clipped" && hasGrads)
    optimizer.step({ gradScale: clipGradNorm(optimizer, MAX_NORM).factor });
  if (zeroes) optimizer.zeroGrad();
}

/** All tensors of a parameter and of its optimizer. */
function tensorsOf({ slots }: Optimizer): readonly Tensor[] {
  const tensors = [...slots.values()].flatMap(({ parameter: { value }, master, buffers }) => [
    ...(value instanceof QuantizedTensor ? value.members : [value]),
    ...(master === value ? [] : [master]),
    ...buffers.values(),
  ]);
  return [...new Set(tensors)];
}

/** The state of a run, which is set as `loadCheckpoint` sets it. */
export class SavedState {
  #tensors: readonly Tensor[] = [];
  #steps: readonly number[] = [];
  #scales: readonly (QuantizationSnapshot | undefined)[] = [];

  constructor(
    private readonly module: Module,
    private readonly optimizer: Optimizer,
  ) {}

  /** Saves or loads, according to the step's options. Loading does nothing before the first save. */
  follow({ state }: Turn): void {
    if (state === "saved") this.#save();
    else if (state === "loaded" && this.#tensors.length > 0) this.#load();
    else if (state === "loaded") for (const parameter of this.module.parameters()) parameter.clearGrads();
  }

  #save(): void {
    this.dispose();
    this.#tensors = tensorsOf(this.optimizer).map((tensor) => persistent(tensor.clone()));
    this.#steps = [...this.optimizer.slots.values()].map(({ steps }) => steps);
    this.#scales = [...this.module.namedQuantizations().values()].map((quantization) =>
      quantization.snapshotSync(),
    );
  }

  #load(): void {
    using _ = new Scope();
    for (const [i, tensor] of tensorsOf(this.optimizer).entries())
      tensor.paste(this.#tensors[i] as Tensor, 0);
    for (const parameter of this.module.parameters()) parameter.clearGrads();
    for (const [i, quantization] of [...this.module.namedQuantizations().values()].entries())
      quantization.restore(this.#scales[i]);
    for (const [i, slot] of [...this.optimizer.slots.values()].entries())
      slot.steps = this.#steps[i] as number;
  }

  dispose(): void {
    for (const tensor of this.#tensors) tensor.dispose();
    this.#tensors = [];
  }
}
