/** The group of all processes of a job. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { requirePackages } from "../../packages.js";
import { ProcessGroup } from "../group.js";
import { LocalCommunicator } from "../local.js";
import { ProcessCommunicator } from "./communicator.js";
import { DeviceCommunicator } from "./devices.js";
import { Link } from "./link.js";
import { type ProcessGroupOptions, placeOf } from "./place.js";
import { chooseTransport } from "./transport.js";

/**
 * The group of all processes of a job, which find each other by `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`; of this
 * process alone where none of these is set. Tensors live on `backend`, which the caller disposes of after the group. Where every
 * rank has a GPU of its own and NCCL, operations are enqueued and go from GPU to GPU; otherwise they go through the hosts, and
 * return once they are done. `transport` of the group says which. Processes need the package zeromq; one alone does not.
 *
 * @throws `ArgumentError` for what is no backend, and where the environment or options say too little or contradict themselves,
 * or the environment asks NCCL for what has no known bits, `BackendError` where `transport` is `device` and a rank has none,
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
  const of = { id: "world", rank: place.rank, ranks };
  const host = new ProcessCommunicator(backend, link, of);
  const transport = chooseTransport(user, host, options.transport);
  if (transport.kind === "host" || !backend.exchange)
    return new ProcessGroup(new ProcessCommunicator(backend, link, of, undefined, transport));
  return new ProcessGroup(new DeviceCommunicator(backend, backend.exchange, link, host, transport, user));
}
