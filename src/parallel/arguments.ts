/** Checks of arguments: a module, and a process group on the same backend. */
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { Module } from "../modules/module.js";
import { instance } from "../options.js";

export { processGroup as checkGroup } from "../functional/ranks.js";

export const checkModule = instance(Module, "a module");

/** Throws `ArgumentError` unless the module is on the backend of the group. */
export function requireSameBackend(caller: string, { backend }: Module, group: ProcessGroup): void {
  if (backend !== group.backend)
    throw new ArgumentError(
      `${caller}: module and group are on different backends; create the module on group.backend`,
    );
}
