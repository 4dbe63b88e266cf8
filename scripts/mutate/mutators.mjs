/** Stryker's mutators, and three of our own: mistakes that it does not make, and that people do. */
import babel from "@babel/core";
import { Instrumenter } from "@stryker-mutator/instrumenter";
import { EXCHANGES } from "./exchanges.mjs";

const { types } = babel;
const clone = (node) => types.cloneNode(node, true, false);

/** A field that is not passed on. */
const propertyRemoval = {
  name: "PropertyRemoval",
  *mutate(path) {
    if (!path.isObjectExpression()) return;
    const { properties } = path.node;
    for (const left of properties)
      yield types.objectExpression(properties.filter((each) => each !== left).map(clone));
  },
};

/** A call for its effect that is not made. */
const callRemoval = {
  name: "CallRemoval",
  *mutate(path) {
    if (
      path.isCallExpression() &&
      path.parentPath.isExpressionStatement() &&
      !types.isSuper(path.node.callee)
    )
      yield types.identifier("undefined");
  },
};

/** A last argument that is not passed. */
const argumentRemoval = {
  name: "ArgumentRemoval",
  *mutate(path) {
    if (!path.isCallExpression() || path.node.arguments.length < 2 || types.isSuper(path.node.callee)) return;
    const call = clone(path.node);
    call.arguments.pop();
    yield call;
  },
};

/** `{}` for an object says less than each field that is left out of it. */
const REPLACED = ["ObjectLiteral"];

/** What errors say may change. */
const messages = {
  shouldIgnore: (path) =>
    path.isThrowStatement() || (path.isNewExpression() && /Error$/.test(path.node.callee.name ?? ""))
      ? "what an error says"
      : undefined,
};

/** Words are checked by the compiler where they are names, and by nobody where they are prose. */
const EXCLUDED = ["StringLiteral", "Regex", ...REPLACED];

// the package does not export its list, nor a way to add to it
const { allMutators } = await import(
  new URL("./mutators/index.js", import.meta.resolve("@stryker-mutator/instrumenter")).href
);

/** The kinds of mistakes: those of operators, conditions and calls, and those of names. */
const KINDS = {
  usual: [...allMutators, propertyRemoval, callRemoval, argumentRemoval],
  exchanges: EXCHANGES,
};
export const KIND_NAMES = Object.keys(KINDS);

const SILENT = {
  isTraceEnabled: () => false,
  isDebugEnabled: () => false,
  isInfoEnabled: () => false,
  isWarnEnabled: () => false,
  ...Object.fromEntries(["trace", "debug", "info", "warn", "error", "fatal"].map((name) => [name, () => {}])),
};

/** Files with every mutant of a kind behind a switch, and the mutants. */
export async function instrument(files, kind) {
  allMutators.splice(0, allMutators.length, ...KINDS[kind]);
  const result = await new Instrumenter(SILENT).instrument(
    files.map(({ name, content }) => ({ name, content, mutate: true })),
    { plugins: null, excludedMutations: EXCLUDED, ignorers: [messages], noHeader: false },
  );
  return { files: result.files, mutants: result.mutants.filter(({ status }) => status !== "Ignored") };
}
