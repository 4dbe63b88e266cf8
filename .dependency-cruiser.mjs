import { readdirSync, readFileSync } from "node:fs";

const { exports } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));

const namesIn = (folder) => readdirSync(new URL(`${folder}/`, import.meta.url), { withFileTypes: true });
const foldersIn = (folder) => namesIn(folder).flatMap((each) => (each.isDirectory() ? [each.name] : []));

/** Throws unless an order has every entry of a folder, and no other. */
function requireOrdered(folder, order, others) {
  const stems = namesIn(folder).map(({ name }) => name.replace(/\.ts$/, ""));
  const wrong = [
    ...stems.filter((stem) => ![...order, ...others].includes(stem)),
    ...order.filter((stem) => !stems.includes(stem)),
  ];
  if (wrong.length > 0)
    throw new Error(`.dependency-cruiser.mjs: give ${wrong.join(", ")} of ${folder}/ its place in the order`);
}

/** Imports run one way, from the right to the left; `index` has all of them but io, checkpoints, models, referee and cli. */
const LAYERS = [
  ...[
    "text",
    "errors",
    "brand",
    "options",
    "formats",
    "random",
    "tensor",
    "backends",
    "ops",
    "explain",
    "orders",
    "collectives",
    "quantizers",
    "dialects",
    "recipes",
  ],
  ...[
    "tape",
    "autocast",
    "functional",
    "modules",
    "optimizers",
    "parallel",
    "io",
    "checkpoints",
    "models",
    "referee",
    "cli",
  ],
];

requireOrdered("src", LAYERS, ["index", "packages"]);

/** The same of what `lockstep/conformance` publishes; `index` has all of it. */
const CONFORMANCE = ["oracle", "values", "arbitraries", "operations", "counterexamples", "laws", "corpus"];
requireOrdered("conformance", CONFORMANCE, ["index", "tests", "vectors"]);

/** Backends, each in a folder that no other reads. */
const BACKENDS = foldersIn("src/backends").filter((name) => !["ops", "platform", "steps"].includes(name));

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

const conformanceOneWay = CONFORMANCE.slice(0, -1).map((layer, i) => ({
  name: `conformance-${layer}-imports-no-later-layer`,
  severity: "error",
  from: { path: `^conformance/${layer}/` },
  to: { path: `^conformance/(${CONFORMANCE.slice(i + 1).join("|")}|index)(/|\\.ts$)` },
}));

const backendsApart = BACKENDS.map((name) => ({
  name: `${name}-is-its-own`,
  comment:
    "What one backend alone needs lies in its folder; `open` has all of them, and the laws call exports by themselves.",
  severity: "error",
  from: {
    path: "^src/",
    pathNot: `^src/(backends/(${name}/|open\\.ts$)|index\\.ts$|cli/|checkpoints/kernels/)`,
  },
  to: { path: `^src/backends/${name}/`, pathNot: "/options\\.ts$" },
}));

/** The built modules that the package's entries lead to. */
const ENTRY_MODULES = Object.values(exports)
  .flatMap((entry) => (typeof entry === "string" ? [] : Object.values(entry)))
  .map((path) => `^${path.replace("./", "").replaceAll(".", "\\.")}$`);

export default {
  forbidden: [
    ...oneWay,
    ...conformanceOneWay,
    ...backendsApart,
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
      from: {
        path: `^src/(${NEUTRAL.join("|")})/`,
        // ranks of one process are references, which it opens
        pathNot: "^src/collectives/loopback/loopback\\.ts$",
      },
      to: { path: "^src/backends/(wasm|cuda|addon|open|platform)" },
    },
    {
      name: "the-reference-runs-in-a-browser",
      severity: "error",
      from: {
        path: `^src/(${PORTABLE.join("|")})(/|\\.ts$)`,
        pathNot: "^src/(backends/platform/node\\.ts$|collectives/processes/)",
      },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "the-entry-runs-in-a-browser",
      severity: "error",
      from: { path: "^src/index\\.ts$" },
      to: { path: "^src/(io|checkpoints|models|cli|collectives/processes)/" },
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
      from: { path: "^src/" },
      to: { path: "^(conformance|bench|examples|scripts)/" },
    },
    {
      name: "what-is-published-knows-nothing-of-our-tests",
      severity: "error",
      from: { path: "^conformance/", pathNot: "^conformance/tests/" },
      to: { path: "^conformance/(tests|vectors)/" },
    },
    {
      name: "what-is-not-published-is-of-our-tests",
      comment:
        "oracle/training and oracle/collective have no law of their own yet: our tests hold modules and groups to them.",
      severity: "error",
      from: { path: "^conformance/index\\.ts$" },
      to: {
        path: "^conformance/",
        pathNot: "^conformance/(tests|vectors|oracle/(training|collective))/|^conformance/index\\.ts$",
        reachable: false,
      },
    },
    {
      name: "the-playground-uses-the-package",
      comment: "By the names of its entries, as anybody would.",
      severity: "error",
      from: { path: "^playground/" },
      to: { path: "^(src|dist|conformance|bench|scripts|assembly|native|kernels)/", pathNot: ENTRY_MODULES },
    },
    {
      name: "portable-entries-need-no-files",
      severity: "error",
      from: { path: "^src/(checkpoints|models)/portable\\.ts$" },
      to: { path: "^src/io/(files|safetensors|safetensors-writer|replace/.*)\\.ts$", reachable: true },
    },
    {
      name: "answers-of-the-playground-know-nothing-of-its-views",
      severity: "error",
      from: { path: "^playground/src/(reference|data)/" },
      to: { path: "^playground/src/(views|parts|app|main)" },
    },
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "no-cycles-of-types",
      comment: `Four knots are types alone. A tensor has the type of its backend, whose operations take tensors. A quantized
tensor has the type of the quantizer that made it, whose methods take one. A variable knows the steps that made it, whose
gradients belong to variables. A lowering takes the addon, whose type has the calls that lowerings declare.`,
      severity: "error",
      from: {},
      to: {
        circular: true,
        viaOnly: { pathNot: "^src/(tensor/(tensor|quantized)|tape/variable|backends/cuda/addon)\\.ts$" },
      },
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
