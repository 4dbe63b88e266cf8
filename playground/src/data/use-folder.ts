/** The weights of a chosen folder, measured one after another in a form. */
import type { Backend } from "lockstep";
import {
  type Checkpoint,
  CONVERSION_TARGETS,
  type ConversionTarget,
  type MeasuredWeight,
  measureForm,
  openCheckpointBlobs,
} from "lockstep/checkpoints/portable";
import { useEffect, useState } from "preact/hooks";
import type { ChosenFolder } from "./folder.js";
import { countOfMatrices } from "./layers.js";

/** The time between two updates of the page, in milliseconds. */
const UPDATE_MS = 200;

/** The names of the forms. */
export const FORMS: readonly ConversionTarget[] = CONVERSION_TARGETS;

/** A folder that is measured. */
export interface FolderState {
  readonly checkpoint?: Checkpoint;
  /** The weights that were measured so far. */
  readonly weights: readonly MeasuredWeight[];
  /** The number of weights at the end. */
  readonly count: number;
  /** Why the folder cannot be read, or a weight cannot have the form. */
  readonly fault?: string;
}

const EMPTY: FolderState = { weights: [], count: 0 };

/** Lets the browser draw and take events. */
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

/**
 * Measures a folder. Another folder or form ends the measurement. Of each file, only one converted weight is in memory at a time.
 */
export function useFolder(
  backend: Backend,
  folder: ChosenFolder | undefined,
  to: ConversionTarget,
): FolderState {
  const [state, setState] = useState<FolderState>(EMPTY);
  useEffect(() => {
    if (!folder) return;
    let isCurrent = true;
    const show = (next: FolderState) => isCurrent && setState(next);
    const measure = async () => {
      show(EMPTY);
      const weights: MeasuredWeight[] = [];
      let opened: Pick<FolderState, "checkpoint" | "count"> = { count: 0 };
      try {
        const checkpoint = await openCheckpointBlobs(folder.files, { name: folder.name });
        opened = { checkpoint, count: countOfMatrices(checkpoint) };
        show({ ...opened, weights: [] });
        await pause();
        let shown = performance.now();
        for await (const weight of measureForm(checkpoint, { to, backend })) {
          if (!isCurrent) return;
          weights.push(weight);
          if (performance.now() - shown > UPDATE_MS) show({ ...opened, weights: [...weights] });
          if (performance.now() - shown > UPDATE_MS) shown = performance.now();
          await pause();
        }
        show({ ...opened, weights });
      } catch (error) {
        show({ ...opened, weights, fault: error instanceof Error ? error.message : String(error) });
      }
    };
    measure();
    return () => {
      isCurrent = false;
    };
  }, [backend, folder, to]);
  return state;
}
