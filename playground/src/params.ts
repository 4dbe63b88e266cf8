/** The state of the page, which is the fragment of its address: a link shows what its author saw. */

/** Every parameter with its default, which the address leaves out. */
const DEFAULTS = {
  view: "value",
  theme: "auto",
  // of the value
  x: "0.3",
  rounding: "tiesToEven",
  overflow: "saturate",
  format: "e4m3",
  // of the tensor
  source: "draw",
  draw: "student(4)",
  rows: "64",
  columns: "128",
  seed: "1",
  numbers: "",
  file: "",
  tensor: "",
  from: "0,0",
  stored: "scale",
  dtype: "bf16",
  a: "te/mxfp8/e4m3/1x32",
  b: "torchao-mxfp8-floor/mxfp8/e4m3/1x32",
  at: "",
  map: "error",
  // of the product
  px: "normal(0, 1) + outliers(1%, 60)",
  pw: "normal(0, 1)",
  k: "256",
  operands: "e4m3",
  // as those of x
  operandsW: "",
  datapath: "hopper",
  split: "",
  splitK: "1",
  step: "",
};

/** The name of a parameter. */
export type ParamName = keyof typeof DEFAULTS;

/** The parameters, each with its value. */
export type Params = Readonly<Record<ParamName, string>>;

/** Changes some parameters. */
export type SetParams = (changes: Partial<Params>) => void;

/** Reads the parameters of a fragment. Names that do not exist are ignored. */
export function readParams(fragment: string): Params {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const known = Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]);
  return Object.fromEntries(known) as Params;
}

/** The fragment that says these parameters, defaults left out. */
export function writeParams(params: Params): string {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(params))
    if (value !== DEFAULTS[name as ParamName]) written.set(name, value);
  return `#${written}`;
}
