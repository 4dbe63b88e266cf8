/** Activations and their gated forms on a GPU. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { ActivationArgs, GatedArgs } from "../../ops.js";
import type { NativeArgs } from "../addon.js";
import { type Lowering, wideOf } from "../lowering.js";

function elementwise({ x, kind, out }: ActivationArgs): NativeArgs {
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
    addon.activationBackward(device, { ...elementwise(args), grad: grad.address, gradType: wideOf(grad) });
  },
};

/** With a clamp its numbers, else the kind. */
function halves({ x, kind, clamp, out }: GatedArgs): NativeArgs {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    out: out.address,
    outType: wideOf(out),
    ...(clamp ?? { kind: ACTIVATION[kind] }),
    rows,
    columns: columns / 2,
  };
}

export const gated: Lowering<"gated"> = {
  run({ addon, device }, args) {
    addon[args.clamp ? "clampedSwiglu" : "gated"](device, halves(args));
  },
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run({ addon, device }, args) {
    const { grad, clamp } = args;
    const operation = clamp ? "clampedSwigluBackward" : "gatedBackward";
    addon[operation](device, { ...halves(args), grad: grad.address, gradType: wideOf(grad) });
  },
};
