/** Modules that are named by their indices. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { Module, type ModuleOptions } from "../../modules/module.js";
import { orDispose } from "../../tensor/scope.js";

/** A list of modules, which are named by their indices. */
export class ModuleList<M extends Module> extends Module {
  static {
    guardReceivers(this);
  }

  readonly list: readonly M[];

  /** `make` creates the module of an index. If it throws, the modules that it has created are disposed of. */
  constructor(backend: Backend, count: number, make: (index: number) => M, options: ModuleOptions) {
    super(backend, options);
    this.list = orDispose((created) =>
      Array.from({ length: count }, (_, index) => {
        const module = make(index);
        created.push(module);
        return module;
      }),
    );
    for (const [index, module] of this.list.entries()) this.addModule(`${index}`, module);
  }
}
