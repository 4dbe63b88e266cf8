/** Activations, gated activations and their gradients on a GPU. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { ActivationArgs, GatedArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { CLAMP, GRAD, OUT, SOURCE, X } from "../shared-arguments.js";

export const ACTIVATION_CALLS = {
  activation: { ...X, ...OUT, kind: "activation", count: "count" },
  activationBackward: { ...X, ...OUT, kind: "activation", count: "count", ...GRAD },
  gated: { ...SOURCE, ...OUT, kind: "activation" },
  gatedBackward: { ...SOURCE, ...OUT, kind: "activation", ...GRAD },
  clampedSwiglu: { ...SOURCE, ...OUT, ...CLAMP },
  clampedSwigluBackward: { ...SOURCE, ...OUT, ...CLAMP, ...GRAD },
} as const satisfies Declarations;

function elementwise({ x, kind, out }: ActivationArgs) {
  return {
    x: x.address,
    xType: wideOf(x),
    out: out.address,
    outType: wideOf(out),
    kind: ACTIVATION[kind],
    count: x.size,
  };
}

export const activation: Lowering<"activation"> = {
  run({ addon, device }, args) {
    addon.activation(device, elementwise(args));
  },
};

export const activationBackward: Lowering<"activationBackward"> = {
  run({ addon, device }, args) {
    const { grad } = args;
    addon.activationBackward(device, { grad: grad.address, gradType: wideOf(grad), ...elementwise(args) });
  },
};

/** Returns the arguments of a gated activation, without its kind and clamp. */
function halves({ x, out }: GatedArgs) {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    out: out.address,
    outType: wideOf(out),
    rows,
    columns: columns / 2,
  };
}

export const gated: Lowering<"gated"> = {
  run({ addon, device }, args) {
    const { kind, clamp } = args;
    if (clamp) {
      const { alpha, limit, offset } = clamp;
      addon.clampedSwiglu(device, { alpha, limit, offset, ...halves(args) });
    } else addon.gated(device, { kind: ACTIVATION[kind], ...halves(args) });
  },
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run({ addon, device }, args) {
    const { grad, kind, clamp } = args;
    const source = { grad: grad.address, gradType: wideOf(grad), ...halves(args) };
    if (clamp) {
      const { alpha, limit, offset } = clamp;
      addon.clampedSwigluBackward(device, { alpha, limit, offset, ...source });
    } else addon.gatedBackward(device, { kind: ACTIVATION[kind], ...source });
  },
};
