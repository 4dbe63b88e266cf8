/** The address as state of the page. */
import { useEffect, useState } from "preact/hooks";
import { type Params, readParams, type SetParams, writeParams } from "./params.js";

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
