/** Finds the mutants that the TypeScript compiler refuses; such mistakes cannot go unnoticed. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import ts from "typescript";

/**
 * Returns a function that compiles mutants of different files together, and returns the compiler's errors of each file,
 * or undefined.
 */
export function compiler() {
  const config = ts.getParsedCommandLineOfConfigFile(
    "tsconfig.json",
    {},
    { ...ts.sys, onUnRecoverableConfigFileDiagnostic() {} },
  );
  const mutated = new Map();
  const versions = new Map();
  const text = (path) => mutated.get(path) ?? readFileSync(path, "utf8");
  const service = ts.createLanguageService({
    ...ts.sys,
    useCaseSensitiveFileNames: () => ts.sys.useCaseSensitiveFileNames,
    getCompilationSettings: () => ({
      ...config.options,
      noEmit: true,
      noUnusedLocals: false,
      noUnusedParameters: false,
    }),
    getScriptFileNames: () => config.fileNames,
    getScriptVersion: (path) => String(versions.get(path) ?? 0),
    getScriptSnapshot: (path) =>
      ts.sys.fileExists(path) ? ts.ScriptSnapshot.fromString(text(path)) : undefined,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    getCurrentDirectory: () => process.cwd(),
  });
  const write = (path, content) => {
    if (content === undefined) mutated.delete(path);
    else mutated.set(path, content);
    versions.set(path, (versions.get(path) ?? 0) + 1);
  };
  return (batch) => {
    for (const { fileName, location, replacement } of batch)
      write(resolve(fileName), replaced(readFileSync(fileName, "utf8"), location, replacement));
    const errors = batch.map(({ fileName }) => {
      const path = resolve(fileName);
      const [first] = [...service.getSyntacticDiagnostics(path), ...service.getSemanticDiagnostics(path)];
      return first && ts.flattenDiagnosticMessageText(first.messageText, " ").slice(0, 160);
    });
    for (const { fileName } of batch) write(resolve(fileName), undefined);
    return errors;
  };
}

function replaced(text, { start, end }, replacement) {
  const lines = text.split("\n");
  const at = ({ line, column }) => lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, column);
  return text.slice(0, at(start)) + replacement + text.slice(at(end));
}
