/** Activations, gated activations and their gradients on a GPU. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { GatedArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { CLAMP, GRAD, OUT, SOURCE } from "../shared-arguments.js";

const ELEMENTWISE = {
  x: reads.wide("count"),
  out: writes.wide("count", "May be x."),
  kind: "activation",
  count: "count",
} as const;

export const ACTIVATION_CALLS = {
  activation: ELEMENTWISE,
  activationBackward: { ...ELEMENTWISE, grad: reads.wide("count", "The gradient of act(x).") },
  gated: { ...SOURCE, ...OUT, kind: "activation" },
  gatedBackward: { ...SOURCE, ...OUT, kind: "activation", ...GRAD },
  clampedSwiglu: { ...SOURCE, ...OUT, ...CLAMP },
  clampedSwigluBackward: { ...SOURCE, ...OUT, ...CLAMP, ...GRAD },
} as const satisfies Declarations;

export const activation: Lowering<"activation"> = {
  run({ addon, device }, { x, kind, out }) {
    addon.activation(device, { x, out, kind: ACTIVATION[kind], count: x.size });
  },
};

export const activationBackward: Lowering<"activationBackward"> = {
  run({ addon, device }, { grad, x, kind, out }) {
    addon.activationBackward(device, { x, out, kind: ACTIVATION[kind], count: x.size, grad });
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
