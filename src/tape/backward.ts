/** The backward pass through the graph that differentiable operations record. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { add } from "../ops/elementwise/operators.gen.js";
import { describe, isArray, ownList } from "../options.js";
import { QuantizedTensor, requireQuantized } from "../tensor/quantized.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import { sameShape } from "../tensor/shape.js";
import { hasHooks, PendingUses } from "./hooks.js";
import { type BackwardPass, GRAD_FN, gradFnOf, type Node } from "./node.js";
import { runOperation, setBackwardOrder } from "./uses.js";
import { type Gradient, wideOf } from "./value.js";
import type { Variable } from "./variable.js";

/**
 * Runs the graph of `root` in reverse topological order as part of `pass`. The gradients of leaves are left in `pass.gradients`.
 * An inner pass, of a recomputed region, gives `boundary`: the variables that count as leaves, because the outer pass continues
 * from them. The outermost pass gives `onLeafComplete`, which is called with each leaf that has hooks after its last use has run.
 * Throws `DTypeError`, before anything is computed, if a node would return a quantized gradient that is needed unquantized.
 */
export function runBackward(
  root: Variable,
  grad: Gradient,
  pass: BackwardPass,
  {
    boundary,
    onLeafComplete,
  }: {
    readonly boundary?: ReadonlySet<Variable>;
    readonly onLeafComplete?: (leaf: Variable) => void;
  },
): void {
  const { gradients } = pass;
  const accumulate = (variable: Variable, incoming: Gradient): void => {
    const earlier = gradients.get(variable);
    const total = earlier ? sum(earlier, incoming) : incoming;
    if (!gradFnOf(variable) || boundary?.has(variable)) pass.keep(total);
    gradients.set(variable, total);
  };
  const nodes = topologicalOrder(root, boundary);
  for (const node of nodes) if (node.quantized.gradInput) requireQuantizedUse(node, nodes, boundary);
  const uses = onLeafComplete && pendingUses(nodes);
  setBackwardOrder(nodes.flatMap(({ operation }) => operation ?? []));
  if (root.requiresGrad) accumulate(root, grad);
  for (const node of nodes) {
    const grads = node.results.map((result) => gradients.get(result));
    const inputGrads = inputGradsOf(node, grads, pass);
    node.inputs.forEach((input, i) => {
      const inputGrad = inputGrads[i];
      if (input.requiresGrad && inputGrad) accumulate(input, inputGrad);
    });
    for (const each of node.saved) each?.dispose();
    for (const result of node.results) {
      result[GRAD_FN] = "freed";
      gradients.take(result);
    }
    for (const each of grads) if (each && each !== grad && !gradients.has(each)) each.dispose();
    if (!uses) continue;
    for (const input of node.inputs) if (hasHooks(input) && uses.remove(input)) onLeafComplete?.(input);
  }
}

/** Returns the number of uses of each leaf that has hooks; undefined if no leaf has any. */
function pendingUses(nodes: readonly Node[]): PendingUses | undefined {
  const uses = new PendingUses();
  for (const { inputs } of nodes) for (const input of inputs) if (hasHooks(input)) uses.add(input);
  return uses.size > 0 ? uses : undefined;
}

/** Throws `DTypeError` unless the gradient of the first input is used exactly once, by a node that accepts it quantized. */
function requireQuantizedUse(
  { inputs }: Node,
  nodes: readonly Node[],
  boundary: ReadonlySet<Variable> | undefined,
): void {
  const [x] = inputs;
  if (!x?.requiresGrad) return;
  const gradFn = gradFnOf(x);
  const accepted = gradFn
    ? gradFn.quantized.gradOutput === true && gradFn.results[0] === x && !boundary?.has(x)
    : boundary !== undefined;
  const uses = nodes.reduce((count, node) => count + node.inputs.filter((input) => input === x).length, 0);
  if (accepted && uses === 1) return;
  throw new DTypeError(
    "backward: fp8Grad quantizes a gradient that is needed in f32, bf16 or f16; only a layer whose input is the result of a Linear can use it; leave it out elsewhere",
  );
}

/** Runs the node's `backward`, checks the gradients that it returns, and disposes of all other tensors that it created. */
function inputGradsOf(
  node: Node,
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
): readonly (Gradient | undefined)[] {
  using scope = new Scope();
  const { directInputs, retained, operation: forward } = node;
  return runOperation(directInputs, { retained, forward }, () =>
    checkedGrads(node, node.backward(grads, pass), scope),
  ).result;
}

/** Returns the gradients of the inputs after checking them. They are removed from the scope, so that it does not free them. */
function checkedGrads(
  node: Node,
  inputGrads: readonly (Gradient | undefined)[],
  scope: Scope,
): readonly (Gradient | undefined)[] {
  if (!isArray(inputGrads))
    throw new ArgumentError(
      `backward: the backward of a custom operation returned ${describe(inputGrads)}; it must return an array with the gradient of each input`,
    );
  return ownList("backward", "the gradients of a custom operation", inputGrads, (each, i) => {
    const [inputGrad, input] = [each as Gradient | undefined, node.inputs[i]];
    if (!inputGrad) return undefined;
    if (input) requireGradientOf(input, inputGrad);
    return scope.keep(inputGrad);
  });
}

/** Throws `DTypeError`, `ShapeError` or `ArgumentError` unless `grad` is a valid gradient of that input. */
function requireGradientOf({ backend, shape }: Variable, grad: Gradient): void {
  if (grad instanceof QuantizedTensor) requireQuantized("backward", "a gradient", grad);
  else requireWide("backward", "a gradient", grad);
  if (!sameShape(grad.shape, shape))
    throw new ShapeError(
      `backward: the backward of a custom operation returned a gradient of shape [${grad.shape}] for an input of shape [${shape}]; the shapes must be equal`,
    );
  if (grad.backend !== backend)
    throw new ArgumentError(
      "backward: a gradient lives on another backend than its input; compute it on the backend of the input",
    );
}

/**
 * Returns the nodes by which `root` was computed, in reverse topological order. Throws `ArgumentError` if one of them is
 * already freed.
 */
function topologicalOrder(root: Variable, boundary?: ReadonlySet<Variable>): readonly Node[] {
  const seen = new Set<Node>();
  const stack = [root];
  for (let next = stack.pop(); next; next = stack.pop()) {
    if (boundary?.has(next)) continue;
    if (next[GRAD_FN] === "freed") {
      throw new ArgumentError(
        "backward: part of the graph is already freed by an earlier backward pass; compute it again, or add the results up and call backward once",
      );
    }
    const node = gradFnOf(next);
    if (!node || seen.has(node)) continue;
    seen.add(node);
    stack.push(...node.inputs);
  }
  return [...seen].sort((a, b) => b.sequence - a.sequence);
}

function sum(x: Gradient, y: Gradient): Gradient {
  return add(wideOf("a gradient", x), wideOf("a gradient", y));
}
