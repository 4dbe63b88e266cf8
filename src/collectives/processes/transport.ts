/** The choice of a transport. Every rank sends its offer to all others, so that all ranks make the same choice. */
import { BackendError, LockstepError } from "../../errors.js";
import type { Transport } from "../communicator.js";
import type { ProcessCommunicator } from "./communicator.js";
import type { TransportName } from "./rendezvous.js";

/** The library and device of a rank, or the reason why it cannot use its device. */
interface Offer {
  readonly library?: string;
  readonly device?: string;
  readonly reason?: string;
  readonly requested?: TransportName | undefined;
}

/** The size of an offer as JSON, with padding. */
const OFFER_BYTES = 2048;

/** The maximum length of a reason; longer ones are truncated. */
const MAX_REASON = 600;

/**
 * Chooses the transport. Every rank of the world group calls it. Throws `BackendError` on all ranks if one of them requires the
 * transport `device` and another cannot use it, or if the environment of a rank enables a feature that is not allowed.
 */
export function chooseTransport(
  caller: string,
  host: ProcessCommunicator,
  requestedTransport: TransportName | undefined,
): Transport {
  const offers = host.gather(caller, toBytes(offerOf(host, requestedTransport))).map(fromBytes);
  const reason = reasonAgainst(offers);
  if (reason === undefined) return { kind: "device", description: offers[0]?.library as string };
  const requester = offers.findIndex((offer) => offer.requested === "device");
  if (requester < 0) return { kind: "host", description: reason };
  throw new BackendError(
    `${caller}: rank ${requester} requires the transport "device", and not every rank can use it; ${reason}`,
  );
}

function offerOf({ backend }: ProcessCommunicator, requestedTransport: TransportName | undefined): Offer {
  if (requestedTransport === "host") return { requested: requestedTransport, reason: "requested" };
  if (!backend.exchange)
    return {
      requested: requestedTransport,
      reason: `the ${backend.name} backend exchanges through the host`,
    };
  try {
    return {
      requested: requestedTransport,
      library: backend.exchange.library(),
      device: backend.exchange.device,
    };
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    // A forbidden setting in the environment must become an error, so it counts as a requirement of `device`.
    const refused = error.code === "ARGUMENT";
    return { requested: refused ? "device" : requestedTransport, reason: error.message.slice(0, MAX_REASON) };
  }
}

function reasonAgainst(offers: readonly Offer[]): string | undefined {
  const unavailable = offers.findIndex(({ reason }) => reason !== undefined);
  if (unavailable >= 0) return `rank ${unavailable}: ${offers[unavailable]?.reason}`;
  const first = offers[0] as Offer;
  const otherLibrary = offers.findIndex(({ library }) => library !== first.library);
  if (otherLibrary >= 0)
    return `rank ${otherLibrary} has ${offers[otherLibrary]?.library}, and rank 0 ${first.library}`;
  for (const [rank, { device }] of offers.entries()) {
    const duplicate = offers.findIndex((offer) => offer.device === device);
    if (duplicate < rank)
      return `rank ${rank} and rank ${duplicate} have one GPU; give each its own: openBackend("cuda", { device: localRank() })`;
  }
  return undefined;
}

function toBytes(offer: Offer): Uint8Array {
  const bytes = new Uint8Array(OFFER_BYTES);
  new TextEncoder().encodeInto(JSON.stringify(offer), bytes);
  return bytes;
}

function fromBytes(bytes: Uint8Array): Offer {
  const end = bytes.indexOf(0);
  return JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))) as Offer;
}
