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
useBackendPerTest((opened) => {
  backend = opened;
});

/** A scope, and the scope that was innermost when it was created. */
interface Modelled {
  readonly scope: Scope;
  readonly outer: Modelled | undefined;
}

/** The open scopes, and the owner of each tensor. */
class Model {
  readonly scopes: Modelled[] = [];
  readonly open: Modelled[] = [];
  readonly tensors = new Map<Tensor, { owner: Modelled | undefined; disposed: boolean }>();

  begin(): void {
    const made = { scope: new Scope(), outer: this.open.at(-1) };
    this.scopes.push(made);
    this.open.push(made);
  }

  make(owner = this.open.at(-1)): void {
    this.tensors.set(empty(backend, "u8", [1]), { owner, disposed: false });
  }

  close(of: Modelled): void {
    of.scope.close();
    this.#shut(of);
  }

  within(of: Modelled): void {
    of.scope.within(() => this.make(of));
    this.#shut(of);
  }

  keep(of: Modelled, x: Tensor): void {
    of.scope.keep(x);
    const known = this.tensors.get(x);
    if (known?.owner === of) known.owner = of.outer;
  }

  dispose(of: Modelled): void {
    of.scope.dispose();
    this.#shut(of);
    for (const known of this.tensors.values()) if (known.owner === of) Object.assign(known, GONE);
  }

  free(x: Tensor): void {
    x.dispose();
    Object.assign(this.tensors.get(x) ?? {}, GONE);
  }

  #shut(of: Modelled): void {
    if (this.open.includes(of)) this.open.splice(this.open.indexOf(of), 1);
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

it("own what is made while they are the innermost open scope, until it is kept or they are disposed of", () => {
  fc.assert(
    fc.property(commands, (all) => {
      const model = new Model();
      for (const { kind, scope, tensor } of all) {
        const of = model.scopes[scope % model.scopes.length];
        const x = [...model.tensors.keys()][tensor % model.tensors.size];
        if (kind === "begin") model.begin();
        else if (kind === "make") model.make();
        else if (kind === "free" && x) model.free(x);
        else if (kind === "keep" && of && x) model.keep(of, x);
        else if (of && (kind === "close" || kind === "within" || kind === "dispose")) model[kind](of);
        for (const [each, { disposed }] of model.tensors) expect(each.disposed).toBe(disposed);
      }
      for (const of of model.scopes) model.dispose(of);
      for (const [each, { disposed }] of model.tensors) {
        expect(each.disposed).toBe(disposed);
        each.dispose();
      }
    }),
    { numRuns: draws(300) },
  );
});
