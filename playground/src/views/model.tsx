/** The weights of a model's folder: their bits, and their errors in a form. */
import type { Backend } from "lockstep";
import type { ConversionTarget } from "lockstep/checkpoints/portable";
import { useState } from "preact/hooks";
import { type ChosenFolder, chosenFolder, droppedFolder } from "../data/folder.js";
import { meanBits } from "../data/layers.js";
import { FORMS, useFolder } from "../data/use-folder.js";
import type { Params, SetParams } from "../params.js";
import { Choose } from "../parts/controls.js";
import { show } from "../words.js";
import { LayerPanel } from "./layers.js";
import { WeightTable } from "./weights.js";

const OPTIONS = FORMS.map((value) => ({ value }));

interface ModelProps {
  readonly backend: Backend;
  readonly params: Params;
  readonly set: SetParams;
}

export function ModelView({ backend, params, set }: ModelProps) {
  const [folder, setFolder] = useState<ChosenFolder>();
  const [dropFault, setDropFault] = useState<string>();
  const [isOver, setOver] = useState(false);
  const form = FORMS.find((name) => name === params.form) ?? ("ct-nvfp4" satisfies ConversionTarget);
  const state = useFolder(backend, folder, form);
  const open = (chosen: ChosenFolder) => {
    setDropFault(undefined);
    setFolder(chosen);
    set({ folder: chosen.name });
  };
  const drop = (items: DataTransferItemList) =>
    droppedFolder(items).then(open, (error) => setDropFault(String(error.message ?? error)));
  const { weights, count } = state;
  const fault = dropFault ?? state.fault;
  const bits = meanBits(weights);
  return (
    <>
      <section
        class={isOver ? "panel dropping" : "panel"}
        aria-labelledby="model-title"
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          if (event.dataTransfer) drop(event.dataTransfer.items);
        }}
      >
        <h2 id="model-title">A model's folder</h2>
        <div class="controls">
          <div class="field wide">
            <label for="folder">
              Drop a folder with safetensors or GGUF files in this box, or choose it; it stays in this page
            </label>
            <input
              id="folder"
              type="file"
              ref={(input) => {
                if (input) input.webkitdirectory = true;
              }}
              onChange={({ currentTarget }) => {
                const files = [...(currentTarget.files ?? [])];
                if (files.length > 0) open(chosenFolder(files));
              }}
            />
          </div>
          <Choose
            label="Form to compare with"
            value={form}
            onChange={(name) => set({ form: name })}
            options={OPTIONS}
          />
        </div>
        {fault ? (
          <p class="fault" role="alert">
            {fault}
          </p>
        ) : null}
        <p class="hint" aria-live="polite">
          {folder
            ? `${folder.name}: ${weights.length} of ${count} matrices`
            : params.folder
              ? `This link shows the folder ${params.folder}. Drop that folder here to see it.`
              : "The page shows how each matrix is stored, and its bits and error in another form."}
        </p>
        {weights.length > 0 ? (
          <>
            <progress aria-label="Matrices measured" max={Math.max(count, 1)} value={weights.length} />
            <p>
              Bits per element of the decoder layers: <strong>{show(bits.stored, 4)}</strong> as stored,{" "}
              <strong>{show(bits.form, 4)}</strong> as {form}.
            </p>
          </>
        ) : null}
      </section>
      {weights.length > 0 ? (
        <>
          <LayerPanel weights={weights} form={form} theme={params.theme} />
          <WeightTable weights={weights} form={form} />
        </>
      ) : null}
    </>
  );
}
