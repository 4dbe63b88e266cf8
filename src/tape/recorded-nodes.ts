/** The nodes that a function records. */
import type { Node } from "./node.js";

/** The listeners of the running calls of `recordedNodes`, the innermost last. */
const listeners: ((node: Node) => void)[] = [];

/** Passes a node to the enclosing calls of `recordedNodes`. Differentiable operations call it. */
export function announceNode(node: Node): void {
  for (const listener of listeners) listener(node);
}

/** Calls `body`, which is synchronous. Returns its result and the nodes that it recorded. */
export function recordedNodes<R>(body: () => R): { readonly result: R; readonly nodes: readonly Node[] } {
  const nodes: Node[] = [];
  listeners.push((node) => nodes.push(node));
  try {
    return { result: body(), nodes };
  } finally {
    listeners.pop();
  }
}
