/** The optional peer packages: the version that is needed, and whether it is installed. For Node only. */
import { createRequire } from "node:module";
import { MissingPackageError } from "./errors.js";

const require = createRequire(import.meta.url);

const { peerDependencies } = require("lockstep/package.json") as {
  readonly peerDependencies: Readonly<Record<string, string>>;
};

function isInstalled(name: string): boolean {
  try {
    require.resolve(name);
    return true;
  } catch {
    return false;
  }
}

/** Throws `MissingPackageError` if a package that a feature needs is not installed. */
export function requirePackages(feature: string, ...names: readonly string[]): void {
  const missing = names.filter((name) => !isInstalled(name));
  if (missing.length === 0) return;
  throw new MissingPackageError(
    feature,
    missing.map((name) => `${name}@${peerDependencies[name]}`),
  );
}
