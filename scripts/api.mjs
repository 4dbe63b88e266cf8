// The public API, read from the declarations of a build: `npm run api` writes a report for each entry point into etc/api/, and
// with --check fails if a report has changed. Both fail for a type that a signature names and `lockstep` does not export, and for
// an export, or a member that a report shows, without a docstring.
import { mkdirSync, readFileSync } from "node:fs";
import { relative, resolve } from "node:path";
import { CompilerState, Extractor, ExtractorConfig } from "@microsoft/api-extractor";
import ts from "typescript";

const ROOT = resolve(import.meta.dirname, "..");
const REPORTS = resolve(ROOT, "etc/api");
const check = process.argv.includes("--check");

/**
 * The entry points by the names of their reports. A type that several entry points name is exported by the first one.
 */
const ENTRIES = {
  lockstep: "dist/src/index.d.ts",
  "lockstep-io": "dist/src/io/index.d.ts",
  "lockstep-checkpoints": "dist/src/checkpoints/index.d.ts",
  "lockstep-checkpoints-portable": "dist/src/checkpoints/portable.d.ts",
  "lockstep-models": "dist/src/models/index.d.ts",
  "lockstep-distributed": "dist/src/collectives/processes/index.d.ts",
  "lockstep-conformance": "dist/conformance/index.d.ts",
};

const COMPILER = {
  module: "nodenext",
  moduleResolution: "nodenext",
  target: "es2022",
  lib: ["es2023", "esnext.disposable", "dom"],
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: true,
  types: ["node"],
};

const QUIET = { logLevel: "none" };

function configOf(name) {
  return ExtractorConfig.prepare({
    configObject: {
      projectFolder: ROOT,
      mainEntryPointFilePath: resolve(ROOT, ENTRIES[name]),
      compiler: { overrideTsconfig: { compilerOptions: COMPILER, files: Object.values(ENTRIES) } },
      newlineKind: "lf",
      apiReport: {
        enabled: true,
        reportFileName: `${name}.api.md`,
        reportFolder: REPORTS,
        reportTempFolder: resolve(ROOT, "out/api"),
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
      messages: {
        compilerMessageReporting: { default: { logLevel: "error" } },
        extractorMessageReporting: {
          default: QUIET,
          "ae-forgotten-export": { logLevel: "warning" },
          "ae-undocumented": { logLevel: "warning" },
        },
        tsdocMessageReporting: { default: QUIET },
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: resolve(ROOT, "package.json"),
  });
}

/** The problems of the reports, one line each. */
const faults = [];

/** Reports each export of an entry point that has no docstring. */
function documented(entry, program) {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(resolve(ROOT, entry));
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${entry} is not there; npm run build makes it`);
  return checker.getExportsOfModule(module).map((each) => {
    const symbol = each.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(each) : each;
    const isModule = (symbol.flags & ts.SymbolFlags.ValueModule) !== 0;
    if (!isModule && symbol.getDocumentationComment(checker).length === 0)
      faults.push(`${entry}: ${each.name} has no docstring; say what it is, in its own file`);
    return each.name;
  });
}

/**
 * Reports a member without a docstring by the first line of its declaration. A member that several entry points show is
 * reported once.
 */
function undocumented({ sourceFilePath = "", sourceFileLine = 1 }) {
  const lines = readFileSync(sourceFilePath, "utf8").split("\n").slice(0, sourceFileLine);
  const of =
    lines.findLast((line) => /^(export |declare |abstract )*(class|interface|type) /.test(line)) ?? "";
  const [, owner] = /(?:class|interface|type) (\w+)/.exec(of) ?? [];
  const member = lines.at(-1)?.trim();
  const source = relative(ROOT, sourceFilePath).replace(/^dist\/(.*)\.d\.ts$/, "$1.ts");
  const fault = `${source}: ${owner}: "${member}" has no docstring; say what it is, with shapes, units and errors`;
  if (!faults.includes(fault)) faults.push(fault);
}

function report(name, config, compilerState, exported) {
  const { succeeded, apiReportChanged } = Extractor.invoke(config, {
    localBuild: !check,
    compilerState,
    messageCallback(message) {
      message.handled = true;
      if (message.logLevel === "error") faults.push(`${name}: ${message.text}`);
      if (message.messageId === "ae-undocumented") undocumented(message);
      if (message.messageId !== "ae-forgotten-export") return;
      const symbol = /symbol "(\w+?)(?:_\d+)?" needs/.exec(message.text)?.[1] ?? "";
      // `keyof typeof TABLE` is shown to readers as a union of strings, so the table need not be exported
      if (exported.has(symbol) || /^[A-Z][A-Z0-9_]+$/.test(symbol)) return;
      faults.push(
        `${name}: ${symbol} is in a public signature and not exported; export it from src/index.ts`,
      );
    },
  });
  if (check && apiReportChanged) faults.push(`etc/api/${name}.api.md is not the API; npm run api writes it`);
  return succeeded;
}

mkdirSync(REPORTS, { recursive: true });
const names = Object.keys(ENTRIES);
const configs = names.map(configOf);
const state = CompilerState.create(configs[0], {
  additionalEntryPoints: configs.map(({ mainEntryPointFilePath }) => mainEntryPointFilePath),
});
const exports = names.map((name) => new Set(documented(ENTRIES[name], state.program)));
names.forEach((name, i) => {
  report(name, configs[i], state, new Set([...exports[0], ...exports[i]]));
});
for (const fault of faults) process.stderr.write(`${fault}\n`);
process.exitCode = faults.length > 0 ? 1 : 0;
