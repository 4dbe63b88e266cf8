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
import { BATCH, type CellPlan, HEADS, mayPassCodes, type StepPlan } from "./plan.js";

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
    this.#body = this.#createBody();
  }

  forward(input: VariableLike, call: Call = {}): Variable {
    const x = input as Variable;
    const { wrap } = this.cell;
    if (wrap === "residual") return functional.add(x, this.#body(x, call));
    if (wrap === "recompute") return recompute((h) => this.#body(h, call), x);
    if (wrap === "twice") return this.#body(this.#body(x, call), call);
    return this.#body(x, call);
  }

  #createBody(): (x: Variable, call: Call) => Variable {
    const { plan, backend, random } = this;
    const { layer, from, to, middle } = this.cell;
    const { kind, gated } = ACTIVATIONS[plan.activation];
    const commonOptions = { dtype: plan.parameters, random };
    const normOptions = { eps: plan.eps, zeroCenteredGamma: plan.zeroCenteredGamma };
    const fusedNormOptions = { ...normOptions, normalization: plan.normalization };
    const options = {
      ...{ ...commonOptions, bias: plan.bias },
      ...{ fuseWgradAccumulation: plan.fuses, saveOriginalInput: plan.savesOriginal },
      delayWgradCompute: plan.delays,
    };
    const activate = (x: Variable): Variable =>
      gated ? functional.gated(x, kind) : functional.activation(x, kind);
    const linear = (name: string, inFeatures: number, outFeatures: number): Linear =>
      this.addModule(name, new Linear(backend, inFeatures, outFeatures, options));
    const normLinear = (outFeatures: number): LayerNormLinear =>
      this.addModule(
        "linear",
        new LayerNormLinear(backend, from, outFeatures, { ...options, ...fusedNormOptions }),
      );
    switch (layer) {
      case "linear": {
        const module = linear("linear", from, to);
        return (x, call) => module.forward(x, call);
      }
      case "norm": {
        const Norm = plan.normalization === "LayerNorm" ? LayerNorm : RMSNorm;
        const module = this.addModule("norm", new Norm(backend, from, { ...commonOptions, ...normOptions }));
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
          new LayerNormMLP(backend, from, middle, { ...options, ...fusedNormOptions, activation }),
        );
        return (x, call) => module.forward(x, call);
      }
      case "activation":
        return activate;
      case "gate": {
        const module = linear("linear", from, gated ? 2 * to : to);
        return (x, call) => activate(module.forward(x, call));
      }
      case "between": {
        const [first, second] = [linear("first", from, middle), linear("second", middle, to)];
        const codes = mayPassCodes(plan);
        return (x, call) => {
          const h = first.forward(x, { ...call, fp8Output: codes });
          return second.forward(h, { ...call, fp8Grad: codes && h.requiresGrad });
        };
      }
    }
  }
}
