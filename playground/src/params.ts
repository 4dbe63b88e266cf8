/** The state of the page, stored in the fragment of its address, so that a link shows what its author saw. */

/** Every parameter with its default, which the address omits. */
const DEFAULTS = {
  view: "value",
  theme: "auto",
  // parameters of the value view
  x: "0.3",
  rounding: "tiesToEven",
  overflow: "saturate",
  format: "e4m3",
  // parameters of the tensor view
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
  // parameters of the product view
  px: "normal(0, 1) + outliers(1%, 60)",
  pw: "normal(0, 1)",
  k: "256",
  operands: "e4m3",
  // empty: the same as for x
  operandsW: "",
  datapath: "hopper",
  split: "",
  splitK: "1",
  step: "",
  // parameters of the model view
  folder: "",
  form: "ct-nvfp4",
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

/** The fragment for these parameters, without defaults. */
export function writeParams(params: Params): string {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(params))
    if (value !== DEFAULTS[name as ParamName]) written.set(name, value);
  return `#${written}`;
}
