/** The frame of the page: its views, and the colour scheme. */
import type { Backend } from "lockstep";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { type Params, type SetParams, writeParams } from "./params.js";
import { Segments } from "./parts/controls.js";
import { useParams } from "./use-params.js";
import { ModelView } from "./views/model.js";
import { ProductView } from "./views/product.js";
import { TensorView } from "./views/tensor.js";
import { ValueView } from "./views/value.js";

interface View {
  readonly name: string;
  readonly text: string;
  readonly shows: ComponentType<{ backend: Backend; params: Params; set: SetParams }>;
}

const VIEWS = [
  { name: "value", text: "Value", shows: ValueView },
  { name: "tensor", text: "Tensor", shows: TensorView },
  { name: "product", text: "Dot product", shows: ProductView },
  { name: "model", text: "Model", shows: ModelView },
] as const satisfies readonly View[];

const THEMES = [
  ["auto", "auto"],
  ["light", "light"],
  ["dark", "dark"],
] as const;

/** Shows a view, or the reason why it cannot be shown under these parameters. Other parameters try again. */
function Guarded({ params, children }: { readonly params: Params; readonly children: ComponentChildren }) {
  const [error, retry] = useErrorBoundary((cause) => console.error(cause));
  const shown = writeParams(params);
  useEffect(() => {
    if (error) retry();
  }, [shown]);
  if (!error) return children;
  return (
    <section class="panel" aria-labelledby="error-title">
      <h2 id="error-title">This cannot be shown</h2>
      <p class="fault" role="alert">
        {error instanceof Error ? error.message : String(error)}
      </p>
    </section>
  );
}

export function App({ backend }: { readonly backend: Backend }) {
  const [params, set] = useParams();
  const { name, shows: Shown }: View = VIEWS.find((view) => view.name === params.view) ?? VIEWS[0];
  const scheme = THEMES.some(([theme]) => theme === params.theme) ? params.theme : "auto";
  useEffect(() => {
    document.documentElement.style.colorScheme = scheme === "auto" ? "light dark" : scheme;
  }, [scheme]);
  return (
    <>
      <header>
        <h1>
          Lockstep <span class="soft">playground</span>
        </h1>
        <nav aria-label="Views">
          {VIEWS.map((view) => (
            <a
              key={view.name}
              href={`#view=${view.name}`}
              aria-current={view.name === name ? "page" : undefined}
              onClick={(event) => {
                event.preventDefault();
                set({ view: view.name });
              }}
            >
              {view.text}
            </a>
          ))}
        </nav>
        <Segments label="Colours" value={scheme} onChange={(theme) => set({ theme })} options={THEMES} />
      </header>
      <main>
        <Guarded params={params}>
          <Shown backend={backend} params={params} set={set} />
        </Guarded>
      </main>
      <footer>
        <p>
          Every bit here is computed in this page by the WebAssembly reference of Lockstep. Nothing is sent
          anywhere. The address holds what you see; files stay out of it.
        </p>
      </footer>
    </>
  );
}
