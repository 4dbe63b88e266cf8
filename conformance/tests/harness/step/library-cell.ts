/** One cell of a plan as a module of the library. */
import type { Backend } from "../../../../src/backends/backend.js";
import {
  functional,
  LayerNorm,
  LayerNormLinear,
  LayerNormMLP,
  Linear,
  type LinearCall,
  Module,
  type RandomState,
  RMSNorm,
  recompute,
  type Variable,
  type VariableLike,
} from "../../../../src/index.js";
import { ACTIVATIONS } from "./options.js";
import { BATCH, type CellPlan, HEADS, passesCodes, type StepPlan } from "./plan.js";

export type Call = Pick<LinearCall, "isFirstMicrobatch" | "skipFp8WeightUpdate">;

/** One cell of a plan as a module. */
export class Cell extends Module {
  readonly #body: (x: Variable, call: Call) => Variable;

  constructor(
    backend: Backend,
    private readonly plan: StepPlan,
    private readonly cell: CellPlan,
    random: RandomState,
  ) {
    super(backend, { random });
    this.#body = this.#make();
  }

  forward(input: VariableLike, call: Call = {}): Variable {
    const x = input as Variable;
    const { wrap } = this.cell;
    if (wrap === "residual") return functional.add(x, this.#body(x, call));
    if (wrap === "recompute") return recompute((h) => this.#body(h, call), x);
    if (wrap === "twice") return this.#body(this.#body(x, call), call);
    return this.#body(x, call);
  }

  #make(): (x: Variable, call: Call) => Variable {
    const { plan, backend, random } = this;
    const { layer, from, to, middle } = this.cell;
    const { kind, gated } = ACTIVATIONS[plan.activation];
    const plain = { dtype: plan.parameters, random };
    const form = { eps: plan.eps, zeroCenteredGamma: plan.zeroCenteredGamma };
    const norm = { ...form, normalization: plan.normalization };
    const options = {
      ...{ ...plain, bias: plan.bias },
      ...{ fuseWgradAccumulation: plan.fuses, saveOriginalInput: plan.savesOriginal },
      delayWgradCompute: plan.delays,
    };
    const act = (h: Variable): Variable =>
      gated ? functional.gated(h, kind) : functional.activation(h, kind);
    const linear = (name: string, inward: number, out: number): Linear =>
      this.addModule(name, new Linear(backend, inward, out, options));
    const normLinear = (out: number): LayerNormLinear =>
      this.addModule("linear", new LayerNormLinear(backend, from, out, { ...options, ...norm }));
    switch (layer) {
      case "linear": {
        const module = linear("linear", from, to);
        return (x, call) => module.forward(x, call);
      }
      case "norm": {
        const Norm = plan.normalization === "LayerNorm" ? LayerNorm : RMSNorm;
        const module = this.addModule("norm", new Norm(backend, from, { ...plain, ...form }));
        return (x) => module.forward(x);
      }
      case "normLinear": {
        const module = normLinear(to);
        return (x, call) => module.forward(x, call);
      }
      case "returned": {
        const module = normLinear(to);
        return (x, call) => functional.add(...module.forwardWithNorm(x, call));
      }
      case "attention": {
        const module = normLinear(3 * to);
        const { rows, causal } = plan;
        return (x, call) => {
          const qkv = functional.reshape(module.forward(x, call), [BATCH, rows / BATCH, 3 * to]);
          const out = functional.dotProductAttention(qkv, { heads: HEADS, causal });
          return functional.reshape(out, [rows, to]);
        };
      }
      case "mlp": {
        const { activation } = plan;
        const module = this.addModule(
          "mlp",
          new LayerNormMLP(backend, from, middle, { ...options, ...norm, activation }),
        );
        return (x, call) => module.forward(x, call);
      }
      case "activation":
        return act;
      case "gate": {
        const module = linear("linear", from, gated ? 2 * to : to);
        return (x, call) => act(module.forward(x, call));
      }
      case "between": {
        const [first, second] = [linear("first", from, middle), linear("second", middle, to)];
        const codes = passesCodes(plan);
        return (x, call) => {
          const h = first.forward(x, { ...call, fp8Output: codes });
          return second.forward(h, { ...call, fp8Grad: codes && h.requiresGrad });
        };
      }
    }
  }
}
