/** The group of all processes of a job. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { requirePackages } from "../../packages.js";
import { ProcessGroup } from "../group.js";
import { LocalCommunicator } from "../local.js";
import { ProcessCommunicator } from "./communicator.js";
import { Link } from "./link.js";
import { type ProcessGroupOptions, placeOf } from "./place.js";

/**
 * The group of all processes of a job, which find each other by `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`; of this
 * process alone where none of these is set. Tensors live on `backend`, which the caller disposes of after the group. An operation
 * of the group returns once it is done. Processes need the package zeromq; one alone does not.
 *
 * @throws `ArgumentError` for what is no backend, and where the environment or options say too little or contradict themselves,
 * `DisposedError` for a backend that was disposed of, `DistributedError` where the ranks do not find each other in time or one is
 * not let in, `MissingPackageError` without zeromq.
 */
export async function openProcessGroup(
  backend: Backend,
  options: ProcessGroupOptions = {},
): Promise<ProcessGroup> {
  const user = "openProcessGroup";
  requireBackend(user, backend);
  const place = placeOf(user, options, process.env);
  if (!place) return new ProcessGroup(new LocalCommunicator(backend));
  requirePackages("a group of several processes", "zeromq");
  const link = await Link.open(user, place);
  const ranks = Array.from({ length: place.size }, (_, rank) => rank);
  return new ProcessGroup(new ProcessCommunicator(backend, link, { id: "world", rank: place.rank, ranks }));
}
