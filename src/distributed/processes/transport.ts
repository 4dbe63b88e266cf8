/** Whether the devices of all ranks exchange by themselves: every rank says what it has, and all conclude the same. */
import { BackendError, LockstepError } from "../../errors.js";
import type { Transport } from "../communicator.js";
import type { ProcessCommunicator } from "./communicator.js";
import type { TransportName } from "./place.js";

/** What a rank has, or why it cannot. */
interface Offer {
  readonly library?: string;
  readonly device?: string;
  readonly reason?: string;
  readonly wants?: TransportName | undefined;
}

/** Room for an offer in JSON. */
const OFFER_BYTES = 2048;

/** Longer reasons are cut. */
const REASON = 600;

/**
 * Every rank of the world calls it. Throws `BackendError` on all of them where one insists on devices and another cannot, or
 * where an environment asks for what is refused.
 */
export function chooseTransport(
  user: string,
  host: ProcessCommunicator,
  wants: TransportName | undefined,
): Transport {
  const offers = host.gather(user, packed(offerOf(host, wants))).map(unpacked);
  const reason = reasonAgainst(offers);
  if (reason === undefined) return { kind: "device", description: offers[0]?.library as string };
  const insists = offers.findIndex((offer) => offer.wants === "device");
  if (insists < 0) return { kind: "host", description: reason };
  throw new BackendError(
    `${user}: rank ${insists} wants the transport "device", which all ranks would have to have; ${reason}`,
  );
}

function offerOf({ backend }: ProcessCommunicator, wants: TransportName | undefined): Offer {
  if (wants === "host") return { wants, reason: "asked for" };
  if (!backend.exchange) return { wants, reason: `the ${backend.name} backend exchanges through the host` };
  try {
    return { wants, library: backend.exchange.library(), device: backend.exchange.device };
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    // what the environment asks for and is refused is not passed over
    const refused = error.code === "ARGUMENT";
    return { wants: refused ? "device" : wants, reason: error.message.slice(0, REASON) };
  }
}

function reasonAgainst(offers: readonly Offer[]): string | undefined {
  const without = offers.findIndex(({ reason }) => reason !== undefined);
  if (without >= 0) return `rank ${without}: ${offers[without]?.reason}`;
  const first = offers[0] as Offer;
  const other = offers.findIndex(({ library }) => library !== first.library);
  if (other >= 0) return `rank ${other} has ${offers[other]?.library}, and rank 0 ${first.library}`;
  for (const [rank, { device }] of offers.entries()) {
    const same = offers.findIndex((offer) => offer.device === device);
    if (same < rank)
      return `rank ${rank} and rank ${same} have one GPU; give each its own: openBackend("cuda", { device: LOCAL_RANK })`;
  }
  return undefined;
}

function packed(offer: Offer): Uint8Array {
  const bytes = new Uint8Array(OFFER_BYTES);
  new TextEncoder().encodeInto(JSON.stringify(offer), bytes);
  return bytes;
}

function unpacked(bytes: Uint8Array): Offer {
  const end = bytes.indexOf(0);
  return JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))) as Offer;
}
