/** Scopes own tensors like a stack, in whatever order they are opened, closed, entered again and disposed of. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { empty } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackendPerTest } from "../harness/suite.js";

let backend: Backend;
useBackendPerTest((openedBackend) => {
  backend = openedBackend;
});

/** A scope, and the scope that was innermost when it was created. */
interface ModelScope {
  readonly scope: Scope;
  readonly outer: ModelScope | undefined;
}

/** The open scopes, and the owner of each tensor. */
class Model {
  readonly scopes: ModelScope[] = [];
  readonly openScopes: ModelScope[] = [];
  readonly tensors = new Map<Tensor, { owner: ModelScope | undefined; disposed: boolean }>();

  begin(): void {
    const modelScope = { scope: new Scope(), outer: this.openScopes.at(-1) };
    this.scopes.push(modelScope);
    this.openScopes.push(modelScope);
  }

  make(owner = this.openScopes.at(-1)): void {
    this.tensors.set(empty(backend, "u8", [1]), { owner, disposed: false });
  }

  close(modelScope: ModelScope): void {
    modelScope.scope.close();
    this.#shut(modelScope);
  }

  within(modelScope: ModelScope): void {
    modelScope.scope.within(() => this.make(modelScope));
    this.#shut(modelScope);
  }

  keep(modelScope: ModelScope, x: Tensor): void {
    modelScope.scope.keep(x);
    const entry = this.tensors.get(x);
    if (entry?.owner === modelScope) entry.owner = modelScope.outer;
  }

  dispose(modelScope: ModelScope): void {
    modelScope.scope.dispose();
    this.#shut(modelScope);
    for (const entry of this.tensors.values()) if (entry.owner === modelScope) Object.assign(entry, GONE);
  }

  free(x: Tensor): void {
    x.dispose();
    Object.assign(this.tensors.get(x) ?? {}, GONE);
  }

  #shut(modelScope: ModelScope): void {
    if (this.openScopes.includes(modelScope)) this.openScopes.splice(this.openScopes.indexOf(modelScope), 1);
  }
}

const GONE = { owner: undefined, disposed: true };

const commands = fc.array(
  fc.record({
    kind: fc.constantFrom(
      "begin",
      "begin",
      "make",
      "make",
      "close",
      "within",
      "keep",
      "keep",
      "dispose",
      "free",
    ),
    scope: fc.nat(),
    tensor: fc.nat(),
  }),
  { minLength: 15, maxLength: 50 },
);

it("scopes own the tensors that are created while they are the innermost open scope, until a tensor is kept or the scope is disposed of", () => {
  fc.assert(
    fc.property(commands, (sequence) => {
      const model = new Model();
      for (const { kind, scope, tensor } of sequence) {
        const modelScope = model.scopes[scope % model.scopes.length];
        const x = [...model.tensors.keys()][tensor % model.tensors.size];
        if (kind === "begin") model.begin();
        else if (kind === "make") model.make();
        else if (kind === "free" && x) model.free(x);
        else if (kind === "keep" && modelScope && x) model.keep(modelScope, x);
        else if (modelScope && (kind === "close" || kind === "within" || kind === "dispose"))
          model[kind](modelScope);
        for (const [tensor, { disposed }] of model.tensors) expect(tensor.disposed).toBe(disposed);
      }
      for (const modelScope of model.scopes) model.dispose(modelScope);
      for (const [tensor, { disposed }] of model.tensors) {
        expect(tensor.disposed).toBe(disposed);
        tensor.dispose();
      }
    }),
    { numRuns: draws(300) },
  );
});
