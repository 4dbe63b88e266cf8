/** The state of the page, which is the fragment of its address: a link shows what its author saw. */
import { useEffect, useState } from "preact/hooks";

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
  datapath: "hopper",
  split: "",
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

/** The parameters of the address, and a function that changes them. Another view is another entry of the history. */
export function useParams(): readonly [Params, SetParams] {
  const [params, setParams] = useState(() => readParams(location.hash));
  useEffect(() => {
    const follow = () => setParams(readParams(location.hash));
    addEventListener("hashchange", follow);
    addEventListener("popstate", follow);
    return () => {
      removeEventListener("hashchange", follow);
      removeEventListener("popstate", follow);
    };
  }, []);
  const change = (changes: Partial<Params>) => {
    const next = { ...readParams(location.hash), ...changes };
    const isAnotherView = next.view !== params.view;
    history[isAnotherView ? "pushState" : "replaceState"](null, "", writeParams(next));
    setParams(next);
  };
  return [params, change];
}
