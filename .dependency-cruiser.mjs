/** Imports run one way, from the right to the left; `index` has all of them but io and cli. */
const LAYERS = [
  ...[
    "errors",
    "nearest",
    "options",
    "formats",
    "random",
    "tensor",
    "backends",
    "ops",
    "quantizers",
    "recipes",
  ],
  ...["tape", "autocast", "functional", "modules", "optimizers", "io", "cli"],
];

/** What runs in a browser too. */
const PORTABLE = [...LAYERS.slice(0, LAYERS.indexOf("io")), "index"];

/** What asks a backend without naming one. */
const NEUTRAL = LAYERS.slice(LAYERS.indexOf("ops"), LAYERS.indexOf("io"));

/** No layer imports a later one. */
const oneWay = LAYERS.slice(0, -1).map((layer, i) => ({
  name: `${layer}-imports-no-later-layer`,
  severity: "error",
  from: {
    path: `^src/${layer}(/|\\.ts$)`,
    ...(layer === "tensor" ? { pathNot: "^src/tensor/tensor\\.ts$" } : {}),
  },
  to: { path: `^src/(${[...LAYERS.slice(i + 1), "index"].join("|")})(/|\\.ts$)` },
}));

export default {
  forbidden: [
    ...oneWay,
    {
      name: "a-tensor-only-names-its-backend",
      comment: "The one knot: a tensor has the type of its backend, and nothing else of it.",
      severity: "error",
      from: { path: "^src/tensor/tensor\\.ts$" },
      to: {
        path: `^src/(${LAYERS.slice(LAYERS.indexOf("backends")).join("|")}|index)`,
        pathNot: "^src/backends/backend\\.ts$",
      },
    },
    {
      name: "ops-name-no-backend",
      severity: "error",
      from: { path: `^src/(${NEUTRAL.join("|")})/` },
      to: { path: "^src/backends/(wasm|cuda|addon|open|platform)" },
    },
    {
      name: "the-reference-runs-in-a-browser",
      severity: "error",
      from: {
        path: `^src/(${PORTABLE.join("|")})(/|\\.ts$)`,
        pathNot: "^src/backends/platform/node\\.ts$",
      },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "the-entry-runs-in-a-browser",
      severity: "error",
      from: { path: "^src/index\\.ts$" },
      to: { path: "^src/(io|cli)/" },
    },
    {
      name: "oracles-share-data-not-code",
      severity: "error",
      from: { path: "^conformance/oracle/", pathNot: "\\.test\\.ts$" },
      to: { pathNot: "^(conformance/oracle/|src/formats/(scalar|block|datapath)\\.ts$)" },
    },
    {
      name: "src-knows-nothing-of-tests",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/cli/" },
      to: { path: "^(conformance|bench|examples|scripts)/" },
    },
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "no-orphans",
      severity: "error",
      from: { orphan: true, path: "^src/", pathNot: "platform/browser\\.ts$" },
      to: {},
    },
  ],
  options: {
    doNotFollow: { path: "node_modules|build|dist" },
    exclude: { path: "^(build|dist)/" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    moduleSystems: ["es6"],
  },
};
