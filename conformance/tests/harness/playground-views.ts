/** Renders views of the playground without a browser. */
import { parseHTML } from "linkedom";
import { h, render } from "preact";

/** A component. Its properties are known to the caller. */
type View = (properties: never) => unknown;

/**
 * Returns a component of `playground/src/views/FILE.tsx`. These files use browser types, which the tests do not load, so they are
 * imported by path.
 */
export async function loadView(file: string, name: string): Promise<View> {
  const path = new URL(`../../../playground/src/views/${file}.tsx`, import.meta.url).pathname;
  const views = (await import(path)) as Readonly<Record<string, View>>;
  return views[name] as View;
}

/** The text that a view shows, with single spaces. Effects, which draw charts, do not run. */
export function renderText(view: View, properties: object): string {
  const { document } = parseHTML("<html><body></body></html>");
  Object.assign(globalThis, { document });
  const root = document.body as unknown as Parameters<typeof render>[1];
  render(h(view as never, properties as never), root);
  const text = document.body.textContent.replace(/\s+/g, " ");
  render(null, root);
  return text;
}
