/** Activations, gated activations and their gradients on a GPU. */
import { ACTIVATION } from "../../../formats/contract.gen.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { ActivationArgs, ActivationBackwardArgs, GatedArgs, GatedBackwardArgs } from "../../ops.js";
import type { Lowering, LoweringContext } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { CLAMP, SIZE } from "../shared-arguments.js";

const AMAX = {
  "amax?": writes.f32(
    "1",
    "If not null, set to the largest magnitude of the results before they are rounded, NaN ignored.",
  ),
} as const;

const ELEMENTWISE = {
  x: reads.wide("count"),
  out: writes.wide("count", "May be x."),
  ...AMAX,
  kind: "activation",
  count: "count",
} as const;

const GATED = {
  x: reads.wide("rows * columns * 2", "A row holds the values of a, followed by the values of g."),
  out: writes.wide("rows * columns"),
  ...AMAX,
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

type Context = Pick<LoweringContext, "addon" | "device">;

/** Computes an activation, and if `amax` is given, the amax of its f32 values. */
export function launchActivation(
  { addon, device }: Context,
  { x, kind, out }: ActivationArgs,
  amax?: Tensor,
): void {
  addon.activation(device, { x, out, amax, kind: ACTIVATION[kind], count: x.size });
}

/** As `launchActivation`, for the gradient of an activation. */
export function launchActivationBackward(
  { addon, device }: Context,
  { grad, x, kind, out }: ActivationBackwardArgs,
  amax?: Tensor,
): void {
  addon.activationBackward(device, { x, out, amax, kind: ACTIVATION[kind], count: x.size, grad });
}

/** As `launchActivation`, for a gated activation. */
export function launchGated({ addon, device }: Context, args: GatedArgs, amax?: Tensor): void {
  const { kind, clamp } = args;
  if (clamp) addon.clampedSwiglu(device, { amax, ...halves(args), ...clamp });
  else addon.gated(device, { kind: ACTIVATION[kind], amax, ...halves(args) });
}

/** As `launchActivation`, for the gradient of a gated activation. */
export function launchGatedBackward(
  { addon, device }: Context,
  args: GatedBackwardArgs,
  amax?: Tensor,
): void {
  const { grad, kind, clamp } = args;
  if (clamp) addon.clampedSwigluBackward(device, { grad, amax, ...halves(args), ...clamp });
  else addon.gatedBackward(device, { kind: ACTIVATION[kind], grad, amax, ...halves(args) });
}

/** Returns the arguments of a gated activation, without its kind and clamp. */
function halves({ x, out }: GatedArgs) {
  const [rows, columns] = asMatrix(x.shape);
  return { x, out, rows, columns: columns / 2 };
}

export const activation: Lowering<"activation"> = {
  run: (context, args) => launchActivation(context, args),
};

export const activationBackward: Lowering<"activationBackward"> = {
  run: (context, args) => launchActivationBackward(context, args),
};

export const gated: Lowering<"gated"> = {
  run: (context, args) => launchGated(context, args),
};

export const gatedBackward: Lowering<"gatedBackward"> = {
  run: (context, args) => launchGatedBackward(context, args),
};
