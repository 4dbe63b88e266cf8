/** Activations, gated activations and their gradients on a GPU. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { GatedArgs } from "../../ops.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { CLAMP, SIZE } from "../shared-arguments.js";

const ELEMENTWISE = {
  x: reads.wide("count"),
  out: writes.wide("count", "May be x."),
  kind: "activation",
  count: "count",
} as const;

const GATED = {
  x: reads.wide("rows * columns * 2", "A row holds the values of a, followed by the values of g."),
  out: writes.wide("rows * columns"),
  ...SIZE,
} as const;

const GATED_BACKWARD = {
  ...GATED,
  out: writes.wide("rows * columns * 2", "A row gets the gradients of a, followed by the gradients of g."),
  grad: reads.wide("rows * columns"),
} as const;

export const ACTIVATION_CALLS = {
  activation: ELEMENTWISE,
  activationBackward: { ...ELEMENTWISE, grad: reads.wide("count", "The gradient of act(x).") },
  gated: { ...GATED, kind: "activation" },
  gatedBackward: { ...GATED_BACKWARD, kind: "activation" },
  clampedSwiglu: { ...GATED, ...CLAMP },
  clampedSwigluBackward: { ...GATED_BACKWARD, ...CLAMP },
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
  return { x, out, rows, columns: columns / 2 };
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
    const source = { grad, ...halves(args) };
    if (clamp) {
      const { alpha, limit, offset } = clamp;
      addon.clampedSwigluBackward(device, { alpha, limit, offset, ...source });
    } else addon.gatedBackward(device, { kind: ACTIVATION[kind], ...source });
  },
};
