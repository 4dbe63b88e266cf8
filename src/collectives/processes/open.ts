/** The group of all processes of a job. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { requirePackages } from "../../packages.js";
import { ProcessGroup } from "../group.js";
import { LocalCommunicator } from "../local.js";
import { ProcessCommunicator } from "./communicator.js";
import { DeviceCommunicator } from "./devices.js";
import { Link } from "./link.js";
import { type ProcessGroupOptions, rendezvousOf } from "./rendezvous.js";
import { chooseTransport } from "./transport.js";

/**
 * Opens the group of all processes of a job. Processes find each other by `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`,
 * as in torchrun; mpirun and srun set other variables instead of the first two. Without any of them, the group has this process
 * only. Tensors are on `backend`, which the caller disposes of after the group. If every rank has its own GPU and NCCL,
 * operations are enqueued and move data from GPU to GPU. Otherwise data goes through the hosts, and an operation returns when it
 * has completed. `transport` of the group says which one is used. Several processes need the package zeromq.
 *
 * @throws `ArgumentError` for anything but a backend, for options or an environment that are incomplete or contradictory, and if
 * the environment enables a feature of NCCL whose results are unknown, `BackendError` if `transport` is `device` and a rank
 * cannot use it, `DisposedError` for a backend that was disposed of, `DistributedError` if the ranks do not join in time or one
 * is not admitted, `MissingPackageError` without zeromq.
 */
export async function openProcessGroup(
  backend: Backend,
  options: ProcessGroupOptions = {},
): Promise<ProcessGroup> {
  const caller = "openProcessGroup";
  requireBackend(caller, backend);
  const rendezvous = rendezvousOf(caller, options, process.env);
  if (!rendezvous) return new ProcessGroup(new LocalCommunicator(backend));
  requirePackages("a group of several processes", "zeromq");
  const link = await Link.open(caller, rendezvous);
  const ranks = Array.from({ length: rendezvous.size }, (_, rank) => rank);
  const membership = { id: "world", rank: rendezvous.rank, ranks };
  const host = new ProcessCommunicator(backend, link, membership);
  try {
    const transport = chooseTransport(caller, host, options.transport);
    if (transport.kind === "host" || !backend.exchange)
      return new ProcessGroup(new ProcessCommunicator(backend, link, membership, undefined, transport));
    return new ProcessGroup(new DeviceCommunicator(backend, backend.exchange, link, host, transport, caller));
  } catch (error) {
    // leaves the job in order; otherwise a slower rank would report this one as lost instead of this error
    await host.dispose().catch(() => undefined);
    throw error;
  }
}
