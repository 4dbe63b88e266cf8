/** Which mutants the compiler refuses: nobody can make those mistakes unseen. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import ts from "typescript";

/** A function of a mutant: what the compiler says of the file that has it, undefined where nothing. */
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
  return ({ fileName, location: { start, end }, replacement }) => {
    const path = resolve(fileName);
    const lines = readFileSync(path, "utf8").split("\n");
    const at = ({ line, column }) =>
      lines.slice(0, line).reduce((sum, each) => sum + each.length + 1, column);
    const whole = lines.join("\n");
    mutated.set(path, whole.slice(0, at(start)) + replacement + whole.slice(at(end)));
    versions.set(path, (versions.get(path) ?? 0) + 1);
    const [found] = [...service.getSyntacticDiagnostics(path), ...service.getSemanticDiagnostics(path)];
    mutated.delete(path);
    versions.set(path, versions.get(path) + 1);
    return found && ts.flattenDiagnosticMessageText(found.messageText, " ").slice(0, 160);
  };
}
