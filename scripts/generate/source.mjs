// Imports a module of src/ from its TypeScript source, so that generators read the current tables, built or not.
import { build } from "esbuild";

/** Returns the exports of a module of src/. Throws esbuild's message if the source or one of its imports does not parse. */
export async function importSource(path) {
  const { outputFiles } = await build({
    entryPoints: [path],
    bundle: true,
    write: false,
    format: "esm",
    platform: "node",
    target: "node20",
    logLevel: "silent",
    external: ["#*"],
  });
  const [{ contents }] = outputFiles;
  return import(`data:text/javascript;base64,${Buffer.from(contents).toString("base64")}`);
}
